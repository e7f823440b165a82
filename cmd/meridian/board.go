package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"meridian/cell"
	"meridian/cell/demo"
)

// board shows how a cell starts, lives and stops: on a terminal one line for
// each part, drawn anew as it changes, elsewhere a line for each change.
type board struct {
	w        io.Writer
	terminal bool
	width    int

	mu       sync.Mutex // protects what follows
	starting bool
	silent   bool
	parts    []string // in the order of their coming
	lines    map[string]string
	drawn    int
	staged   string
}

// newBoard writes to standard output, or beside it where that is for programs.
func newBoard(std *stdio, beside bool) *board {
	b := &board{w: std.out, terminal: std.terminal, width: columns(), starting: true, lines: make(map[string]string)}
	if beside {
		b.w, b.terminal = std.err, false
	}
	return b
}

// show takes an event of the cell.
func (b *board) show(e cell.Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.silent {
		return
	}
	line := fmt.Sprintf("  %-14s %-9s", e.Part, e.State)
	if e.Took > 0 && (e.State == cell.Ready || e.State == cell.Stopped) {
		line += fmt.Sprintf(" %5.2f s", e.Took.Seconds())
	} else if e.Detail != "" {
		line += "        "
	}
	if e.Detail != "" {
		line += "  " + e.Detail
	}
	line = strings.TrimRight(printable(line), " ")
	switch {
	case b.starting && b.terminal && e.Detail != "" && (e.State == cell.Waiting || e.Part == "cell"):
		b.redraw(strings.TrimSpace(printable(e.Detail)) + "\n")
	case b.starting && b.terminal:
		if _, known := b.lines[e.Part]; !known {
			b.parts = append(b.parts, e.Part)
		}
		b.lines[e.Part] = line
		b.redraw("")
	case e.Detail == "" && (e.State == cell.Waiting || e.State == cell.Starting || e.State == cell.Stopping):
		// on paper only what came of it is worth a line
	default:
		fmt.Fprintln(b.w, line)
	}
}

// redraw draws all parts over what was drawn before, below a note that stays.
func (b *board) redraw(note string) {
	if b.drawn > 0 {
		fmt.Fprintf(b.w, "\x1b[%dA\x1b[J", b.drawn)
	}
	fmt.Fprint(b.w, note)
	for _, p := range b.parts {
		fmt.Fprintln(b.w, short(b.lines[p], b.width))
	}
	b.drawn = len(b.parts)
}

// short cuts a line, because one that is broken takes two lines.
func short(line string, width int) string {
	if runes := []rune(line); len(runes) > width {
		return string(runes[:width-1]) + "…"
	}
	return line
}

// columns is how wide the terminal is.
func columns() int {
	const usual, least = 80, 20
	size, err := unix.IoctlGetWinsize(int(os.Stdout.Fd()), unix.TIOCGWINSZ)
	if err != nil || size.Col < least {
		return usual
	}
	return int(size.Col)
}

// started ends the drawing: from now on events are news.
func (b *board) started(took time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.starting = false
	fmt.Fprintf(b.w, "the cell is ready, after %.1f s\n", took.Seconds())
}

func (b *board) say(text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	fmt.Fprintln(b.w, text)
}

// quiet shows nothing any more.
func (b *board) quiet() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.silent = true
}

// stage shows how far a demo has come.
func (b *board) stage(s demo.Stage) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.terminal:
		fmt.Fprintf(b.w, "\r\x1b[2K%s: %d of %d prompts", s.Name, s.Done, s.Total)
		if s.Done == s.Total {
			fmt.Fprintln(b.w)
		}
		b.staged = s.Name
	case s.Name != b.staged:
		fmt.Fprintf(b.w, "%d prompts %s\n", s.Total, s.Name)
		b.staged = s.Name
	}
}

// finishStage leaves an empty line before what comes of the demo.
func (b *board) finishStage() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.staged != "" {
		fmt.Fprintln(b.w)
	}
}
