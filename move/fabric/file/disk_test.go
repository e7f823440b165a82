package file

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"meridian/internal/require"
	"meridian/kv"
	"meridian/move/fabric"
	"meridian/move/mem"
)

type silent struct{}

func (silent) Notified(fabric.Notification) (fabric.NotificationHandler, error) { return nil, nil }
func (silent) LinkLost(fabric.Peer, error)                                      {}
func (silent) Refused(string, error)                                            {}

// rig is a fabric with one region of memory and one file, both of random bytes.
type rig struct {
	*testing.T
	f      *Fabric
	link   fabric.Link
	memory *mem.Section
	file   *mem.Section
	posts  byte
}

const (
	memoryRegion, fileRegion = 1, 2
	rigBytes                 = 4 << 20
)

func newRig(t *testing.T, o Options) *rig {
	t.Helper()
	o.Agent, o.Events = "self", silent{}
	arena, err := mem.NewArena(mem.ArenaOptions{SizeBytes: rigBytes, NUMANode: -1})
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{T: t, f: open(t, o), memory: arena.Section, file: newFile(t, rigBytes)}
	random := rand.NewChaCha8([32]byte{1})
	fill := func() []byte {
		data := make([]byte, rigBytes)
		_, _ = random.Read(data)
		return data
	}
	err = errors.Join(r.memory.WriteAt(fill(), 0), r.file.WriteAt(fill(), 0), unix.Fsync(int(r.file.File().Fd())),
		r.f.Register(fabric.Region{ID: memoryRegion, Section: r.memory}), r.f.Register(fabric.Region{ID: fileRegion, Section: r.file}))
	if err != nil {
		t.Fatal(err)
	}
	if r.link, err = r.f.Connect(t.Context(), fabric.Peer{Name: "self"}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(r.f.Close(context.Background()), r.memory.Close(context.Background()), r.file.Close(context.Background())); err != nil {
			t.Error(err)
		}
	})
	return r
}

func list(t testing.TB, region uint64, pieces ...uint64) fabric.List {
	t.Helper()
	l := fabric.List{{Region: region}}
	for i := 0; i < len(pieces); i += 2 {
		if err := l[0].Spans.Add(pieces[i], pieces[i+1]); err != nil {
			t.Fatal(err)
		}
	}
	return l
}

// move runs one transfer between memory, as near side, and the file.
func (r *rig) move(op fabric.Op, memory, file fabric.List) (fabric.State, error) {
	r.Helper()
	p, err := r.link.Prepare(op, memory, file)
	if err != nil {
		r.Fatal(err)
	}
	defer p.Release()
	r.posts++
	t, err := r.link.Post(r.Context(), p, fabric.PostOptions{ID: kv.ID{r.posts}})
	if err != nil {
		r.Fatal(err)
	}
	err = t.Await(r.Context())
	state, _ := t.Status()
	return state, err
}

func (r *rig) holds(s *mem.Section, offset, length uint64) []byte {
	r.Helper()
	got := make([]byte, length)
	if err := s.ReadAt(got, offset); err != nil {
		r.Fatal(err)
	}
	return got
}

func (r *rig) needDirect() *disk {
	r.Helper()
	d := r.f.disks[fileRegion]
	if d.direct == nil {
		require.Skip(r.T, "o-direct", "the file system of the temporary directory has none")
	}
	return d
}

// conn stands in for a file: it counts uses, or refuses them.
type conn struct {
	uses   int
	broken error
	inner  interface{ Control(func(uintptr)) error }
}

func (c *conn) Control(use func(uintptr)) error {
	if c.broken != nil {
		return c.broken
	}
	c.uses++
	return c.inner.Control(use)
}
func (c *conn) Read(func(uintptr) bool) error  { panic("not used") }
func (c *conn) Write(func(uintptr) bool) error { panic("not used") }

// Aligned batches go past the page cache and others do not: with the one file
// or the other broken, only its kind fails.
func TestAlignedBatchesAreDirect(t *testing.T) {
	r := newRig(t, Options{Sync: SyncNever})
	d := r.needDirect()
	aligned := func(region uint64) fabric.List { return list(t, region, 8192, 4096, 65536, 1<<20, 4096, 4096) }
	odd := func(region uint64) fabric.List { return list(t, region, 8193, 4096, 65537, 1<<20, 4097, 4095) }
	broken := errors.New("broken")
	buffered, direct := d.buffered, d.direct
	for _, op := range []fabric.Op{fabric.Read, fabric.Write} {
		d.buffered, d.direct = &conn{broken: broken}, direct
		if _, err := r.move(op, aligned(memoryRegion), aligned(fileRegion)); err != nil {
			t.Errorf("%v of aligned pieces: %v", op, err)
		}
		if state, err := r.move(op, odd(memoryRegion), odd(fileRegion)); !errors.Is(err, broken) || state != fabric.InDoubt {
			t.Errorf("%v of odd pieces without a page cache: %v, %v", op, state, err)
		}
		d.buffered, d.direct = buffered, &conn{broken: broken}
		if _, err := r.move(op, odd(memoryRegion), odd(fileRegion)); err != nil {
			t.Errorf("%v of odd pieces: %v", op, err)
		}
		if _, err := r.move(op, aligned(memoryRegion), aligned(fileRegion)); !errors.Is(err, broken) {
			t.Errorf("%v of aligned pieces without a direct file: %v", op, err)
		}
		d.buffered, d.direct = buffered, direct
	}
}

