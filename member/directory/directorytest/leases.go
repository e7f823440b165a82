package directorytest

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"meridian/internal/until"
	"meridian/member/directory"
)

var leaseChecks = []check{
	{"a kept lease lives on", keptLeaseLivesOn},
	{"a dead owner's records vanish", deadOwnerVanishes},
	{"a revoked lease is seen at once", revokedLeaseIsSeenAtOnce},
	{"closing revokes", closingRevokes},
	{"an owner that is back in time keeps its lease", backInTime},
	{"an owner that is back too late puts its records back", backTooLate},
	{"records that were given up stay away", givenUpStaysAway},
	{"what is put back is what was there", putBackIsWhatWasThere},
	{"an owner whose key was taken has lost", keyTaken},
	{"an owner that surrenders has lost", surrender},
	{"a write meets an expired lease", writeMeetsExpiry},
}

func keptLeaseLivesOn(t *testing.T, w *World) {
	owner, base := w.client(t), home(t)
	lease := grant(t, owner, directory.LeaseOptions{TTL: w.TTL})
	if lease.TTL() < w.TTL || lease.ID() == 0 {
		t.Errorf("asked for %v, granted %v as %d", w.TTL, lease.TTL(), lease.ID())
	}
	if r := create(t, owner, directory.Entry{Key: base + "a", Lease: lease}); r.Lease != lease.ID() {
		t.Errorf("the record is under %d, the lease is %d", r.Lease, lease.ID())
	}
	watcher := observe(t, w.client(t), base, 0).ready(t)
	time.Sleep(lease.TTL() * 3 / 2)
	renewed(t, owner)
	if heard := watcher.Heard(directory.Delete, directory.Put); len(heard) != 0 {
		t.Errorf("while it was kept: %+v", heard)
	}
	if m := owner.Metrics(); lease.State() != directory.Held || lease.Err() != nil || m.Restored != 0 {
		t.Errorf("it is %v, %v after %+v", lease.State(), lease.Err(), m)
	}
}

// renewed waits until an owner's only lease is renewed once more.
func renewed(t *testing.T, owner Client) {
	t.Helper()
	before := owner.Metrics().Renewals
	until.True(t, "renewed", func() bool { return owner.Metrics().Renewals > before })
}

func deadOwnerVanishes(t *testing.T, w *World) {
	owner, base := w.client(t), home(t)
	lease := grant(t, owner, directory.LeaseOptions{TTL: w.TTL})
	create(t, owner, directory.Entry{Key: base + "leased", Lease: lease})
	put(t, owner, directory.Entry{Key: base + "lasting"})
	watcher := observe(t, w.client(t), base, 0).ready(t)
	owner.Reach(Refused)
	refused := time.Now()
	until.Within(lease.TTL()+w.slack).True(t, "seen dead", watcher.misses(base+"leased"))
	if took := time.Since(refused); w.keepsTime() && took < lease.TTL()/3 { // it was renewed at most a third of its time before
		t.Errorf("a lease of %v was seen dead after %v", lease.TTL(), took)
	}
	until.True(t, "doubtful", func() bool { return lease.State() == directory.Doubtful })
	if !watcher.sees(base+"lasting", nil)() {
		t.Error("a record without a lease went too")
	}
}

func revokedLeaseIsSeenAtOnce(t *testing.T, w *World) {
	owner, base := w.client(t), home(t)
	lease := grant(t, owner, directory.LeaseOptions{})
	if lease.TTL() != directory.DefaultTTL {
		t.Errorf("the default is %v, want %v", lease.TTL(), directory.DefaultTTL)
	}
	if err := lease.Revoke(t.Context()); err != nil {
		t.Fatal(err)
	}
	lease = grant(t, owner, directory.LeaseOptions{TTL: lasting})
	for _, name := range []string{"a", "b", "c"} {
		create(t, owner, directory.Entry{Key: base + name, Lease: lease})
	}
	watcher := observe(t, w.client(t), base, 0).ready(t)
	if err := lease.Revoke(t.Context()); err != nil {
		t.Fatal(err)
	}
	until.Within(w.slack).True(t, "seen gone", func() bool { return len(watcher.Records()) == 0 })
	gone := watcher.Heard(directory.Delete)
	if len(gone) != 3 || gone[0].Revision != gone[2].Revision {
		t.Errorf("one lease ended as %+v, want three deletions at one revision", gone)
	}
	if err := lease.Revoke(t.Context()); err != nil || lease.State() != directory.Revoked {
		t.Errorf("revoked again: %v, %v", err, lease.State())
	}
	_, err := owner.Put(t.Context(), directory.Entry{Key: base + "d", Lease: lease})
	wantError(t, err, directory.ErrLeaseLost, "put")
	select {
	case <-lease.Lost():
		t.Error("a revoked lease is not a lost one")
	default:
	}
}

