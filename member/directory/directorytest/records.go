package directorytest

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"meridian/member/directory"
)

var recordChecks = []check{
	{"records live and die", recordsLiveAndDie},
	{"a prefix is whole segments", prefixIsWholeSegments},
	{"values belong to their callers", valuesBelongToCallers},
	{"swap and delete at a revision", swapAndDeleteAtRevision},
	{"a write that depends on another record", writeDependsOnRecord},
	{"bad arguments are refused", badArgumentsAreRefused},
	{"an ended context ends every call", endedContextEndsCalls},
	{"a closed directory says so", closedDirectorySaysSo},
}

func recordsLiveAndDie(t *testing.T, w *World) {
	d, base := w.client(t), home(t)
	key := base + "a"
	_, err := d.Get(t.Context(), key)
	wantError(t, err, directory.ErrNotFound, "get")

	created := create(t, d, directory.Entry{Key: key, Value: value("one")})
	standing, err := d.Create(t.Context(), directory.Entry{Key: key, Value: value("two")})
	wantError(t, err, directory.ErrExists, "create")
	if standing.Revision != created.Revision || string(standing.Value) != "one" {
		t.Errorf("with ErrExists came %+v, want the record that stands there", standing)
	}

	changed := put(t, d, directory.Entry{Key: key, Value: value("three")})
	if changed.Revision <= created.Revision {
		t.Errorf("revision %d came after %d", changed.Revision, created.Revision)
	}
	got, err := d.Get(t.Context(), key)
	if err != nil || got.Key != key || string(got.Value) != "three" || got.Revision != changed.Revision || got.Lease != 0 {
		t.Errorf("got %+v, %v, want what was put at %d", got, err, changed.Revision)
	}
	if err := d.Delete(t.Context(), key, directory.Any); err != nil {
		t.Fatal(err)
	}
	wantError(t, d.Delete(t.Context(), key, directory.Any), directory.ErrNotFound, "delete")
	if s := list(t, d, base); len(s.Records) != 0 || s.Revision <= changed.Revision {
		t.Errorf("after the deletion the list is %+v", s)
	}

	put(t, d, directory.Entry{Key: base + "empty"})
	every := make([]byte, directory.MaxValueBytes)
	for i := range every {
		every[i] = byte(i)
	}
	put(t, d, directory.Entry{Key: base + "full", Value: every})
	s := list(t, d, base)
	if len(s.Records) != 2 || len(s.Records[0].Value) != 0 || !bytes.Equal(s.Records[1].Value, every) {
		t.Errorf("an empty and a full value did not survive")
	}
}

func prefixIsWholeSegments(t *testing.T, w *World) {
	d, base := w.client(t), home(t)
	for _, name := range []string{"b/2", "a/x", "b/10", "b-other/1", "b", "b/c/deep"} {
		put(t, d, directory.Entry{Key: base + name, Value: value("%s", name)})
	}
	var names []string
	for _, r := range list(t, d, base+"b/").Records {
		names = append(names, strings.TrimPrefix(r.Key, base))
	}
	if want := []string{"b/10", "b/2", "b/c/deep"}; !slices.Equal(names, want) {
		t.Errorf("under b/ there is %q, want %q", names, want)
	}
	if all := list(t, d, ""); len(all.Records) < 6 {
		t.Errorf("everything is %d records, at least 6 were put", len(all.Records))
	}
}

func valuesBelongToCallers(t *testing.T, w *World) {
	d, key := w.client(t), home(t)+"a"
	mine := value("mine")
	put(t, d, directory.Entry{Key: key, Value: mine})
	copy(mine, "XXXX")
	got, err := d.Get(t.Context(), key)
	if err != nil || string(got.Value) != "mine" {
		t.Fatalf("got %q, %v after the caller changed its slice", got.Value, err)
	}
	copy(got.Value, "YYYY")
	if again, err := d.Get(t.Context(), key); err != nil || string(again.Value) != "mine" {
		t.Errorf("got %q, %v after a reader changed its slice", again.Value, err)
	}
}

func swapAndDeleteAtRevision(t *testing.T, w *World) {
	d, key := w.client(t), home(t)+"a"
	first := create(t, d, directory.Entry{Key: key, Value: value("1")})
	second, err := d.Swap(t.Context(), directory.Entry{Key: key, Value: value("2")}, first.Revision)
	if err != nil {
		t.Fatal(err)
	}
	standing, err := d.Swap(t.Context(), directory.Entry{Key: key, Value: value("3")}, first.Revision)
	wantError(t, err, directory.ErrChanged, "swap")
	if standing.Revision != second.Revision || string(standing.Value) != "2" {
		t.Errorf("with ErrChanged came %+v, want the record that stands there", standing)
	}
	wantError(t, d.Delete(t.Context(), key, first.Revision), directory.ErrChanged, "delete")
	if err := d.Delete(t.Context(), key, second.Revision); err != nil {
		t.Fatal(err)
	}
	standing, err = d.Swap(t.Context(), directory.Entry{Key: key, Value: value("4")}, second.Revision)
	wantError(t, err, directory.ErrChanged, "swap")
	if standing.Key != "" {
		t.Errorf("a deleted record stands: %+v", standing)
	}
	_, err = d.Swap(t.Context(), directory.Entry{Key: key}, 0)
	wantError(t, err, directory.ErrInvalid, "swap")
	wantError(t, d.Delete(t.Context(), key, -1), directory.ErrInvalid, "delete")
}

