package directorytest

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"meridian/internal/until"
	"meridian/member/directory"
)

var outageChecks = []check{
	{"an outage means unknown", outageMeansUnknown},
	{"leases outlast a short outage and a long one", leasesOutlastOutages},
	{"a directory that lost its data is filled again", lostDataIsFilledAgain},
	{"a watch may begin during an outage", watchBeginsDuringOutage},
	{"every wait ends", everyWaitEnds},
}

func outageMeansUnknown(t *testing.T, w *World) {
	d, base := w.client(t), home(t)
	put(t, d, directory.Entry{Key: base + "a", Value: value("1")})
	watcher := observe(t, d, base, 0).ready(t)
	w.Stop(t)
	until.True(t, "unknown", func() bool { return !watcher.Known() })
	if !watcher.sees(base+"a", value("1"))() || len(watcher.Heard(directory.Delete)) != 0 {
		t.Error("what was known is gone")
	}
	if e := watcher.Heard(directory.Unavailable)[0]; !errors.Is(e.Err, directory.ErrUnavailable) {
		t.Errorf("the reason is %v", e.Err)
	}
	_, err := d.Get(t.Context(), base+"a")
	wantError(t, err, directory.ErrUnavailable, "get")
	_, err = d.Put(t.Context(), directory.Entry{Key: base + "a"})
	wantError(t, err, directory.ErrUnavailable, "put")
	if d.Metrics().Failures == 0 || d.Metrics().Outages != 1 {
		t.Errorf("counted %+v", d.Metrics())
	}
	w.Start(t)
	until.True(t, "known again", watcher.Known)
	if back := watcher.Heard(directory.Available); len(back) != 1 || len(back[0].Records) != 1 || back[0].Records[0].Key != base+"a" {
		t.Errorf("it came back with %+v", back)
	}
	put(t, d, directory.Entry{Key: base + "b", Value: value("2")})
	until.True(t, "the next change", watcher.sees(base+"b", value("2")))
}

func leasesOutlastOutages(t *testing.T, w *World) {
	owner, base := w.client(t), home(t)
	lease := grant(t, owner, directory.LeaseOptions{TTL: 2 * w.TTL})
	id := lease.ID()
	create(t, owner, directory.Entry{Key: base + "a", Value: value("1"), Lease: lease})
	watcher := observe(t, w.client(t), base, 0).ready(t)
	for _, away := range []time.Duration{0, lease.TTL() * 3 / 2} {
		w.Stop(t)
		time.Sleep(away)
		w.Start(t)
		renewed(t, owner)
		renewed(t, owner)
		if lease.ID() != id || lease.State() != directory.Held {
			t.Errorf("after %v away the lease went from %d to %d and is %v", away, id, lease.ID(), lease.State())
		}
	}
	until.True(t, "known again", watcher.Known)
	if heard := watcher.Heard(directory.Put, directory.Delete); len(heard) != 0 || !watcher.sees(base+"a", value("1"))() {
		t.Errorf("watchers heard %+v and believe in %+v", heard, watcher.Records())
	}
}

func lostDataIsFilledAgain(t *testing.T, w *World) {
	owner, base := w.client(t), home(t)
	lease := grant(t, owner, directory.LeaseOptions{TTL: w.TTL})
	create(t, owner, directory.Entry{Key: base + "leased", Value: value("1"), Lease: lease})
	put(t, owner, directory.Entry{Key: base + "lasting"})
	churn(t, owner, base+"churn/", 50) // so that the new directory counts from far below
	watcher := observe(t, w.client(t), base, 0).ready(t)
	quiet := observe(t, w.client(t), base+"nothing/", 0).ready(t)
	w.Stop(t)
	w.Wipe(t)
	w.Start(t)
	until.True(t, "seen gone", watcher.misses(base+"lasting"))
	until.True(t, "put back", watcher.sees(base+"leased", value("1")))
	if got, want := watcher.Records(), list(t, owner, base).Records; !slices.EqualFunc(got, want, sameRecord) {
		t.Errorf("the watcher believes in %+v, the directory holds %+v", got, want)
	}
	put(t, owner, directory.Entry{Key: base + "nothing/new", Value: value("2")})
	until.True(t, "heard by who was quiet", quiet.sees(base+"nothing/new", value("2")))
}

func watchBeginsDuringOutage(t *testing.T, w *World) {
	d, base := w.client(t), home(t)
	put(t, d, directory.Entry{Key: base + "a", Value: value("1")})
	w.Stop(t)
	late := w.client(t)
	watcher := observe(t, late, base, 0)
	until.True(t, "told of the outage", func() bool { return len(watcher.Heard(directory.Unavailable)) == 1 })
	_, err := late.Grant(t.Context(), directory.LeaseOptions{})
	wantError(t, err, directory.ErrUnavailable, "grant")
	w.Start(t)
	until.True(t, "available", func() bool { return len(watcher.Heard(directory.Available)) == 1 })
	until.True(t, "visible", watcher.sees(base+"a", value("1")))
}

// A directory that falls silent in the middle of everything keeps no caller
// longer than it wants to wait, and leaves nothing behind.
func everyWaitEnds(t *testing.T, w *World) {
	d, base := w.client(t), home(t)
	lease := grant(t, d, directory.LeaseOptions{TTL: w.TTL})
	create(t, d, directory.Entry{Key: base + "a", Lease: lease})
	observe(t, d, base, 0).ready(t)
	d.Reach(Silent)
	const patience = 300 * time.Millisecond
	began := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	calls := 0
	for op, err := range everyCall(ctx, d, base) {
		calls++
		wantError(t, err, context.DeadlineExceeded, op)
	}
	if took := time.Since(began); took > patience+w.slack {
		t.Errorf("%d calls with %v of patience took %v", calls, patience, took)
	}
	began = time.Now()
	_, err := d.Get(context.Background(), base+"a")
	wantError(t, err, directory.ErrUnavailable, "get")
	if took := time.Since(began); took > directory.DefaultCallTimeout+w.slack {
		t.Errorf("a caller without a limit waited %v", took)
	}
	began = time.Now()
	closing, cancelClosing := context.WithTimeout(context.Background(), patience)
	defer cancelClosing()
	if err := d.Close(closing); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("closing in silence: %v, want to hear that the lease was not revoked", err)
	}
	if took := time.Since(began); took > patience+w.slack {
		t.Errorf("closing took %v", took)
	}
}
