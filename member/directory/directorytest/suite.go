// Package directorytest is what every directory must do: one suite for all alcoves.
// An alcove brings a World, a directory together with everything that can
// happen to it, and the suite makes it happen.
package directorytest

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"meridian/member/directory"
)

// World is one directory, of which the suite plays every part: owners, watchers,
// the network and the operator.
type World struct {
	// Open makes a client of its own; the suite closes it.
	Open func(t *testing.T) Client
	// TTL is a lease that an owner keeps also when the machine stands still for
	// a few seconds, but that expires soon enough to wait for.
	TTL time.Duration
	// Compact makes the directory forget its history.
	Compact func(t *testing.T)
	// Stop and Start take the whole directory away and bring it back; Wipe,
	// between the two, loses all it held.
	Stop, Start, Wipe func(t *testing.T)

	slack time.Duration // how much later than promised something may be seen
}

// Client is one user of the directory, with the network between them.
type Client struct {
	directory.Directory
	// Reach sets how far this client gets.
	Reach func(Reach)
}

// Reach is how far a client's words get.
type Reach uint8

const (
	Through Reach = iota
	Refused       // connections break and none is accepted
	Silent        // nothing is answered, nothing breaks
)

const (
	// eventually ends a wait for something that has no bound of its own. Machines
	// that run tests are busy, and only a failure waits this long.
	eventually = time.Minute
	// exactly is the slack where time is simulated.
	exactly = 10 * time.Millisecond
	// lasting is a lease that does not expire while a test runs: what vanishes
	// with it, did so because the test said so.
	lasting = 10 * time.Minute
)

type check struct {
	name string
	run  func(t *testing.T, w *World)
}

// Main runs the tests of an alcove's package: more at a time than there are
// cores, because they mostly wait for leases, and none may leave a goroutine.
func Main(m *testing.M) {
	flag.Parse()
	asked := false
	flag.Visit(func(f *flag.Flag) { asked = asked || f.Name == "test.parallel" })
	if !asked {
		if err := flag.Set("test.parallel", "8"); err != nil {
			panic(err)
		}
	}
	goleak.VerifyTestMain(m)
}

// RunAlone is the part of the contract that nothing may run beside: a crowd
// would keep others from renewing their leases in time, and others would hide
// what was left behind.
func RunAlone(t *testing.T, open func(t *testing.T) *World) {
	for _, c := range aloneChecks {
		t.Run(c.name, func(t *testing.T) { c.run(t, open(t).seenWithin(eventually)) })
	}
}

// Run is the rest of the contract. open makes a new world each time.
func Run(t *testing.T, open func(t *testing.T) *World) {
	// These disturb only their own clients and their own keys.
	t.Run("together", func(t *testing.T) {
		t.Parallel()
		w := open(t).seenWithin(eventually)
		for _, c := range sharedChecks() {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				c.run(t, w)
			})
		}
	})
	for _, c := range ownChecks() {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.run(t, open(t).seenWithin(eventually))
		})
	}
}

// RunSimulated is Run for a directory that lives in the test's process alone:
// each check has a simulated time of its own, in which leases last as long as
// they say and nothing is late, however slow the machine is.
func RunSimulated(t *testing.T, open func(t *testing.T) *World) {
	for _, c := range slices.Concat(sharedChecks(), ownChecks()) {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { c.run(t, open(t).seenWithin(exactly)) })
		})
	}
}

// sharedChecks leave a world as they found it; ownChecks do not.
func sharedChecks() []check {
	return slices.Concat(recordChecks, raceChecks, leaseChecks, watchChecks, electionChecks)
}

func ownChecks() []check { return slices.Concat(compactionChecks, outageChecks) }

func (w *World) seenWithin(slack time.Duration) *World {
	w.slack = slack
	return w
}

// keepsTime tells whether things can be said to be too early.
func (w *World) keepsTime() bool { return w.slack == exactly }

// client opens a client that is closed with the test.
func (w *World) client(t *testing.T) Client {
	t.Helper()
	c := w.Open(t)
	t.Cleanup(func() {
		c.Reach(Through)
		ctx, cancel := context.WithTimeout(context.Background(), eventually)
		defer cancel()
		if err := c.Close(ctx); err != nil && !errors.Is(err, directory.ErrUnavailable) {
			t.Errorf("close: %v", err)
		}
	})
	return c
}

// home is a prefix of the test's own, so that tests can share a directory.
func home(t *testing.T) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
			return r
		}
		return '-'
	}, t.Name()) + "/"
}

func value(format string, args ...any) []byte { return fmt.Appendf(nil, format, args...) }

func put(t *testing.T, d directory.Directory, e directory.Entry) directory.Record {
	t.Helper()
	r, err := d.Put(t.Context(), e)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func create(t *testing.T, d directory.Directory, e directory.Entry) directory.Record {
	t.Helper()
	r, err := d.Create(t.Context(), e)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func grant(t *testing.T, d directory.Directory, o directory.LeaseOptions) *directory.Lease {
	t.Helper()
	l, err := d.Grant(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func list(t *testing.T, d directory.Directory, prefix string) directory.Snapshot {
	t.Helper()
	s, err := d.List(t.Context(), prefix)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func wantError(t *testing.T, err, sentinel error, op string) {
	t.Helper()
	var dressed *directory.Error
	if !errors.Is(err, sentinel) || !errors.As(err, &dressed) || dressed.Op != op {
		t.Errorf("%s: got %v, want %q as a *directory.Error", op, err, sentinel)
	}
}
