package host

import (
	"bytes"
	"context"
	"crypto/rand"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"meridian/internal/until"
	"meridian/kv"
	"meridian/move/fabric"
	"meridian/move/fabric/fabrictest"
	"meridian/move/mem"
)

func TestMain(m *testing.M) {
	if os.Getenv(roleVariable) != "" {
		os.Exit(playRole())
	}
	goleak.VerifyTestMain(m)
}

// socketDir is short enough for a socket, whatever the test is called.
func socketDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "host")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func suite(t testing.TB, o Options) fabrictest.Options {
	return fabrictest.Options{
		Open: func(t testing.TB, self fabric.Peer, events fabric.Events, guard fabric.Guard) fabric.Fabric {
			o := o
			o.Agent, o.Incarnation, o.Dir, o.Events, o.Guard = self.Name, self.Incarnation, socketDir(t), events, guard
			f, err := Open(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			return f
		},
		Kill: func(f fabric.Fabric) { f.(*Fabric).die() },
		Stall: func(near, far fabric.Fabric) func() {
			var resume []func()
			for _, f := range []*Fabric{near.(*Fabric), far.(*Fabric)} {
				resume = append(resume, f.pool.occupy(t))
				if f.gpu != nil {
					resume = append(resume, f.gpu.copiers.occupy(t))
				}
			}
			return func() {
				for _, r := range resume {
					r()
				}
			}
		},
	}
}

// die closes every socket without a word.
func (f *Fabric) die() {
	_ = f.pending.Close()
	for _, s := range f.everyStream() {
		s.wire.conn.Close()
	}
}

// occupy takes every copier.
func (p *pool) occupy(t until.Failer) (resume func()) {
	t.Helper()
	var taken []copier
	until.True(t, "every copier is idle", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		for len(p.idle) > 0 {
			taken = append(taken, p.takeCopier())
		}
		return len(taken) == p.copiers
	})
	return func() {
		for _, h := range taken {
			p.giveCopier(h)
		}
	}
}

func TestSuite(t *testing.T) {
	o := suite(t, Options{Workers: 2})
	o.Sums = true
	fabrictest.Run(t, o)
}

// More copiers than cores: the same promises.
func TestSuiteManyWorkers(t *testing.T) {
	o := suite(t, Options{Workers: 8})
	o.Brief = true
	fabrictest.Run(t, o)
}

type heard struct{ notes chan fabric.Notification }

func (h *heard) Notified(n fabric.Notification) (fabric.NotificationHandler, error) {
	n.Payload = bytes.Clone(n.Payload)
	select {
	case h.notes <- n:
		return nil, nil
	default:
		return nil, fabric.ErrBusy
	}
}
func (h *heard) LinkLost(fabric.Peer, error) {}

func (h *heard) Refused(string, error) {}

func newID() (id kv.ID) { rand.Read(id[:]); return id }

// agent is a fabric with one region, number 1 in epoch 7.
type agent struct {
	*Fabric
	memory *mem.Arena
	events *heard
}

func newAgent(t testing.TB, name string, size uint64, o Options) *agent {
	t.Helper()
	a := &agent{events: &heard{notes: make(chan fabric.Notification, 100)}}
	o.Agent, o.Incarnation, o.Events = name, newID(), a.events
	if o.Dir == "" {
		o.Dir = socketDir(t)
	}
	var err error
	if a.Fabric, err = Open(context.Background(), o); err != nil {
		t.Fatal(err)
	}
	if a.memory, err = mem.NewArena(mem.ArenaOptions{Name: name, SizeBytes: size, NUMANode: -1}); err != nil {
		t.Fatal(err)
	}
	if err := a.Register(fabric.Region{ID: 1, Epoch: 7, Section: a.memory.Section}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		for _, err := range []error{a.Close(ctx), a.memory.Close(ctx)} {
			if err != nil {
				t.Error(err)
			}
		}
	})
	return a
}

func (a *agent) peer() fabric.Peer {
	return fabric.Peer{Name: a.options.Agent, Incarnation: a.options.Incarnation, Address: a.Address()}
}

func (a *agent) connect(t testing.TB, p fabric.Peer) fabric.Link {
	t.Helper()
	l, err := a.Connect(context.Background(), p)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// dense is the first bytes of the region.
func dense(bytes, epoch uint64) fabric.List {
	l := fabric.List{{Region: 1, Epoch: epoch}}
	if err := l[0].Spans.Add(0, bytes); err != nil {
		panic(err)
	}
	return l
}
