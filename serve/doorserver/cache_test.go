package doorserver_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"meridian/serve/door"
	"meridian/serve/doorserver"
)

// fakeCache is an object cache in a map. Where hold is set, puts and gets of
// objects whose key begins with "slow" wait for it, or for their context; those of
// "stuck" wait for it alone, as a copy does that cannot be stopped.
type fakeCache struct {
	hold chan struct{}

	mu      sync.Mutex
	objects map[string][]byte
	open    map[string]bool
	waiting int
	aborted int
	asked   int
}

func newFakeCache() *fakeCache {
	return &fakeCache{objects: make(map[string][]byte), open: make(map[string]bool)}
}

func nameOf(o doorserver.Object) string {
	return fmt.Sprintf("%d %s%s", len(o.Tenant), o.Tenant, o.Key)
}

func refusal(code string) error { return &door.Problem{Code: code, Message: "the fake says so"} }

func (f *fakeCache) wait(ctx context.Context, o doorserver.Object) error {
	f.count(&f.asked, 1)
	stuck := bytes.HasPrefix(o.Key, []byte("stuck"))
	if f.hold == nil || !stuck && !bytes.HasPrefix(o.Key, []byte("slow")) {
		return ctx.Err()
	}
	f.count(&f.waiting, 1)
	defer f.count(&f.waiting, -1)
	if stuck {
		<-f.hold
		return nil
	}
	select {
	case <-f.hold:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (f *fakeCache) opened() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.open)
}

func (f *fakeCache) count(what *int, by int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	*what += by
}

func (f *fakeCache) read(what *int) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return *what
}

func copyOut(from doorserver.Memory) ([]byte, error) {
	if from.Section == nil {
		return bytes.Clone(from.Bytes), nil
	}
	value := make([]byte, from.Size())
	return value, from.Section.ReadAt(value, 0)
}

// admit checks a size as a cache does, which has no more room than this.
func admit(size uint64) error {
	if size > 1<<30 {
		return refusal(door.CodeTooLarge)
	}
	return nil
}

func (f *fakeCache) Put(ctx context.Context, o doorserver.Object, from doorserver.Memory, _ door.Wish) error {
	if err := f.wait(ctx, o); err != nil {
		return err
	}
	if err := admit(from.Size()); err != nil {
		return err
	}
	value, err := copyOut(from)
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.objects[nameOf(o)] != nil || f.open[nameOf(o)] {
		return refusal(door.CodeExists)
	}
	f.objects[nameOf(o)] = value
	return nil
}

func (f *fakeCache) Get(ctx context.Context, o doorserver.Object, into doorserver.Memory) (uint64, error) {
	if err := f.wait(ctx, o); err != nil {
		return 0, err
	}
	f.mu.Lock()
	value := f.objects[nameOf(o)]
	f.mu.Unlock()
	switch size := uint64(len(value)); {
	case value == nil:
		return 0, refusal(door.CodeMissing)
	case size > into.Size():
		return size, refusal(door.CodeTooSmall)
	case into.Section != nil:
		return size, into.Section.WriteAt(value, 0)
	default:
		return uint64(copy(into.Bytes, value)), nil
	}
}

func (f *fakeCache) Remove(_ context.Context, o doorserver.Object) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.objects[nameOf(o)] == nil {
		return refusal(door.CodeMissing)
	}
	delete(f.objects, nameOf(o))
	return nil
}

type fakeWriter struct {
	cache  *fakeCache
	object doorserver.Object
	value  []byte
}

func (f *fakeCache) Open(_ context.Context, o doorserver.Object, size uint64, _ door.Wish, _ bool) (doorserver.Writer, error) {
	if err := admit(size); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.objects[nameOf(o)] != nil || f.open[nameOf(o)] {
		return nil, refusal(door.CodeExists)
	}
	f.open[nameOf(o)] = true
	return &fakeWriter{f, o, make([]byte, size)}, nil
}

func (w *fakeWriter) Place() door.Place {
	return door.Place{Owner: "n", SizeBytes: uint64(len(w.value)), PageSize: 256 << 10, Pages: 1, Name: []byte(nameOf(w.object))}
}

func (w *fakeWriter) Write(_ context.Context, offset uint64, from doorserver.Memory) error {
	value, err := copyOut(from)
	copy(w.value[offset:], value)
	return err
}

func (w *fakeWriter) end() *fakeCache {
	w.cache.mu.Lock()
	delete(w.cache.open, nameOf(w.object))
	return w.cache
}

func (w *fakeWriter) Commit(context.Context) error {
	f := w.end()
	defer f.mu.Unlock()
	f.objects[nameOf(w.object)] = w.value
	return nil
}

func (w *fakeWriter) Abort(context.Context) error {
	f := w.end()
	defer f.mu.Unlock()
	f.aborted++
	return nil
}

func (f *fakeCache) Locate(_ context.Context, o doorserver.Object, _ time.Duration) (door.Place, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch value := f.objects[nameOf(o)]; {
	case value != nil:
		return (&fakeWriter{f, o, value}).Place(), nil
	case f.open[nameOf(o)]:
		return door.Place{}, refusal(door.CodeNotReady)
	}
	return door.Place{}, refusal(door.CodeMissing)
}

func (f *fakeCache) Has(_ context.Context, tenant string, keys [][]byte) ([]bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	present := make([]bool, len(keys))
	for i, key := range keys {
		present[i] = f.objects[nameOf(doorserver.Object{Tenant: tenant, Key: key})] != nil
	}
	return present, nil
}

func (f *fakeCache) List(_ context.Context, l door.List) (listing door.Listing, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	prefix := nameOf(doorserver.Object{Tenant: l.Tenant})
	for name, value := range f.objects {
		if key, is := bytes.CutPrefix([]byte(name), []byte(prefix)); is && bytes.HasPrefix(key, l.Prefix) {
			listing.Objects = append(listing.Objects, door.Listed{Key: key, SizeBytes: uint64(len(value))})
		}
	}
	slices.SortFunc(listing.Objects, func(a, b door.Listed) int { return bytes.Compare(a.Key, b.Key) })
	return listing, nil
}

func (f *fakeCache) Stats(context.Context) ([]door.OwnerStats, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return []door.OwnerStats{{Name: "n", Here: true, HeapTotal: 1 << 30, Ready: uint64(len(f.objects))}}, nil
}

func (f *fakeCache) Evict(context.Context, uint32) (uint64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := len(f.objects)
	clear(f.objects)
	return uint64(n), nil
}

func (f *fakeCache) Arena() (doorserver.Arena, error) {
	fd, err := unix.MemfdCreate("arena", unix.MFD_CLOEXEC)
	if err != nil {
		return doorserver.Arena{}, err
	}
	file := os.NewFile(uintptr(fd), "arena")
	_, err = file.WriteString("the arena")
	return doorserver.Arena{File: file, Owner: "n", SizeBytes: 9}, err
}
