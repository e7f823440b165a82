package prefix_test

import (
	"context"
	"testing"

	"meridian/internal/until"
	"meridian/keep/prefix"
	"meridian/keep/store"
	"meridian/kv"
	"meridian/move/agent"
)

// An engine leaves while its Keep asks the master, and one of the same name comes with other
// memory: nothing of it is ever kept under the tokens of the first.
func TestEngineRestartsInMidKeep(t *testing.T) {
	c := newCell(t, "tcp")
	a := c.start("a", nodeOptions{keeps: arenaBytes})
	answers := make(chan struct{})
	b := c.start("b", nodeOptions{store: func(o *store.Options) {
		find := o.Find
		o.Find = func(ctx context.Context, name string) (*agent.Peer, error) {
			select {
			case <-answers:
				return find(ctx, name)
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
	}})
	s := shape{tp: 1, blockTokens: 16, blocks: 64, layout: "BLHNC"}
	old, other := c.engine("e", s, b), c.engine("r", s, a)
	p := prompt(256, 1)
	blocks := old.blocksFor(256, 3)
	old.fill(blocks, p)
	b.awaitSilence(t)
	id := agent.NewID()
	if err := b.Keep(soon(t), prefix.Keep{Engine: "e", Transfer: id, Content: p, Holding: holding(blocks)}); err != nil {
		t.Fatal(err)
	}
	until.True(t, "it is under way", func() bool { return b.Metrics().InFlight == 1 })
	b.Leave("e")
	b.mu.Lock()
	early := len(b.freed[id])
	b.mu.Unlock()
	if early != 1 {
		t.Errorf("the engine has left, and its blocks were freed %d times", early)
	}
	if err := b.transceiver.Leave(soon(t), "e"); err != nil {
		t.Fatal(err)
	}
	fresh := c.engine("e", s, b)
	fresh.fill(blocks, prompt(256, 77))
	close(answers)
	b.awaitFreed(t, id)
	b.settled(t)
	a.settled(t)
	if found := other.find(t, p, 0); found.Tokens != 0 {
		t.Errorf("of an engine that left before anything was offered, %d tokens are kept", found.Tokens)
	}
	if m := b.transceiver.Metrics(); m.Offered != 0 {
		t.Errorf("%d offers were made for it", m.Offered)
	}
	// The one in its place keeps what it has.
	if e := fresh.keep(t, p); e.Problem.Err() != nil {
		t.Fatal(e.Problem.Err())
	}
	a.settled(t)
	found := other.find(t, p, 0)
	got, err := other.accept(t, p, found)
	if err != nil || found.Tokens != 256 {
		t.Fatalf("%+v: %v", found, err)
	}
	if n := other.wrong(got, p, kv.TokenRange{End: found.Tokens}); n > 0 {
		t.Errorf("%d bytes are wrong", n)
	}
}

// An engine joins once, until it leaves.
func TestJoinsOnce(t *testing.T) {
	c := newCell(t, "inproc")
	a := c.start("a", nodeOptions{})
	e := c.engine("e", publisher, a)
	if err := a.Join("e", e.Side); err == nil {
		t.Error("it joined twice")
	}
	a.Leave("e")
	if err := a.Join("e", e.Side); err != nil {
		t.Error(err)
	}
}