// The n-th byte goes to the n-th byte, whichever way each batch takes.
func TestDirectAndBufferedMix(t *testing.T) {
	for name, o := range map[string]Options{"direct": {}, "buffered": {NoDirect: true}, "unchecked": {NoChecksums: true}} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, o)
			memory := list(t, memoryRegion, 1<<20, 4096, 0, 8192, 2<<20, 1<<20+100)
			file := list(t, fileRegion, 3<<20, 512, 4096, 1<<20+4096*3-412)
			want := bytes.Join([][]byte{
				r.holds(r.memory, 1<<20, 4096), r.holds(r.memory, 0, 8192), r.holds(r.memory, 2<<20, 1<<20+100),
			}, nil)
			if state, err := r.move(fabric.Write, memory, file); state != fabric.Done {
				t.Fatal(state, err)
			}
			got := append(r.holds(r.file, 3<<20, 512), r.holds(r.file, 4096, 1<<20+4096*3-412)...)
			if !bytes.Equal(got, want) {
				t.Error("the file does not hold what memory does")
			}
			if state, err := r.move(fabric.Read, list(t, memoryRegion, 77, uint64(len(want))), file); state != fabric.Done {
				t.Fatal(state, err)
			}
			if !bytes.Equal(r.holds(r.memory, 77, uint64(len(want))), want) {
				t.Error("memory does not hold what the file does")
			}
		})
	}
}

// A write is Done after fdatasync of the file, once, unless told otherwise.
func TestSyncPolicy(t *testing.T) {
	for _, c := range []struct {
		sync Sync
		op   fabric.Op
		want int
	}{{SyncBeforeDone, fabric.Write, 1}, {SyncBeforeDone, fabric.Read, 0}, {SyncNever, fabric.Write, 0}} {
		r := newRig(t, Options{Sync: c.sync})
		d := r.needDirect()
		counted := &conn{inner: d.buffered}
		d.buffered = counted
		twice := append(list(t, fileRegion, 0, 1<<20), list(t, fileRegion, 2<<20, 1<<20)...)
		if state, err := r.move(c.op, list(t, memoryRegion, 0, 2<<20), twice); state != fabric.Done {
			t.Fatal(state, err)
		}
		// Everything is aligned, so that only a sync uses the buffered file.
		if counted.uses != c.want {
			t.Errorf("%v with policy %d: %d syncs, want %d", c.op, c.sync, counted.uses, c.want)
		}
	}
}

func TestFileThatWasCut(t *testing.T) {
	r := newRig(t, Options{})
	if err := os.Truncate(r.file.File().Name(), 1<<20); err != nil {
		t.Fatal(err)
	}
	for _, offset := range []uint64{1 << 20, 1<<20 - 100, 2 << 20} {
		state, err := r.move(fabric.Read, list(t, memoryRegion, 0, 4096), list(t, fileRegion, offset, 4096))
		if !errors.Is(err, mem.ErrBounds) || state != fabric.InDoubt {
			t.Errorf("reading at %d of a file that was cut: %v, %v", offset, state, err)
		}
	}
}

// A file that holds something else than was written is seen.
func TestReadBackFinds(t *testing.T) {
	for _, op := range []fabric.Op{fabric.Read, fabric.Write} {
		r := newRig(t, Options{NoDirect: true})
		d := r.f.disks[fileRegion]
		d.buffered = &meddler{conn: conn{inner: d.buffered}, s: r.file}
		state, err := r.move(op, list(t, memoryRegion, 0, 5000), list(t, fileRegion, 100, 5000))
		if !errors.Is(err, fabric.ErrChecksum) || state != fabric.InDoubt {
			t.Errorf("%v: %v, %v", op, state, err)
		}
	}
}

// meddler changes a byte of the file after the first use of it.
type meddler struct {
	conn
	s *mem.Section
}

func (m *meddler) Control(use func(uintptr)) error {
	err := m.conn.Control(use)
	if m.uses == 1 {
		b := make([]byte, 1)
		err = errors.Join(err, m.s.ReadAt(b, 200))
		b[0]++
		err = errors.Join(err, m.s.WriteAt(b, 200))
	}
	return err
}

func TestReadOnlyFile(t *testing.T) {
	r := newRig(t, Options{})
	f, err := os.Open(r.file.File().Name())
	if err != nil {
		t.Fatal(err)
	}
	s, err := mem.OpenFile(f, rigBytes, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(context.Background())
	if err := r.f.Register(fabric.Region{ID: 3, Section: s}); err != nil {
		t.Fatal(err)
	}
	if state, err := r.move(fabric.Read, list(t, memoryRegion, 0, 8192), list(t, 3, 0, 8192)); err != nil {
		t.Errorf("reading: %v, %v", state, err)
	}
	if state, err := r.move(fabric.Write, list(t, memoryRegion, 0, 8192), list(t, 3, 0, 8192)); !errors.Is(err, unix.EBADF) {
		t.Errorf("writing: %v, %v", state, err)
	}
	if err := r.f.Deregister(t.Context(), 3); err != nil {
		t.Error(err)
	}
}

func TestOptions(t *testing.T) {
	for _, o := range []Options{{}, {Agent: "a"}, {Events: silent{}}, {Agent: "a", Events: silent{}, Sync: 9}, {Agent: "a", Events: silent{}, Workers: -1}} {
		if _, err := Open(t.Context(), o); err == nil {
			t.Errorf("%+v was accepted", o)
		}
	}
}
