package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"

	"meridian/move/fabric"
	"meridian/move/mrdn"
	"meridian/run/config"
	"meridian/see/telemetry"
)

// Exit statuses.
const (
	exitOK      = 0
	exitFailure = 1
	exitInvalid = 2
)

// failure is an error with the advice and the exit status that go with it.
type failure struct {
	err    error
	hint   string
	status int
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }
func (f *failure) Hint() string  { return f.hint }

func invalid(hint, format string, args ...any) error {
	return &failure{err: fmt.Errorf(format, args...), hint: hint, status: exitInvalid}
}

// unwritable adds to err what helps with a file that cannot be written.
func unwritable(path string, err error) error {
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	hint := "make its directory first: mkdir -p " + filepath.Dir(path)
	return &failure{err: err, hint: hint, status: exitFailure}
}

// unopened adds to err what helps with a file that can also be standard input.
func unopened(err error) error {
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return &failure{err: err, hint: "check the path; `-` reads standard input", status: exitFailure}
}

// reportFailure writes err as one paragraph with a hint, and returns the exit status
// it stands for.
func reportFailure(w io.Writer, o telemetry.LogOptions, err error) int {
	if errors.Is(err, syscall.EPIPE) {
		return exitFailure // the reader of our output has gone
	}
	text, hint := printable(err.Error()), printable(hintFor(err)) // they may quote a peer or a file
	var usage *kong.ParseError
	if errors.As(err, &usage) {
		// A flag that may be left out has a choice with no name, which is none to offer.
		text = strings.Replace(text, `must be one of "",`, "must be one of ", 1)
	}
	var faults *config.Error
	inFile := errors.As(err, &faults)
	if o.Format == "json" {
		attributes := []any{"error", text, "hint", hint}
		if inFile {
			attributes = append(attributes, "faults", faults.Faults)
		}
		newLogger(w, o).Error("failed", attributes...)
		return exitStatus(err)
	}
	if inFile {
		fmt.Fprintln(w, text) // each line starts with file:line:column, as editors like it
	} else {
		fmt.Fprintf(w, "meridian: %s\n", text)
	}
	if hint != "" {
		fmt.Fprintf(w, "hint: %s\n", hint)
	}
	return exitStatus(err)
}

func exitStatus(err error) int {
	var f *failure
	var usage *kong.ParseError
	var faults *config.Error
	switch {
	case errors.As(err, &faults): // also beside a file that cannot be read
		return exitInvalid
	case errors.As(err, &f):
		return f.status
	case errors.As(err, &usage), mrdn.Verdict(err) != "":
		return exitInvalid
	}
	return exitFailure
}

func hintFor(err error) string {
	var hinted interface{ Hint() string }
	var usage *kong.ParseError
	switch {
	case errors.As(err, &hinted):
		return hinted.Hint()
	case errors.As(err, &usage):
		command := "meridian"
		if usage.Context != nil && usage.Context.Selected() != nil {
			command = usage.Context.Selected().FullPath()
		}
		return fmt.Sprintf("`%s --help` lists what it takes", command)
	case errors.Is(err, mrdn.ErrMagic):
		return "an MRDN frame starts with the letters MRDN; is this the right file?"
	case errors.Is(err, mrdn.ErrTooLarge):
		return "raise the cap with --max-body if you trust the source"
	case errors.Is(err, mrdn.ErrChecksum), errors.Is(err, mrdn.ErrTruncated):
		return "the bytes changed or were cut on the way; fetch them again from where they were written"
	case errors.Is(err, mrdn.ErrVersion), errors.Is(err, mrdn.ErrTier), errors.Is(err, mrdn.ErrPad):
		return "a newer Meridian wrote this, or the bytes changed on the way; docs/wire.md tells what a build reads"
	case errors.Is(err, fs.ErrNotExist):
		return "check the path"
	case errors.Is(err, syscall.EISDIR):
		return "that is a directory; name a file in it"
	case errors.Is(err, fs.ErrPermission):
		return "this user may not read or write there"
	}
	return fabric.Hint(err)
}
