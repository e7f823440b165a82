package directorytest

import (
	"context"
	"slices"
	"strconv"
	"testing"
	"time"

	"meridian/internal/until"
	"meridian/member/directory"
)

var watchChecks = []check{
	{"a watch begins with all there is", watchBeginsWithAll},
	{"a watch resumes without gap or repetition", watchResumes},
	{"a watch ends with its context", watchEndsWithContext},
	{"a slow watcher holds up no other", slowWatcherHoldsUpNobody},
	{"a revision larger than the queue arrives whole", largeRevisionArrivesWhole},
}

var compactionChecks = []check{
	{"a forgotten revision gives a resync", forgottenRevisionResyncs},
	{"a watcher that slept through a compaction misses no deletion", sleeperMissesNothing},
	{"a revision of the future gives a resync", futureRevisionResyncs},
}

func watchBeginsWithAll(t *testing.T, w *World) {
	d, base := w.client(t), home(t)
	put(t, d, directory.Entry{Key: base + "in/b", Value: value("2")})
	put(t, d, directory.Entry{Key: base + "in/a", Value: value("1")})
	put(t, d, directory.Entry{Key: base + "out/c"})
	watcher := observe(t, d, base+"in/", 0).ready(t)
	put(t, d, directory.Entry{Key: base + "out/d"})
	changed := put(t, d, directory.Entry{Key: base + "in/a", Value: value("3")})
	if err := d.Delete(t.Context(), base+"in/b", directory.Any); err != nil {
		t.Fatal(err)
	}
	until.True(t, "three events", func() bool {
		return len(watcher.Heard(directory.Resync, directory.Put, directory.Delete)) >= 3
	})
	heard := watcher.Heard(directory.Resync, directory.Put, directory.Delete)
	if first := heard[0]; first.Kind != directory.Resync || len(first.Records) != 2 || first.Records[0].Key != base+"in/a" || string(first.Records[1].Value) != "2" {
		t.Errorf("it began with %+v", first)
	}
	if e := heard[1]; e.Kind != directory.Put || e.Revision != changed.Revision || e.Record.Revision != changed.Revision || string(e.Record.Value) != "3" {
		t.Errorf("then came %+v", e)
	}
	if e := heard[2]; e.Kind != directory.Delete || e.Record.Key != base+"in/b" || e.Revision <= changed.Revision {
		t.Errorf("then came %+v", e)
	}
}

// step is what must be the same however a watch was begun.
type step struct {
	kind     directory.EventKind
	key      string
	value    string
	revision directory.Revision
}

func steps(events []directory.Event) []step {
	out := make([]step, len(events))
	for i, e := range events {
		out[i] = step{e.Kind, e.Record.Key, string(e.Record.Value), e.Revision}
	}
	return out
}

// churn makes n changes under base: creations, changes and deletions.
func churn(t *testing.T, d directory.Directory, base string, n int) {
	t.Helper()
	for i := range n {
		key := base + strconv.Itoa(i%7)
		if i%5 == 4 {
			if err := d.Delete(t.Context(), key, directory.Any); err == nil {
				continue
			}
		}
		put(t, d, directory.Entry{Key: key, Value: value("%d", i)})
	}
}

func watchResumes(t *testing.T, w *World) {
	const changes = 60
	d, base := w.client(t), home(t)
	begin := list(t, d, base).Revision
	watcher := observe(t, d, base, begin)
	churn(t, d, base, changes)
	until.True(t, "all changes", func() bool { return len(watcher.Heard(directory.Put, directory.Delete)) >= changes })
	all := steps(watcher.Heard(directory.Put, directory.Delete, directory.Resync))
	if len(all) != changes || !slices.IsSortedFunc(all, func(a, b step) int { return int(a.revision - b.revision) }) {
		t.Fatalf("%d changes came as %d events: %+v", changes, len(all), all)
	}
	late := w.client(t)
	for from := 0; from < changes; from += 7 {
		resumed := observe(t, late, base, all[from].revision)
		want := all[from+1:]
		until.True(t, "the rest", func() bool { return len(resumed.Heard(directory.Put, directory.Delete, directory.Resync)) >= len(want) })
		time.Sleep(20 * time.Millisecond) // for a repetition to show
		if got := steps(resumed.Heard(directory.Put, directory.Delete, directory.Resync)); !slices.Equal(got, want) {
			t.Errorf("resumed after %d: got %+v, want %+v", all[from].revision, got, want)
		}
	}
}

func watchEndsWithContext(t *testing.T, w *World) {
	d := w.client(t)
	ctx, cancel := context.WithCancel(t.Context())
	watch, err := d.Watch(ctx, home(t), 0)
	if err != nil {
		t.Fatal(err)
	}
	if e := <-watch.Events(); e.Kind != directory.Resync {
		t.Errorf("it began with %+v", e)
	}
	cancel()
	for range watch.Events() { // ends: the channel is closed
	}
	watch.Close() // and closing it again does nothing
	until.True(t, "forgotten", func() bool { return d.Metrics().Watches == 0 })
}