func closingRevokes(t *testing.T, w *World) {
	owner, base := w.client(t), home(t)
	create(t, owner, directory.Entry{Key: base + "a", Lease: grant(t, owner, directory.LeaseOptions{TTL: lasting})})
	watcher := observe(t, w.client(t), base, 0).ready(t)
	if err := owner.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	until.Within(w.slack).True(t, "seen gone", watcher.misses(base+"a"))
}

func backInTime(t *testing.T, w *World) {
	owner, base := w.client(t), home(t)
	lease := grant(t, owner, directory.LeaseOptions{TTL: 3 * w.TTL})
	create(t, owner, directory.Entry{Key: base + "a", Lease: lease})
	watcher := observe(t, w.client(t), base, 0).ready(t)
	id := lease.ID()
	owner.Reach(Refused)
	time.Sleep(lease.TTL() * 2 / 5) // more than a third: one renewal at least fails
	owner.Reach(Through)
	renewed(t, owner)
	if heard := watcher.Heard(directory.Delete, directory.Put); len(heard) != 0 || lease.ID() != id || lease.State() != directory.Held {
		t.Errorf("the lease went from %d to %d, is %v, and watchers heard %+v", id, lease.ID(), lease.State(), heard)
	}
}

// expired cuts the owner off until every watcher has seen its record go.
func (w *World) expired(t *testing.T, owner Client, lease *directory.Lease, watcher *Observer, key string) {
	t.Helper()
	owner.Reach(Refused)
	until.Within(lease.TTL()+w.slack).True(t, "seen dead", watcher.misses(key))
}

func backTooLate(t *testing.T, w *World) {
	owner, base := w.client(t), home(t)
	lease := grant(t, owner, directory.LeaseOptions{TTL: w.TTL})
	create(t, owner, directory.Entry{Key: base + "a", Value: value("first"), Lease: lease})
	put(t, owner, directory.Entry{Key: base + "a", Value: value("latest"), Lease: lease})
	create(t, owner, directory.Entry{Key: base + "b", Value: value("other"), Lease: lease})
	watcher := observe(t, w.client(t), base, 0).ready(t)
	id := lease.ID()
	w.expired(t, owner, lease, watcher, base+"a")
	owner.Reach(Through)
	until.True(t, "put back", watcher.sees(base+"a", value("latest")))
	until.True(t, "put back", watcher.sees(base+"b", value("other")))
	until.True(t, "held", func() bool { return lease.State() == directory.Held })
	if lease.ID() == id || owner.Metrics().Restored == 0 {
		t.Errorf("the lease is still %d, %+v", lease.ID(), owner.Metrics())
	}
	for _, r := range watcher.Records() {
		if r.Lease != lease.ID() {
			t.Errorf("%s was put back under %d, the lease is %d", r.Key, r.Lease, lease.ID())
		}
	}
	w.expired(t, owner, lease, watcher, base+"a") // what was put back is leased again
}

func givenUpStaysAway(t *testing.T, w *World) {
	owner, base := w.client(t), home(t)
	lease := grant(t, owner, directory.LeaseOptions{TTL: w.TTL})
	for _, name := range []string{"kept", "deleted", "moved"} {
		create(t, owner, directory.Entry{Key: base + name, Value: value("leased"), Lease: lease})
	}
	if err := owner.Delete(t.Context(), base+"deleted", directory.Any); err != nil {
		t.Fatal(err)
	}
	put(t, owner, directory.Entry{Key: base + "moved", Value: value("lasting")})
	other := w.client(t)
	watcher := observe(t, other, base, 0).ready(t)
	w.expired(t, owner, lease, watcher, base+"kept")
	if err := other.Delete(t.Context(), base+"moved", directory.Any); err != nil {
		t.Errorf("a record that was moved from the lease went with it: %v", err)
	}
	owner.Reach(Through)
	until.True(t, "put back", watcher.sees(base+"kept", value("leased")))
	time.Sleep(lease.TTL())
	if names := list(t, other, base).Records; len(names) != 1 {
		t.Errorf("put back were %+v, want only what the lease still answers for", names)
	}
}

