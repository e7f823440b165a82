package prefix_test

import (
	"errors"
	"testing"
	"time"

	"meridian/internal/until"
	"meridian/keep/prefix"
	"meridian/keep/prefix/keys"
	"meridian/keep/store"
	"meridian/kv"
	"meridian/move/agent"
	"meridian/move/fabric"
	"meridian/move/transceiver/handoff"
)

// longKeep: who waits for a turn waits for longer than a test.
func longKeep(o *prefix.Options) { o.KeepTimeout = time.Hour }

// A Keep that is cancelled while its own host's owner has no room for it frees its blocks at once,
// and is counted as that.
func TestCancelKeepThatWaitsForItsTurn(t *testing.T) {
	c := newCell(t, "inproc")
	a := c.start("a", nodeOptions{keeps: arenaBytes, offload: longKeep})
	writer := c.engine("writer", publisher, a)
	if err := a.FillIn(); err != nil {
		t.Fatal(err)
	}
	id := agent.NewID()
	if err := a.Keep(soon(t), prefix.Keep{Engine: "writer", Transfer: id, Content: prompt(256, 1), Holding: holding(writer.blocksFor(256, 3))}); err != nil {
		t.Fatal(err)
	}
	until.True(t, "it waits for its owner", func() bool { return a.Metrics().BytesInFlight > 0 })
	a.CancelKeep(id)
	if e := a.awaitFreed(t, id); !errors.Is(e.Problem.Err(), handoff.ErrWithdrawn) {
		t.Errorf("it is said that %v", e.Problem.Err())
	}
	if m := a.Metrics(); m.Keeps["withdrawn"] != 1 {
		t.Errorf("%v", m.Keeps)
	}
}

// Keeps that wait at an owner take no places of Finds: there are so many, and further ones are
// told at once.
func TestKeepsThatWaitTakeNoPlacesOfFinds(t *testing.T) {
	const asked, takings = 200, 256
	c := newCell(t, "tcp")
	a := c.start("a", nodeOptions{keeps: arenaBytes, offload: longKeep})
	if err := a.FillIn(); err != nil {
		t.Fatal(err)
	}
	ask, _ := ofShape(0)
	for _, name := range []string{"b", "c"} {
		from := c.start(name, nodeOptions{})
		s := newStranger(t, from, a)
		ticket := handoff.Ticket{Transfer: agent.NewID(), Home: kv.Member{Name: name, Incarnation: from.agent.Incarnation()}, Tokens: ask.Shape.Tokens, Expires: handoff.Never}
		for range asked {
			s.say(&keys.KeepAsk{Shape: ask.Shape, Chain: ask.Units, Ticket: ticket.Seal(ticketKey), WithinMs: 3600_000})
		}
	}
	until.True(t, "what is beyond is refused", func() bool { return a.Metrics().TakesRefused == 2*asked-takings })
	if n := a.Takings(); n != takings {
		t.Errorf("%d are taken", n)
	}
}

// What an owner never has room for goes to another.
func TestAnOwnerWithLittleRoom(t *testing.T) {
	c := newCell(t, "inproc")
	a := c.start("a", nodeOptions{keeps: arenaBytes, offload: func(o *prefix.Options) { o.MaxBytesInFlight = 1 }})
	c.start("b", nodeOptions{keeps: arenaBytes})
	n := c.start("c", nodeOptions{})
	until.True(t, "the owners are known, and the master", func() bool {
		_, err := n.store.Where(soon(t), store.Run{Tenant: "kv-x", Keys: []string{"nothing"}})
		return err == nil && len(n.store.Owners()) == 2
	})
	writer := c.engine("writer", publisher, n)
	for seed := range 12 { // half of them belong to a
		if e := writer.keep(t, prompt(128, seed)); e.Problem.Err() != nil {
			t.Error(e.Problem.Err())
		}
	}
	if m := a.Metrics(); m.TakesRefused == 0 || m.TakesRefused == 12 {
		t.Errorf("%d of 12 were for the owner that takes none", m.TakesRefused)
	}
}

