package prefix_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"meridian/internal/until"
	"meridian/keep/prefix"
	"meridian/keep/store"
	"meridian/kv"
	"meridian/move/agent"
	"meridian/move/transceiver"
)

// awaitSilence waits until a node knows of a master that does not answer it: before that
// nothing is waited for.
func (n *node) awaitSilence(t testing.TB) {
	t.Helper()
	until.True(t, "a master that is waited for", func() bool {
		ctx, cancel := context.WithTimeout(soon(t), 50*time.Millisecond)
		defer cancel()
		_, err := n.store.Where(ctx, store.Run{Tenant: "t", Keys: []string{"k"}})
		return errors.Is(err, context.DeadlineExceeded)
	})
}

// While the master says nothing, Keeps have a tenth of an engine's blocks at most, and not
// for long; and after a few the master is not waited for.
func TestKeepsWhileTheMasterIsSilent(t *testing.T) {
	c := newCell(t, "tcp")
	c.start("a", nodeOptions{keeps: arenaBytes})
	answers := make(chan struct{})
	defer close(answers)
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
	}, offload: func(o *prefix.Options) { o.LocateTimeout = 0 }})
	e := c.engine("e", shape{tp: 1, blockTokens: 16, blocks: 640, layout: "BLHNC"}, b)
	b.awaitSilence(t)
	keep := func(i int) kv.ID {
		blocks := make([]uint32, 16)
		for k := range blocks {
			blocks[k] = uint32(i*16 + k)
		}
		id := agent.NewID()
		if err := b.Keep(soon(t), prefix.Keep{Engine: e.ID, Transfer: id, Content: prompt(256, 1000+i), Holding: holding(blocks)}); err != nil {
			t.Fatal(err)
		}
		return id
	}
	var ids []kv.ID
	for i := range 40 { // with all of its blocks
		ids = append(ids, keep(i))
	}
	for _, id := range ids {
		b.awaitFreed(t, id)
	}
	// KeepTimeout is as long as patience: none of them waited for that.
	if m := b.Metrics(); m.Keeps["dropped"]+m.Keeps["unknown"] != 40 || m.Keeps["dropped"] == 0 || m.Keeps["unknown"] == 0 {
		t.Errorf("%v", m.Keeps)
	}
	for range 3 { // at the latest now no Keep waits for it
		b.awaitFreed(t, keep(1))
	}
	if found := e.find(t, prompt(256, 1), 0); found.Tokens != 0 || found.Reason != "unknown" {
		t.Errorf("%+v", found)
	}
}

// A Keep whose owner says nothing may have all blocks of an engine: none of its hand-offs is
// declined for that.
func TestKeepLeavesRoomForOffers(t *testing.T) {
	c := newCell(t, "inproc")
	a := c.start("a", nodeOptions{keeps: arenaBytes})
	b := c.start("b", nodeOptions{})
	until.True(t, "the master and the owner are known", func() bool {
		_, err := b.store.Where(soon(t), store.Run{Tenant: "t", Keys: []string{"k"}})
		return err == nil && len(b.store.Owners()) == 1
	})
	if err := a.Close(soon(t)); err != nil { // hears, does not answer
		t.Fatal(err)
	}
	if _, err := a.agent.Listen("MRDK", agent.InboxLimits{}); err != nil {
		t.Fatal(err)
	}
	defer a.agent.Unlisten("MRDK")
	e := c.engine("e", shape{tp: 1, blockTokens: 16, blocks: 64, layout: "BLHNC"}, b)
	id := agent.NewID()
	if err := b.Keep(soon(t), prefix.Keep{Engine: e.ID, Transfer: id, Content: prompt(1024, 1), Holding: holding(e.blocksFor(1024, 3))}); err != nil {
		t.Fatal(err)
	}
	until.True(t, "it is offered", func() bool { return b.transceiver.Metrics().Offers > 0 })
	out, err := b.transceiver.Offer(transceiver.Offer{Transfer: agent.NewID(), Engine: e.ID, Content: prompt(16, 3), Holding: holding([]uint32{0}), Layers: 3})
	if err != nil {
		t.Fatal("a hand-off while a Keep waits:", err)
	}
	out.Withdraw()
	<-out.Freed()
	b.Leave(e.ID) // ends the Keep
	if e := b.awaitFreed(t, id); e.Problem.Err() == nil {
		t.Error("no owner took it, and it is said to be kept")
	}
}
