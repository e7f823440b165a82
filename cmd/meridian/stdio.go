package main

import (
	"encoding/json"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// stdio is what a command reads and writes, so that tests can bring their own.
type stdio struct {
	in       io.Reader
	out, err io.Writer
	// terminal is whether a person sees out as it is written.
	terminal bool
}

// writeJSON writes v for programs: one object, nothing escaped for HTML.
func (s *stdio) writeJSON(v any) error {
	encoder := json.NewEncoder(s.out)
	encoder.SetEscapeHTML(false)
	return encoder.Encode(v)
}

// output remembers the first write that failed, so that no command can lose a
// result without a word.
type output struct {
	w   io.Writer
	err error
}

func (o *output) Write(p []byte) (int, error) {
	if o.err != nil {
		return 0, o.err
	}
	n, err := o.w.Write(p)
	o.err = err
	return n, err
}

// terminalOut is standard output as the file that it is, for who asks its terminal
// for more than to show what is written.
func (s *stdio) terminalOut() io.Writer {
	if o, wrapped := s.out.(*output); wrapped {
		return o.w
	}
	return s.out
}

// onTerminal is whether what is written to w is shown on a terminal.
func onTerminal(w io.Writer) bool {
	f, isFile := w.(*os.File)
	return isFile && isTerminal(f)
}

func isTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}
