package inproc

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"meridian/kv"
	"meridian/move/fabric"
	"meridian/move/fabric/fabrictest"
	"meridian/move/mem"
)

// suite opens every pair in one network.
func suite() fabrictest.Options {
	network := NewNetwork()
	return fabrictest.Options{
		Open: func(t testing.TB, self fabric.Peer, events fabric.Events, guard fabric.Guard) fabric.Fabric {
			t.Helper()
			f, err := Open(t.Context(), Options{
				Network: network, Agent: self.Name, Incarnation: self.Incarnation, Events: events, Guard: guard,
				Workers: 3, MaxTransfers: 1000,
			})
			if err != nil {
				t.Fatal(err)
			}
			return f
		},
		// In one process there is no death but this.
		Kill:  func(f fabric.Fabric) { _ = f.Close(context.Background()) },
		Stall: hold,
	}
}

// hold stalls a fabric by keeping its workers waiting.
func hold(near, _ fabric.Fabric) (resume func()) {
	resume, err := near.(*Fabric).pool.Hold(context.Background())
	if err != nil {
		panic(err)
	}
	return resume
}

func fileSection(t testing.TB, sizeBytes uint64) *mem.Section {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "section"))
	if err != nil {
		t.Fatal(err)
	}
	s, err := mem.OpenFile(f, sizeBytes, 0)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestFabric(t *testing.T) { fabrictest.Run(t, suite()) }

// One agent alone, and memory that is not mapped.
func TestFabricWithItself(t *testing.T) {
	o := suite()
	o.Loopback, o.Kill, o.FarSection, o.Brief = true, nil, fileSection, true
	fabrictest.Run(t, o)
}

type listener struct {
	mu   sync.Mutex // protects lost
	lost []fabric.Peer
}

func (l *listener) Notified(fabric.Notification) (fabric.NotificationHandler, error) { return nil, nil }

func (l *listener) Refused(string, error) {}

func (l *listener) LinkLost(p fabric.Peer, _ error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lost = append(l.lost, p)
}

func open(t *testing.T, n *Network, name string, incarnation kv.ID, events fabric.Events) *Fabric {
	t.Helper()
	f, err := Open(t.Context(), Options{Network: n, Agent: name, Incarnation: incarnation, Events: events})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return f
}

func register(t *testing.T, f *Fabric, id, sizeBytes uint64) *mem.Section {
	t.Helper()
	a, err := mem.NewArena(mem.ArenaOptions{SizeBytes: sizeBytes, NUMANode: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	if err := f.Register(fabric.Region{ID: id, Section: a.Section}); err != nil {
		t.Fatal(err)
	}
	return a.Section
}

// A peer that came back is another one, to new links and to old.
func TestRebornPeer(t *testing.T) {
	n, events := NewNetwork(), &listener{}
	near := open(t, n, "near", kv.ID{1}, events)
	far := open(t, n, "far", kv.ID{2}, events)
	if _, err := Open(t.Context(), Options{Network: n, Agent: "far", Events: events}); err == nil {
		t.Error("two agents have one name")
	}
	old := fabric.Peer{Name: "far", Incarnation: kv.ID{2}, Address: far.Address()}
	link, err := near.Connect(t.Context(), old)
	if err != nil {
		t.Fatal(err)
	}
	if err := far.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	open(t, n, "far", kv.ID{3}, events)
	if len(events.lost) != 1 || events.lost[0].Incarnation != old.Incarnation {
		t.Errorf("lost %v", events.lost)
	}
	if err := link.Notify(t.Context(), kv.ID{9}, nil); !errors.Is(err, fabric.ErrPeerGone) {
		t.Errorf("the old link: %v", err)
	}
	if _, err := near.Connect(t.Context(), old); !errors.Is(err, fabric.ErrStalePeer) || !strings.Contains(err.Error(), "came 03") {
		t.Errorf("a new link to the old peer: %v", err)
	}
	old.Incarnation = kv.ID{}
	if _, err := near.Connect(t.Context(), old); err != nil {
		t.Errorf("a link to any incarnation: %v", err)
	}
}

// Bytes that change while they are moved are an error that names them.
func TestChecksum(t *testing.T) {
	n := NewNetwork()
	f := open(t, n, "self", kv.ID{1}, &listener{})
	from, to := register(t, f, 1, 1<<20), register(t, f, 2, 1<<20)
	link, err := f.Connect(t.Context(), fabric.Peer{Name: "self", Address: f.Address()})
	if err != nil {
		t.Fatal(err)
	}
	local, remote := fabric.List{{Region: 1}}, fabric.List{{Region: 2}}
	if err := errors.Join(local[0].Spans.Add(0, from.Size()), remote[0].Spans.Add(0, to.Size())); err != nil {
		t.Fatal(err)
	}
	p, err := link.Prepare(fabric.Write, local, remote)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Release()
	over := make(chan struct{})
	var meddling sync.WaitGroup
	meddling.Go(func() {
		for at := uint64(0); ; at = (at + 4097) % to.Size() {
			select {
			case <-over:
				return
			default:
				to.Bytes(at, 1)[0]++
			}
		}
	})
	defer meddling.Wait()
	defer close(over)
	for i := range 1000 {
		transfer, err := link.Post(t.Context(), p, fabric.PostOptions{ID: kv.ID{byte(i), byte(i >> 8)}})
		if err != nil {
			t.Fatal(err)
		}
		if err := transfer.Await(t.Context()); err != nil {
			state, _ := transfer.Status()
			if !errors.Is(err, fabric.ErrChecksum) || state != fabric.InDoubt || !strings.Contains(err.Error(), "region 2 at [") {
				t.Errorf("%v, %v", state, err)
			}
			return
		}
	}
	t.Error("a thousand transfers did not notice")
}

func TestOptions(t *testing.T) {
	n, events := NewNetwork(), &listener{}
	for _, o := range []Options{{}, {Network: n, Agent: "a"}, {Network: n, Events: events}, {Agent: "a", Events: events}, {Network: n, Agent: "a", Events: events, Workers: -1}} {
		if _, err := Open(t.Context(), o); err == nil {
			t.Errorf("%+v was accepted", o)
		}
	}
	if len(n.fabrics) != 0 {
		t.Error("a refused fabric is in the network")
	}
}
