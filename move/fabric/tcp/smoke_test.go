package tcp

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	mathrand "math/rand/v2"
	"testing"
	"time"

	"meridian/kv"
	"meridian/member/trust"
	"meridian/move/fabric"
	"meridian/move/mem"
)

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

type pair struct {
	a, b   *Fabric
	ma, mb *mem.Arena
	link   fabric.Link
	events *heard
}

func newPair(t testing.TB, size uint64, o Options, sealed ...func(name string) *trust.Source) *pair {
	p := &pair{events: &heard{notes: make(chan fabric.Notification, 100)}}
	ctx := context.Background()
	open := func(name string, e fabric.Events) (*Fabric, *mem.Arena) {
		o := o
		o.Agent, o.Incarnation, o.Listen, o.Events = name, newID(), "127.0.0.1:0", e
		for _, source := range sealed {
			o.TLS = source(name)
		}
		f, err := Open(ctx, o)
		if err != nil {
			t.Fatal(err)
		}
		m, err := mem.NewArena(mem.ArenaOptions{Name: name, SizeBytes: size, NUMANode: -1})
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Register(fabric.Region{ID: 1, Epoch: 7, Section: m.Section}); err != nil {
			t.Fatal(err)
		}
		return f, m
	}
	p.a, p.ma = open("a", &heard{notes: make(chan fabric.Notification, 100)})
	p.b, p.mb = open("b", p.events)
	link, err := p.a.Connect(ctx, fabric.Peer{Name: "b", Incarnation: p.b.options.Incarnation, Address: p.b.Address()})
	if err != nil {
		t.Fatal(err)
	}
	p.link = link
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		for _, err := range []error{p.a.Close(ctx), p.b.Close(ctx), p.ma.Close(ctx), p.mb.Close(ctx)} {
			if err != nil {
				t.Error(err)
			}
		}
	})
	return p
}

func scattered(total, block uint64, seed uint64) fabric.List {
	n := total / block
	order := mathrand.New(mathrand.NewPCG(seed, 1)).Perm(int(n))
	l := fabric.List{{Region: 1, Epoch: 7}}
	for _, i := range order {
		if err := l[0].Spans.Add(uint64(i)*2*block, block); err != nil {
			panic(err)
		}
	}
	return l
}

func BenchmarkTransfer(b *testing.B) {
	const total = 64 << 20
	for _, op := range []fabric.Op{fabric.Write, fabric.Read} {
		for _, block := range []uint64{4 << 10, 16 << 10, 64 << 10, 1 << 20} {
			for _, plain := range []bool{false, true} {
				b.Run(fmt.Sprintf("%v/%dKiB/nosum=%v", op, block>>10, plain), func(b *testing.B) {
					p := newPair(b, 2*total, Options{NoChecksums: plain})
					prepared, err := p.link.Prepare(op, scattered(total, block, 1), scattered(total, block, 2))
					if err != nil {
						b.Fatal(err)
					}
					defer prepared.Release()
					b.SetBytes(total)
					for b.Loop() {
						t, err := p.link.Post(context.Background(), prepared, fabric.PostOptions{ID: newID()})
						if err != nil {
							b.Fatal(err)
						}
						if err := t.Await(context.Background()); err != nil {
							b.Fatal(err)
						}
					}
				})
			}
		}
	}
}

func BenchmarkLatency4KiB(b *testing.B) {
	p := newPair(b, 1<<20, Options{})
	prepared, err := p.link.Prepare(fabric.Write, scattered(4096, 4096, 1), scattered(4096, 4096, 2))
	if err != nil {
		b.Fatal(err)
	}
	defer prepared.Release()
	b.ReportAllocs()
	for b.Loop() {
		t, err := p.link.Post(context.Background(), prepared, fabric.PostOptions{ID: newID(), Notify: true, Notification: []byte("x")})
		if err != nil {
			b.Fatal(err)
		}
		if err := t.Await(context.Background()); err != nil {
			b.Fatal(err)
		}
		<-p.events.notes
	}
}

func TestSmoke(t *testing.T) {
	for _, op := range []fabric.Op{fabric.Read, fabric.Write} {
		for _, total := range []uint64{4096, 1 << 20, 8 << 20} {
			p := newPair(t, 32<<20, Options{})
			rand.Read(p.ma.Bytes(0, p.ma.Size()))
			rand.Read(p.mb.Bytes(0, p.mb.Size()))
			local, remote := scattered(total, 4096, 1), scattered(total, 1024, 2)
			prepared, err := p.link.Prepare(op, local, remote)
			if err != nil {
				t.Fatal(err)
			}
			tr, err := p.link.Post(t.Context(), prepared, fabric.PostOptions{ID: newID(), Notify: true, Notification: []byte("hi")})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			if err := tr.Await(ctx); err != nil {
				t.Fatal(op, total, err)
			}
			cancel()
			if n := <-p.events.notes; string(n.Payload) != "hi" {
				t.Error(n)
			}
			flat := func(m *mem.Arena, l fabric.List) (out []byte) {
				for w := l.Walk(); w.Left() > 0; {
					c := w.Next(1 << 40)
					out = append(out, m.Bytes(c.Offset, c.Length)...)
				}
				return out
			}
			if string(flat(p.ma, local)) != string(flat(p.mb, remote)) {
				t.Error(op, total, "bytes differ")
			}
			prepared.Release()
		}
	}
}

func TestAdvertised(t *testing.T) {
	for host, want := range map[string]string{
		"": "0.0.0.0:7400", "10.0.0.5": "10.0.0.5:7400", "cache-1": "cache-1:7400", "cache-1:9": "cache-1:9", "::1": "[::1]:7400",
	} {
		if got := advertised(host, "0.0.0.0:7400"); got != want {
			t.Errorf("%q: %q, want %q", host, got, want)
		}
	}
}