func slowWatcherHoldsUpNobody(t *testing.T, w *World) {
	const changes = 10 * directory.WatchQueue
	d, base := w.client(t), home(t)
	begin := list(t, d, base).Revision
	slow, err := d.Watch(t.Context(), base, begin)
	if err != nil {
		t.Fatal(err)
	}
	brisk := observe(t, d, base, begin)
	churn(t, d, base, changes)
	until.True(t, "all changes", func() bool { return len(brisk.Heard(directory.Put, directory.Delete)) >= changes })
	until.True(t, "lapsed", func() bool { return d.Metrics().Lapses > 0 })
	var late []directory.Event
	for len(late) < changes {
		select {
		case e := <-slow.Events():
			late = append(late, e)
		case <-time.After(eventually):
			t.Fatalf("the slow watcher got %d of %d events", len(late), changes)
		}
	}
	if got, want := steps(late), steps(brisk.Heard(directory.Put, directory.Delete)); !slices.Equal(got, want) {
		t.Errorf("the slow watcher heard something else than the brisk one")
	}
	slow.Close()
}

func largeRevisionArrivesWhole(t *testing.T, w *World) {
	const records = 3 * directory.WatchQueue
	d, base := w.client(t), home(t)
	lease := grant(t, d, directory.LeaseOptions{TTL: lasting})
	for i := range records {
		create(t, d, directory.Entry{Key: base + strconv.Itoa(i), Lease: lease})
	}
	watch, err := d.Watch(t.Context(), base, list(t, d, base).Revision)
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Close()
	if err := lease.Revoke(t.Context()); err != nil {
		t.Fatal(err)
	}
	until.True(t, "a full queue", func() bool { return len(watch.Events()) == directory.WatchQueue })
	time.Sleep(50 * time.Millisecond) // the rest must not have found another way
	gone := make(map[string]bool)
	for len(gone) < records {
		select {
		case e := <-watch.Events():
			if e.Kind != directory.Delete || gone[e.Record.Key] {
				t.Fatalf("heard %+v", e)
			}
			gone[e.Record.Key] = true
		case <-time.After(eventually):
			t.Fatalf("%d of %d deletions were heard", len(gone), records)
		}
	}
}

func forgottenRevisionResyncs(t *testing.T, w *World) {
	d, base := w.client(t), home(t)
	begin := list(t, d, base).Revision
	put(t, d, directory.Entry{Key: base + "gone"})
	put(t, d, directory.Entry{Key: base + "stays", Value: value("1")})
	if err := d.Delete(t.Context(), base+"gone", directory.Any); err != nil {
		t.Fatal(err)
	}
	w.Compact(t)
	watcher := observe(t, d, base, begin).ready(t)
	put(t, d, directory.Entry{Key: base + "new", Value: value("2")})
	until.True(t, "the next change", watcher.sees(base+"new", value("2")))
	heard := watcher.Heard(directory.Resync, directory.Put, directory.Delete)
	if len(heard) != 2 || heard[0].Kind != directory.Resync || len(heard[0].Records) != 1 || heard[0].Records[0].Key != base+"stays" {
		t.Errorf("heard %+v, want a resync with what stays, then the change", heard)
	}
}

func sleeperMissesNothing(t *testing.T, w *World) {
	d, base := w.client(t), home(t)
	put(t, d, directory.Entry{Key: base + "doomed"})
	watch, err := d.Watch(t.Context(), base, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Close()
	var view directory.View
	view.Apply(<-watch.Events())
	churn(t, d, base, 4*directory.WatchQueue)
	until.True(t, "asleep", func() bool { return d.Metrics().Lapses > 0 })
	if err := d.Delete(t.Context(), base+"doomed", directory.Any); err != nil {
		t.Fatal(err)
	}
	w.Compact(t)
	last := put(t, d, directory.Entry{Key: base + "last"})
	resyncs := 0
	for at := directory.Revision(0); at < last.Revision; {
		select {
		case e := <-watch.Events():
			view.Apply(e)
			at = max(at, e.Revision)
			if e.Kind == directory.Resync {
				resyncs++
			}
		case <-time.After(eventually):
			t.Fatalf("the watch stopped at %d of %d", at, last.Revision)
		}
	}
	if _, has := view.Get(base + "doomed"); has || resyncs != 1 {
		t.Errorf("after %d resyncs the sleeper believes in the deleted record: %v", resyncs, has)
	}
	if got, want := view.Records(), list(t, d, base).Records; !slices.EqualFunc(got, want, sameRecord) {
		t.Errorf("the sleeper believes in %+v, the directory holds %+v", got, want)
	}
}

func sameRecord(a, b directory.Record) bool {
	return a.Key == b.Key && string(a.Value) == string(b.Value) && a.Revision == b.Revision && a.Lease == b.Lease
}

func futureRevisionResyncs(t *testing.T, w *World) {
	d, base := w.client(t), home(t)
	r := put(t, d, directory.Entry{Key: base + "a", Value: value("1")})
	watcher := observe(t, d, base, r.Revision+1000).ready(t)
	if !watcher.sees(base+"a", value("1"))() {
		t.Errorf("heard %+v", watcher.Heard(directory.Resync))
	}
}
