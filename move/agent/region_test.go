package agent_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"meridian/move/agent"
	"meridian/move/fabric"
	"meridian/move/mem"
)

func newArena(t *testing.T) *mem.Arena {
	t.Helper()
	arena, err := mem.NewArena(mem.ArenaOptions{Name: "more", SizeBytes: 1 << 20, NUMANode: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := arena.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return arena
}

// Descriptors name a device and an address, not a kind: no two regions may
// share those, even when they are registered at the same moment.
func TestRegionsDoNotOverlap(t *testing.T) {
	a := start(t, agent.Options{Name: "a"})
	arena := newArena(t)
	var all sync.WaitGroup
	var taken atomic.Int32
	for range 8 {
		all.Go(func() {
			if _, err := a.Register(arena.Section, ""); err == nil {
				taken.Add(1)
			} else if !strings.Contains(err.Error(), "overlaps region") {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if n := taken.Load(); n != 1 {
		t.Errorf("the same memory was registered %d times", n)
	}
	// The same addresses as another process would lend them, here our own.
	self, err := os.FindProcess(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	pidfd := -1
	if err := self.WithHandle(func(handle uintptr) { pidfd, err = syscall.Dup(int(handle)) }); err != nil {
		t.Fatal(err)
	}
	lent, err := mem.Borrow(mem.BorrowOptions{PIDFD: pidfd, PID: self.Pid, Address: arena.Base(), SizeBytes: 4096, Device: arena.Device()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = lent.Close(context.Background()) })
	if _, err := a.Register(lent, ""); err == nil || !strings.Contains(err.Error(), "a device of its own") {
		t.Errorf("borrowed memory over our own, on one device: %v", err)
	}
}

// Whichever comes last, a region that was deregistered stays so.
func TestFenceDoesNotUndoDeregister(t *testing.T) {
	a, b := start(t, agent.Options{Name: "a"}), start(t, agent.Options{Name: "b"})
	arena := newArena(t)
	for range 50 {
		region, err := a.Register(arena.Section, "")
		if err != nil {
			t.Fatal(err)
		}
		peer, err := b.LoadMetadata(a.MetadataBlob())
		if err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup
		all.Go(func() {
			if _, err := a.Fence(t.Context(), region.ID); err != nil && !errors.Is(err, fabric.ErrUnknownRegion) {
				t.Error(err)
			}
		})
		all.Go(func() {
			if err := a.Deregister(t.Context(), region.ID); err != nil {
				t.Error(err)
			}
		})
		all.Wait()
		if len(a.Regions()) != 1 {
			t.Fatal("a region that was deregistered is listed")
		}
		local, err := b.Local([]agent.Descriptor{{Address: b.region.Address, Length: 64}})
		if err != nil {
			t.Fatal(err)
		}
		remote, err := peer.Remote([]agent.Descriptor{{Address: region.Address, Length: 64}})
		if err != nil {
			t.Fatal(err)
		}
		r := mustPrepare(t, b, local, remote)
		tr, err := r.Post(t.Context(), agent.PostOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if err := tr.Await(soon(t)); !errors.Is(err, fabric.ErrUnknownRegion) {
			t.Fatalf("a region that was deregistered answers: %v", err)
		}
		r.Release()
	}
}

// Memory that is mapped read-only can be a source and never a destination:
// neither of what its owner reads, nor of what a peer writes.
func TestReadOnlyMemoryIsNoDestination(t *testing.T) {
	a, b := start(t, agent.Options{Name: "a"}), start(t, agent.Options{Name: "b"})
	owner := newArena(t)
	copy(owner.Bytes(0, 5), "hello")
	fd, err := syscall.Dup(owner.FD())
	if err != nil {
		t.Fatal(err)
	}
	mapped, err := mem.MapArena(fd, false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = mapped.Close(context.Background()) })
	region, err := a.Register(mapped.Section, "lent")
	if err != nil {
		t.Fatal(err)
	}
	lent := []agent.Descriptor{{Address: region.Address, Length: 5}}
	request := func(here, there *side, op fabric.Op, local, remote []agent.Descriptor) error {
		t.Helper()
		peer, err := here.LoadMetadata(there.MetadataBlob())
		if err != nil {
			t.Fatal(err)
		}
		l, err := here.Local(local)
		if err != nil {
			t.Fatal(err)
		}
		r, err := peer.Remote(remote)
		if err != nil {
			t.Fatal(err)
		}
		q, err := here.Prepare(op, agent.Side{List: l}, agent.Side{List: r})
		if err != nil {
			t.Fatal(err)
		}
		defer q.Release()
		tr, err := q.Post(soon(t), agent.PostOptions{})
		if err != nil {
			return err
		}
		return tr.Await(soon(t))
	}
	plain := []agent.Descriptor{{Address: b.region.Address, Length: 5}}
	if err := request(a, b, fabric.Read, lent, plain); !errors.Is(err, mem.ErrReadOnly) {
		t.Errorf("read into read-only memory: %v", err)
	}
	if err := request(b, a, fabric.Write, plain, lent); !errors.Is(err, fabric.ErrRefused) || !strings.Contains(err.Error(), "read-only") {
		t.Errorf("a peer wrote to read-only memory: %v", err)
	}
	if err := request(a, b, fabric.Write, lent, plain); err != nil || string(b.arena.Bytes(0, 5)) != "hello" {
		t.Errorf("write from read-only memory: %v, %q", err, b.arena.Bytes(0, 5))
	}
}

func TestListsOfAnotherAgent(t *testing.T) {
	a, b := start(t, agent.Options{Name: "a"}), start(t, agent.Options{Name: "b"})
	p, err := a.LoadMetadata(b.MetadataBlob())
	if err != nil {
		t.Fatal(err)
	}
	local, remote := lists(t, a, p, b, 1)
	if _, err := b.Prepare(fabric.Write, agent.Side{List: local}, agent.Side{List: remote}); err == nil {
		t.Error("another agent's lists were taken")
	}
	strange, err := b.Local(b.descriptors(1))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Prepare(fabric.Write, agent.Side{List: strange}, agent.Side{List: remote}); err == nil {
		t.Error("another agent's memory was taken for its own")
	}
}