// A write that depends on a record counts only while that stands as it was, whatever
// is at the key itself.
func writeDependsOnRecord(t *testing.T, w *World) {
	d, base := w.client(t), home(t)
	term := create(t, d, directory.Entry{Key: base + "leader", Value: value("a")})
	entry := directory.Entry{Key: base + "mark", Value: value("1"), While: directory.Guard{Key: term.Key, Revision: term.Revision}}
	first := create(t, d, entry)
	_, err := d.Create(t.Context(), entry)
	wantError(t, err, directory.ErrExists, "create")
	second, err := d.Swap(t.Context(), entry, first.Revision)
	if err != nil {
		t.Fatal(err)
	}
	_, err = d.Swap(t.Context(), entry, first.Revision)
	wantError(t, err, directory.ErrChanged, "swap")

	refused := func() {
		t.Helper()
		late := entry
		_, err := d.Swap(t.Context(), late, second.Revision)
		wantError(t, err, directory.ErrDeposed, "swap")
		_, err = d.Put(t.Context(), late)
		wantError(t, err, directory.ErrDeposed, "put")
		late.Key = base + "another"
		_, err = d.Create(t.Context(), late)
		wantError(t, err, directory.ErrDeposed, "create")
	}
	put(t, d, directory.Entry{Key: term.Key, Value: value("b")})
	refused()
	if err := d.Delete(t.Context(), term.Key, directory.Any); err != nil {
		t.Fatal(err)
	}
	refused()
	if s := list(t, d, base); len(s.Records) != 1 || s.Records[0].Revision != second.Revision {
		t.Errorf("what was refused was written: %+v", s.Records)
	}
}

func badArgumentsAreRefused(t *testing.T, w *World) {
	d, other, base := w.client(t), w.client(t), home(t)
	before := list(t, d, base)
	for _, key := range []string{
		"", "/", "/a", "a/", "a//b", ".", "..", "a/../b", "a/./b", "../a", "a b", "a\x00b", "a\nb", "é", "a\\b", "a*", "\xff",
		strings.Repeat("k", directory.MaxKeyBytes+1),
	} {
		_, err := d.Get(t.Context(), key)
		wantError(t, err, directory.ErrInvalid, "check key")
		_, err = d.Put(t.Context(), directory.Entry{Key: key})
		wantError(t, err, directory.ErrInvalid, "check key")
		wantError(t, d.Delete(t.Context(), key, directory.Any), directory.ErrInvalid, "check key")
	}
	for _, prefix := range []string{"/", "a", "a//", "../", "a/../", "a b/"} {
		_, err := d.List(t.Context(), prefix)
		wantError(t, err, directory.ErrInvalid, "check prefix")
		_, err = d.Watch(t.Context(), prefix, 0)
		wantError(t, err, directory.ErrInvalid, "check prefix")
	}
	_, err := d.Create(t.Context(), directory.Entry{Key: base + "big", Value: make([]byte, directory.MaxValueBytes+1)})
	wantError(t, err, directory.ErrInvalid, "check value")
	_, err = d.Watch(t.Context(), base, -1)
	wantError(t, err, directory.ErrInvalid, "watch")
	_, err = d.Grant(t.Context(), directory.LeaseOptions{TTL: -1})
	wantError(t, err, directory.ErrInvalid, "grant")
	_, err = d.Put(t.Context(), directory.Entry{Key: base + "a", Lease: grant(t, other, directory.LeaseOptions{TTL: w.TTL})})
	wantError(t, err, directory.ErrInvalid, "check lease")
	_, err = d.Put(t.Context(), directory.Entry{Key: base + "a", While: directory.Guard{Key: base + "b"}})
	wantError(t, err, directory.ErrInvalid, "check guard")
	_, err = d.Put(t.Context(), directory.Entry{Key: base + "a", While: directory.Guard{Key: "/", Revision: 1}})
	wantError(t, err, directory.ErrInvalid, "check key")
	if after := list(t, d, base); len(after.Records) != len(before.Records) {
		t.Errorf("a refused write left %+v", after.Records)
	}
}

// everyCall makes each call once and says what it answered.
func everyCall(ctx context.Context, d directory.Directory, base string) map[string]error {
	errs := make(map[string]error)
	_, errs["get"] = d.Get(ctx, base+"a")
	_, errs["list"] = d.List(ctx, base)
	_, errs["create"] = d.Create(ctx, directory.Entry{Key: base + "a"})
	_, errs["put"] = d.Put(ctx, directory.Entry{Key: base + "a"})
	_, errs["swap"] = d.Swap(ctx, directory.Entry{Key: base + "a"}, 1)
	errs["delete"] = d.Delete(ctx, base+"a", directory.Any)
	_, errs["grant"] = d.Grant(ctx, directory.LeaseOptions{})
	return errs
}

func endedContextEndsCalls(t *testing.T, w *World) {
	d, base := w.client(t), home(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	reason := errors.New("the caller has gone home")
	cancel(reason)
	for op, err := range everyCall(ctx, d, base) {
		wantError(t, err, reason, op)
	}
	_, err := d.Watch(ctx, base, 0)
	wantError(t, err, reason, "watch")
	if s := list(t, d, base); len(s.Records) != 0 {
		t.Errorf("a call that was given up before it began wrote %+v", s.Records)
	}
}

func closedDirectorySaysSo(t *testing.T, w *World) {
	d, base := w.client(t), home(t)
	lease := grant(t, d, directory.LeaseOptions{TTL: w.TTL})
	watch, err := d.Watch(context.Background(), base, 0)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // closing again does nothing
		if err := d.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for op, err := range everyCall(t.Context(), d, base) {
		wantError(t, err, directory.ErrClosed, op)
	}
	_, err = d.Watch(t.Context(), base, 0)
	wantError(t, err, directory.ErrClosed, "watch")
	for range watch.Events() { // ends: the channel is closed
	}
	if lease.State() != directory.Revoked || lease.Revoke(t.Context()) != nil {
		t.Errorf("the lease of a closed directory is %v", lease.State())
	}
}
