package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// longestMessage bounds a line of a pipe, and what may be pasted into one that is
// typed.
const longestMessage = 1 << 20

// The terminal tells what is pasted from what is typed, while it is asked to. This is
// what term.Terminal.SetBracketedPasteMode writes, but beside a reader.
const (
	markPastes   = "\x1b[?2004h"
	unmarkPastes = "\x1b[?2004l"
)

// lineEditor reads what a person types at a terminal. The terminal is its own only
// while a line is typed: in between, when an answer is shown, it is as it was found,
// and Ctrl-C is a signal.
type lineEditor struct {
	tty     *os.File
	keys    *keyReader
	history *chatHistory
	editor  *term.Terminal
	changes chan os.Signal // the size of the terminal, or the process goes on after Ctrl-Z
}

func newLineEditor(tty *os.File, out io.Writer, history *chatHistory) *lineEditor {
	e := &lineEditor{tty: tty, keys: &keyReader{from: tty}, history: history, changes: make(chan os.Signal, 2)}
	e.editor = term.NewTerminal(struct {
		io.Reader
		io.Writer
	}{e.keys, out}, "> ")
	e.editor.History = history
	return e
}

// next is the next message. The error is io.EOF after Ctrl-D, and the cause of ctx
// where that ended. The terminal is as it was before, however next ends; a reader
// that waits for a key is then left to the end of the process: nothing wakes it.
func (e *lineEditor) next(ctx context.Context, interrupts <-chan os.Signal) (string, error) {
	if ctx.Err() != nil {
		return "", context.Cause(ctx)
	}
	signal.Notify(e.changes, syscall.SIGWINCH, syscall.SIGCONT)
	defer signal.Stop(e.changes)
	before, err := term.GetState(int(e.tty.Fd()))
	if err != nil {
		return "", err
	}
	defer func() {
		_, _ = e.editor.Write([]byte(unmarkPastes))
		_ = term.Restore(int(e.tty.Fd()), before)
	}()
	e.keys.lineBegins()
	if err := e.own(); err != nil {
		return "", err
	}
	type result struct {
		line  string
		err   error
		panic any
	}
	read := make(chan result, 1)
	go func() {
		var r result
		defer func() {
			// It goes on where the terminal is put back.
			if p := recover(); p != nil {
				r.panic = fmt.Sprintf("%v\n%s", p, debug.Stack())
			}
			read <- r
		}()
		r.line, r.err = e.editor.ReadLine()
	}()
	for {
		select {
		case r := <-read:
			if r.panic != nil {
				panic(r.panic)
			}
			if r.err != nil && !errors.Is(r.err, term.ErrPasteIndicator) {
				return "", r.err
			}
			return fromSymbols.Replace(r.line), nil
		case <-ctx.Done():
			return "", context.Cause(ctx)
		case <-interrupts:
			// A Ctrl-C that was meant for the answer, which had just ended.
		case <-e.changes:
			if err := e.own(); err != nil {
				return "", err
			}
		}
	}
}

// own has the terminal hand over each key as it is pressed, but for Ctrl-Z, which
// stops the process as ever.
func (e *lineEditor) own() error {
	fd := int(e.tty.Fd())
	if _, err := term.MakeRaw(fd); err != nil {
		return err
	}
	mode, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		return err
	}
	mode.Lflag |= unix.ISIG
	mode.Cc[unix.VINTR], mode.Cc[unix.VQUIT] = 0, 0 // no key
	if err := unix.IoctlSetTermios(fd, unix.TCSETS, mode); err != nil {
		return err
	}
	if columns, rows, err := term.GetSize(fd); err == nil && columns > 0 {
		if err := e.editor.SetSize(columns, rows); err != nil {
			return err
		}
	}
	_, err = e.editor.Write([]byte(markPastes)) // and draws the line anew, if there is one
	return err
}
