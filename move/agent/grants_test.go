package agent

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"

	"meridian/kv"
	"meridian/move/fabric"
)

func spansOf(t testing.TB, region, epoch uint64, pieces ...span) fabric.Part {
	t.Helper()
	p := fabric.Part{Region: region, Epoch: epoch}
	for _, s := range pieces {
		if err := p.Spans.Add(s.from, s.to-s.from); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

func TestGrantsRefuseByName(t *testing.T) {
	now := time.Now()
	g := newGrants(10)
	row := &grant{
		peer: "b", incarnation: kv.ID{2}, op: fabric.Read, until: now.Add(time.Minute),
		runs: runsByRegion(fabric.List{spansOf(t, 1, 7, span{100, 200}, span{300, 400})}),
	}
	id, err := g.issue(kv.ID{42}, row, now)
	if err != nil {
		t.Fatal(err)
	}
	revoked, err := g.issue(kv.ID{43}, row, now)
	if err != nil {
		t.Fatal(err)
	}
	g.end(revoked, fabric.ErrGrantRevoked)
	good := fabric.Access{
		Peer: "b", Incarnation: kv.ID{2}, Grant: id, Op: fabric.Read, List: fabric.List{spansOf(t, 1, 7, span{120, 150}, span{300, 400})},
	}
	if err := g.admit(good, now); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		spoil func(*fabric.Access)
		after time.Duration
		want  error
	}{
		"no grant":            {func(a *fabric.Access) { a.Grant = kv.ID{} }, 0, fabric.ErrNoGrant},
		"guessed":             {func(a *fabric.Access) { a.Grant[15]++ }, 0, fabric.ErrNoGrant},
		"another peer":        {func(a *fabric.Access) { a.Peer = "c" }, 0, fabric.ErrGrantPeer},
		"another incarnation": {func(a *fabric.Access) { a.Incarnation = kv.ID{3} }, 0, fabric.ErrGrantPeer},
		"another operation":   {func(a *fabric.Access) { a.Op = fabric.Write }, 0, fabric.ErrGrantOp},
		"expired":             {func(*fabric.Access) {}, time.Minute + 1, fabric.ErrGrantExpired},
		"revoked":             {func(a *fabric.Access) { a.Grant = revoked }, 0, fabric.ErrGrantRevoked},
		"stale epoch":         {func(a *fabric.Access) { a.List[0].Epoch = 6 }, 0, fabric.ErrStaleEpoch},
		"another region":      {func(a *fabric.Access) { a.List[0].Region = 2 }, 0, fabric.ErrGrantSpans},
		"wider by a byte":     {func(a *fabric.Access) { a.List = fabric.List{spansOf(t, 1, 7, span{100, 201})} }, 0, fabric.ErrGrantSpans},
		"one byte before":     {func(a *fabric.Access) { a.List = fabric.List{spansOf(t, 1, 7, span{99, 150})} }, 0, fabric.ErrGrantSpans},
		"across the gap":      {func(a *fabric.Access) { a.List = fabric.List{spansOf(t, 1, 7, span{100, 400})} }, 0, fabric.ErrGrantSpans},
		"one part too many":   {func(a *fabric.Access) { a.List = append(a.List, spansOf(t, 1, 7, span{0, 1})) }, 0, fabric.ErrGrantSpans},
	} {
		t.Run(name, func(t *testing.T) {
			a := good
			a.List = fabric.List{spansOf(t, 1, 7, span{120, 150}, span{300, 400})}
			c.spoil(&a)
			if err := g.admit(a, now.Add(c.after)); !errors.Is(err, c.want) {
				t.Errorf("%v, want %v", err, c.want)
			}
		})
	}
}

// A grant covers a request exactly if it covers each of its bytes.
func TestGrantCoversByBytes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		drawn := func(name string) (fabric.Part, map[uint64]bool) {
			p := fabric.Part{Region: 1, Epoch: 1}
			bytes := make(map[uint64]bool)
			for range rapid.IntRange(0, 6).Draw(t, name) {
				from, n := rapid.Uint64Range(0, 40).Draw(t, "from"), rapid.Uint64Range(1, 6).Draw(t, "length")
				stride, count := rapid.Uint64Range(0, 9).Draw(t, "stride"), rapid.Uint64Range(1, 4).Draw(t, "count")
				for i := range count {
					if p.Spans.Add(from+i*stride, n) != nil {
						t.Fatal("spans")
					}
					for at := range n {
						bytes[from+i*stride+at] = true
					}
				}
			}
			return p, bytes
		}
		granted, opens := drawn("granted")
		asked, wants := drawn("asked")
		want := true
		for at := range wants {
			want = want && opens[at]
		}
		row := &grant{runs: runsByRegion(fabric.List{granted})}
		if err := row.covers(&asked); (err == nil) != want {
			t.Fatalf("granted %+v, asked %+v: %v", granted.Spans.Runs(), asked.Spans.Runs(), err)
		}
	})
}

func TestFullTableForgetsWhatExpired(t *testing.T) {
	now := time.Now()
	g := newGrants(2)
	for i := range 2 {
		if _, err := g.issue(kv.ID{byte(i + 1)}, &grant{until: now.Add(time.Duration(i+1) * time.Second)}, now); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := g.issue(kv.ID{3}, &grant{until: now.Add(time.Hour)}, now); !errors.Is(err, fabric.ErrBusy) {
		t.Fatalf("a third of two: %v", err)
	}
	later := now.Add(1500 * time.Millisecond)
	if _, err := g.issue(kv.ID{3}, &grant{until: now.Add(time.Hour)}, later); err != nil || g.len() != 2 {
		t.Fatalf("%v, %d rows", err, g.len())
	}
	some := fabric.List{spansOf(t, 1, 1, span{0, 1})}
	if err := g.admit(fabric.Access{Grant: kv.ID{1}, List: some}, later); !errors.Is(err, fabric.ErrGrantExpired) {
		t.Errorf("what was forgotten: %v", err)
	}
}

// BenchmarkAdmit asks for 16,384 blocks in an order of their own, as a hand-off
// does: all that were granted, in the order of the grant.
func BenchmarkAdmit(b *testing.B) {
	const blocks, size = 16384, 4096
	p := fabric.Part{Region: 1, Epoch: 1}
	for _, i := range rand.New(rand.NewPCG(1, 2)).Perm(blocks) {
		if err := p.Spans.Add(uint64(i)*2*size, size); err != nil {
			b.Fatal(err)
		}
	}
	g := newGrants(10)
	now := time.Now()
	id, _ := g.issue(kv.ID{1}, &grant{peer: "b", op: fabric.Read, until: now.Add(time.Hour), runs: runsByRegion(fabric.List{p})}, now)
	access := fabric.Access{Peer: "b", Grant: id, Op: fabric.Read, List: fabric.List{p}}
	for b.Loop() {
		if err := g.admit(access, now); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/blocks, "ns/block")
}