// Writers of one process race for the same keys; the writer that came last in the
// directory must be the one whom the lease remembers.
func putBackIsWhatWasThere(t *testing.T, w *World) {
	owner, base := w.client(t), home(t)
	lease := grant(t, owner, directory.LeaseOptions{TTL: w.TTL})
	race([]Client{owner}, func(d directory.Directory, name string) {
		for i := range 40 {
			entry := directory.Entry{Key: base + strconv.Itoa(i%5), Value: value("%s at %d", name, i), Lease: lease}
			if i%4 == 3 {
				entry.Lease = nil
			}
			_, err := d.Put(t.Context(), entry)
			if i%3 == 2 {
				err = d.Delete(t.Context(), entry.Key, directory.Any)
			}
			if err != nil && !errors.Is(err, directory.ErrNotFound) {
				t.Error(err)
			}
		}
	})
	create(t, owner, directory.Entry{Key: base + "last", Lease: lease})
	other := w.client(t)
	before := list(t, other, base).Records
	watcher := observe(t, other, base, 0).ready(t)
	w.expired(t, owner, lease, watcher, base+"last")
	owner.Reach(Through)
	until.True(t, "put back", watcher.sees(base+"last", nil)) // the last of all keys
	after := list(t, other, base).Records
	if !slices.EqualFunc(before, after, func(a, b directory.Record) bool {
		return a.Key == b.Key && string(a.Value) == string(b.Value) && (a.Lease == 0) == (b.Lease == 0)
	}) {
		t.Errorf("before the expiry there was %+v, after it %+v", before, after)
	}
}

func keyTaken(t *testing.T, w *World) {
	owner, base := w.client(t), home(t)
	lease := grant(t, owner, directory.LeaseOptions{TTL: w.TTL})
	for _, name := range []string{"a", "b", "c"} {
		create(t, owner, directory.Entry{Key: base + name, Value: value("old incarnation"), Lease: lease})
	}
	other := w.client(t)
	watcher := observe(t, other, base, 0).ready(t)
	w.expired(t, owner, lease, watcher, base+"c")
	create(t, other, directory.Entry{Key: base + "b", Value: value("new incarnation")})
	owner.Reach(Through)
	select {
	case <-lease.Lost():
	case <-time.After(eventually):
		t.Fatal("the owner does not know that it has lost")
	}
	if err := lease.Err(); !errors.Is(err, directory.ErrLeaseLost) || !errors.Is(err, directory.ErrExists) || !strings.Contains(err.Error(), base+"b") {
		t.Errorf("lost because of %v", err)
	}
	_, err := owner.Put(t.Context(), directory.Entry{Key: base + "d", Lease: lease})
	wantError(t, err, directory.ErrLeaseLost, "put")
	until.Within(lease.TTL()+w.slack).True(t, "only the new incarnation", func() bool {
		s := list(t, other, base)
		return len(s.Records) == 1 && string(s.Records[0].Value) == "new incarnation"
	})
	if err := lease.Revoke(t.Context()); err != nil || lease.State() != directory.Lost {
		t.Errorf("revoking a lost lease: %v, %v", err, lease.State())
	}
}

func surrender(t *testing.T, w *World) {
	owner, base := w.client(t), home(t)
	lease := grant(t, owner, directory.LeaseOptions{TTL: w.TTL, OnExpiry: directory.Surrender})
	create(t, owner, directory.Entry{Key: base + "a", Lease: lease})
	watcher := observe(t, w.client(t), base, 0).ready(t)
	w.expired(t, owner, lease, watcher, base+"a")
	owner.Reach(Through)
	select {
	case <-lease.Lost():
	case <-time.After(eventually):
		t.Fatal("the owner does not know that it has lost")
	}
	time.Sleep(lease.TTL())
	if heard := watcher.Heard(directory.Put); len(heard) != 0 || lease.State() != directory.Lost || !errors.Is(lease.Err(), directory.ErrLeaseLost) {
		t.Errorf("%v, %v; watchers heard %+v", lease.State(), lease.Err(), heard)
	}
}

// A caller that writes before the lease's own goroutine knows of the expiry
// must neither fail nor leave a record without its lease.
func writeMeetsExpiry(t *testing.T, w *World) {
	owner, base := w.client(t), home(t)
	lease := grant(t, owner, directory.LeaseOptions{TTL: w.TTL})
	create(t, owner, directory.Entry{Key: base + "a", Value: value("1"), Lease: lease})
	watcher := observe(t, w.client(t), base, 0).ready(t)
	w.expired(t, owner, lease, watcher, base+"a")
	owner.Reach(Through)
	var err error
	until.True(t, "written", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), eventually)
		defer cancel()
		_, err = owner.Put(ctx, directory.Entry{Key: base + "a", Value: value("2"), Lease: lease})
		return !errors.Is(err, directory.ErrUnavailable) // the network needs its time
	})
	if err != nil {
		t.Fatal(err)
	}
	until.True(t, "visible", watcher.sees(base+"a", value("2")))
	if r, err := owner.Get(t.Context(), base+"a"); err != nil || r.Lease != lease.ID() || string(r.Value) != "2" {
		t.Errorf("got %+v, %v, want 2 under lease %d", r, err, lease.ID())
	}
}
