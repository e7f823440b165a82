// Package chaos is for tests that break real processes. A puppet is an agent in
// a process of its own, with an arena of known contents; the test holds its
// strings:
//
//	test ── Start ──► puppet: agent, tcp, arena       kill, stop, limit: from outside
//	     ── orders over stdin (net/rpc, JSON) ──►     Post, Await, Fill, Count …
//	     ◄── outcomes over stdout ──
//
// The puppet is the test binary itself, which Main turns into one. Tests of
// this package are the faults of docs/reliability.md; prove/hostile holds
// puppets too, to be attacked.
package chaos

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"meridian/move/fabric"
	"meridian/move/mem"
)

// role is where the environment says what this process plays.
const role = "MERIDIAN_CHAOS_ROLE"

// Main is a test binary's TestMain: it runs the tests, unless this process was
// started to play one of roles, or a puppet.
func Main(m *testing.M, roles map[string]func() error) {
	name := os.Getenv(role)
	act, known := roles[name]
	switch {
	case name == "puppet":
		act = play
	case name != "" && !known:
		act = func() error { return fmt.Errorf("chaos: no role is called %q", name) }
	case name == "":
		// Most of these tests wait for a deadline or a process most of the time.
		if flag.Parse(); !flagGiven("test.parallel") {
			_ = flag.Set("test.parallel", "6")
		}
		code := m.Run()
		program.remove()
		os.Exit(code)
	}
	if err := act(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func flagGiven(name string) (given bool) {
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == name })
	return given
}

// sentinels are the errors that a test may ask for across the process boundary.
var sentinels = map[string]error{
	"unknown region": fabric.ErrUnknownRegion, "stale epoch": fabric.ErrStaleEpoch, "checksum": fabric.ErrChecksum,
	"busy": fabric.ErrBusy, "cancelled": fabric.ErrCancelled, "deadline": fabric.ErrDeadline, "peer gone": fabric.ErrPeerGone,
	"stale peer": fabric.ErrStalePeer, "closed": fabric.ErrClosed, "refused": fabric.ErrRefused, "unproven": fabric.ErrUnproven,
	"no grant": fabric.ErrNoGrant, "bounds": mem.ErrBounds, "gone": mem.ErrGone, "end of file": io.ErrUnexpectedEOF,
	"no space": unix.ENOSPC, "file too large": unix.EFBIG, "i/o": unix.EIO, "no descriptors": unix.EMFILE, "no memory": unix.ENOMEM,
	"exists": fs.ErrExist,
}

// Failure is an error of a puppet's. errors.Is finds what it wrapped there.
type Failure struct {
	Text  string
	Wraps []string
}

func failure(err error) *Failure {
	if err == nil {
		return nil
	}
	f := &Failure{Text: err.Error()}
	for name, sentinel := range sentinels {
		if errors.Is(err, sentinel) {
			f.Wraps = append(f.Wraps, name)
		}
	}
	return f
}

func (f *Failure) Error() string { return f.Text }

// Is reports whether the puppet's error wrapped target.
func (f *Failure) Is(target error) bool {
	for _, name := range f.Wraps {
		if sentinels[name] == target {
			return true
		}
	}
	return false
}