// Blocks that an engine does not have are not offered, and that is counted as what it is.
func TestKeepOfMoreBlocksThanThereAre(t *testing.T) {
	c := newCell(t, "inproc")
	a := c.start("a", nodeOptions{keeps: arenaBytes})
	c.engine("writer", publisher, a)
	id := agent.NewID()
	if err := a.Keep(soon(t), prefix.Keep{Engine: "writer", Transfer: id, Content: prompt(128, 1), Holding: holding(make([]uint32, publisher.blocks+1))}); err != nil {
		t.Fatal(err)
	}
	e, m := a.awaitFreed(t, id), a.Metrics()
	if !errors.Is(e.Problem.Err(), handoff.ErrTerms) || m.Keeps["declined"] != 1 {
		t.Errorf("%v, %v", e.Problem.Err(), m.Keeps)
	}
}

// A Keep comes after all those of its request, also when the one right before it has ended early.
func TestKeepsOfARequestComeAfterAll(t *testing.T) {
	c := newCell(t, "inproc")
	a, b := c.start("a", nodeOptions{keeps: arenaBytes}), c.start("b", nodeOptions{offload: longKeep})
	until.True(t, "the owner is known", func() bool { return len(b.store.Owners()) == 1 })
	if err := a.Close(soon(t)); err != nil { // hears, does not answer
		t.Fatal(err)
	}
	inbox, err := a.agent.Listen(keys.Magic, agent.InboxLimits{})
	if err != nil {
		t.Fatal(err)
	}
	defer a.agent.Unlisten(keys.Magic)
	writer := c.engine("writer", large, b)
	keep := func(request string, units int) kv.ID {
		id := agent.NewID()
		p := prompt(units*64, 1)
		if err := b.Keep(soon(t), prefix.Keep{Engine: "writer", Request: request, Transfer: id, Content: p, Holding: holding(writer.blocksFor(len(p.Tokens), 1))}); err != nil {
			t.Fatal(err)
		}
		return id
	}
	hears := func(units int) {
		t.Helper()
		var n fabric.Notification
		select {
		case n = <-inbox:
		case <-soon(t).Done():
			t.Fatalf("the Keep of %d units is not asked for", units)
		}
		_, m, err := keys.ParseMessage(n.Payload)
		if ask, is := m.(*keys.KeepAsk); err != nil || !is || len(ask.Chain.Keys) != units {
			t.Fatalf("%T instead of the Keep of %d units: %v", m, units, err)
		}
	}
	first := keep("r", 1)
	hears(1)
	second := keep("r", 2)
	b.CancelKeep(second)
	b.awaitFreed(t, second)
	third := keep("r", 3)
	for units := 4; units < 8; units++ { // in the meantime others are asked for
		id := keep("another", units)
		hears(units)
		b.CancelKeep(id)
		b.awaitFreed(t, id)
	}
	b.CancelKeep(first)
	b.awaitFreed(t, first)
	hears(3)
	b.CancelKeep(third)
	b.awaitFreed(t, third)
}

// The rest of a prompt that one owner has no room for pushes nothing of itself out at the next one,
// though its beginning is not there.
func TestTheRestOfAPromptStays(t *testing.T) {
	c := newCell(t, "inproc")
	unit := uint64(64 * 3 * 2 * 4 * 8 * 2)
	little := nodeOptions{keeps: 1 << 20, store: func(o *store.Options) { o.Owner.Headers = 128 }, offload: func(o *prefix.Options) { o.MaxBytesInFlight = 8 * unit }}
	a, b := c.start("a", little), c.start("b", little)
	until.True(t, "both owners are known", func() bool { return len(a.store.Owners()) == 2 })
	writer := c.engine("writer", large, a)
	writer.keep(t, prompt(160*64, 1))
	a.settled(t)
	b.settled(t)
	m := a.Metrics()
	here, _ := a.store.Kept()
	there, _ := b.store.Kept()
	if there.Ready == 0 || m.UnitsKept != here.Ready+there.Ready || here.Evictions+there.Evictions > 0 {
		t.Errorf("%d units are kept: %d are at one owner and %d at the other, which let %d and %d go", m.UnitsKept, here.Ready, there.Ready, here.Evictions, there.Evictions)
	}
}
