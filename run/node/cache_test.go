package node

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"meridian/internal/until"
	"meridian/keep/store"
	"meridian/member/directory"
	"meridian/member/directory/memdir"
	"meridian/serve/door"
)

// openCache starts an agent that keeps objects, and a client at its door.
func openCache(t *testing.T, directMap bool) (*Agent, *door.Store) {
	t.Helper()
	dir, err := os.MkdirTemp("", "mrd") // short enough for a socket's address
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	n := open(t, AgentOptions{Name: "a", StateDir: dir})
	if n.Directory, err = memdir.New(memdir.Options{}).Open(memdir.ClientOptions{}); err != nil {
		t.Fatal(err)
	}
	o := AgentOptions{
		Name: "a", StateDir: dir, Door: &Door{Socket: filepath.Join(dir, "door")},
		Store: &Store{Owner: &store.OwnerOptions{Bytes: 32 << 20}, Candidate: true, DirectMap: directMap},
	}
	if err := n.openStore(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	if err := n.Transceiver.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := n.openDoor(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	until.True(t, "it hears of itself by the directory", func() bool { return len(n.Store.Owners()) > 0 })
	client, err := door.OpenStore(t.Context(), door.StoreOptions{Socket: o.Door.Socket, Tenant: "t"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return n, client
}

func codeOf(err error) string {
	var p *door.Problem
	if errors.As(err, &p) {
		return p.Code
	}
	return fmt.Sprint(err)
}

// Objects of every size go through the door into the cache, and come back.
func TestCacheAtTheDoor(t *testing.T) {
	_, s := openCache(t, false)
	for _, size := range []int{1, 4 << 10, 64<<10 + 1, 256<<10 + 1, 3<<20 + 7} {
		key, value := fmt.Append(nil, "k", size), bytes.Repeat([]byte("0123456"), size/7+1)[:size]
		if err := s.Put(t.Context(), key, value, door.Wish{}); err != nil {
			t.Fatal(err)
		}
		if code := codeOf(s.Put(t.Context(), key, value, door.Wish{})); code != door.CodeExists {
			t.Errorf("put again: %s", code)
		}
		if got, err := s.Get(t.Context(), key); err != nil || !bytes.Equal(got, value) {
			t.Errorf("%d bytes: %d came, %v", size, len(got), err)
		}
		large := make([]byte, size+1000)
		if n, err := s.GetInto(t.Context(), key, large); err != nil || n != uint64(size) || !bytes.Equal(large[:n], value) {
			t.Errorf("%d bytes into more: %d, %v", size, n, err)
		}
		if size > 1 {
			if n, err := s.GetInto(t.Context(), key, large[:size-1]); codeOf(err) != door.CodeTooSmall || n != uint64(size) {
				t.Errorf("%d bytes into less: %d, %v", size, n, err)
			}
		}
		at, err := s.Locate(t.Context(), key, 0)
		if err != nil || at.Owner != "a" || at.SizeBytes != uint64(size) || at.Mapped || at.Checksum == 0 {
			t.Errorf("%+v, %v", at, err)
		}
	}
	present, err := s.Has(t.Context(), [][]byte{[]byte("k1"), []byte("x"), []byte("k4096")})
	if err != nil || !present[0] || present[1] || !present[2] {
		t.Errorf("%v, %v", present, err)
	}
	l, err := s.List(t.Context(), door.List{Prefix: []byte("k")})
	if err != nil || len(l.Objects) != 5 || len(l.Next) != 0 {
		t.Errorf("%+v, %v", l, err)
	}
	for after, pages := []byte(nil), 0; ; pages++ {
		l, err := s.List(t.Context(), door.List{Most: 2, After: after})
		if err != nil || len(l.Objects) > 2 || pages > 8 {
			t.Fatalf("page %d: %+v, %v", pages, l, err)
		}
		if after = l.Next; len(after) == 0 {
			break
		}
	}
	owners, err := s.Stats(t.Context())
	if err != nil || len(owners) != 1 || owners[0].Ready != 5 || !owners[0].Here || owners[0].ArenaBytes != 32<<20 {
		t.Errorf("%+v, %v", owners, err)
	}
	if err := s.Remove(t.Context(), []byte("k1")); err != nil {
		t.Error(err)
	}
	if _, err := s.Get(t.Context(), []byte("k1")); codeOf(err) != door.CodeMissing {
		t.Error(err)
	}
	if code := codeOf(s.Put(t.Context(), []byte("large"), make([]byte, 64<<20), door.Wish{})); code != door.CodeTooLarge {
		t.Errorf("more than all memory: %s", code)
	}
	if n, err := s.Evict(t.Context(), 0); err != nil || n != 4 {
		t.Errorf("%d left, %v", n, err)
	}
	if _, err := s.Map(t.Context()); codeOf(err) != door.CodeDenied {
		t.Errorf("the arena: %v", err)
	}
	absent := uint32(7)
	if code := codeOf(s.Put(t.Context(), []byte("k"), []byte("v"), door.Wish{Owner: &absent})); code != door.CodeUnavailable {
		t.Errorf("an owner that is not there: %s", code)
	}
}

// An object is written piece by piece, waited for, and found.
func TestCacheWriter(t *testing.T) {
	_, s := openCache(t, true)
	key, value := []byte("key"), bytes.Repeat([]byte("abcdefg"), 100_000)
	other, err := s.Open(t.Context(), []byte("other"), 100, door.Wish{})
	if err != nil || other.Mapped || s.Abort(t.Context(), []byte("other")) != nil {
		t.Fatalf("who does not map the arena is told to write there: %+v, %v", other, err)
	}
	arena, err := s.Map(t.Context())
	if err != nil || !arena.Writable || !arena.Current() {
		t.Fatal(err)
	}
	defer arena.File.Close()
	place, err := s.Open(t.Context(), key, uint64(len(value)), door.Wish{})
	if err != nil || !place.Mapped || place.Pages != 3 {
		t.Fatalf("%+v, %v", place, err)
	}
	for _, wait := range []time.Duration{0, 50 * time.Millisecond} {
		if _, err := s.Locate(t.Context(), key, wait); codeOf(err) != door.CodeNotReady {
			t.Errorf("while it is written: %v", err)
		}
	}
	if _, err := s.Locate(t.Context(), []byte("another"), 0); codeOf(err) != door.CodeMissing {
		t.Error(err)
	}
	if _, err := s.Get(t.Context(), key); codeOf(err) != door.CodeMissing {
		t.Error(err)
	}
	if code := codeOf(s.Put(t.Context(), key, value, door.Wish{})); code != door.CodeExists {
		t.Errorf("put while it is written: %s", code)
	}
	for at := 0; at < len(value); at += 300_000 {
		if err := s.Write(t.Context(), key, uint64(at), value[at:min(len(value), at+300_000)]); err != nil {
			t.Fatal(err)
		}
	}
	found := make(chan error, 1)
	go func() {
		_, err := s.Locate(t.Context(), key, 10*time.Second)
		found <- err
	}()
	if err := s.Commit(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	if err := <-found; err != nil {
		t.Errorf("who waited for it: %v", err)
	}
	if got, err := s.Get(t.Context(), key); err != nil || !bytes.Equal(got, value) {
		t.Errorf("%d bytes came, %v", len(got), err)
	}
	mapped := make([]byte, len(value))
	if _, err := arena.File.ReadAt(mapped, int64(place.PayloadOffset)); err != nil || !bytes.Equal(mapped, value) {
		t.Errorf("what lies in the arena is another: %v", err)
	}
}

// An owner that does not run now is preferred in vain; a number that none ever had is a
// mistake.
func TestRanksThatAreNotThere(t *testing.T) {
	n, s := openCache(t, false)
	ranks, err := n.Directory.Get(t.Context(), "store/ranks")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := n.Directory.Swap(t.Context(), directory.Entry{Key: ranks.Key, Value: []byte(`["a","restarts"]`)}, ranks.Revision); err != nil {
		t.Fatal(err)
	}
	restarts, none := uint32(1), uint32(2)
	if err := s.Put(t.Context(), []byte("k"), []byte("v"), door.Wish{Owner: &restarts}); err != nil {
		t.Errorf("an owner that restarts was preferred: %v", err)
	}
	if code := codeOf(s.Put(t.Context(), []byte("l"), []byte("v"), door.Wish{Owner: &none})); code != door.CodeUnavailable {
		t.Errorf("no owner has that number: %s", code)
	}
}
