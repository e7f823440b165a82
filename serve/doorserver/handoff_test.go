package doorserver_test

import (
	"fmt"
	"testing"
	"time"

	"meridian/internal/until"
	"meridian/move/agent"
	"meridian/serve/door"
)

// handOver moves a request from one engine to the other through their doors, and
// checks every byte.
func handOver(t testing.TB, from, to *engine, tokens int, push bool) [16]byte {
	t.Helper()
	id := [16]byte(agent.NewID())
	source, destination := from.blocksFor(tokens), to.blocksFor(tokens)
	from.fill(source, tokens)
	ticket, err := from.Offer(soon(t), door.Offer{Transfer: id, Tokens: prompt(tokens), Tables: [][]uint32{source}, Layers: len(model.Layers)})
	if err != nil {
		t.Fatal(err)
	}
	begun := [16]byte{}
	got, err := to.Accept(soon(t), door.Accept{
		Ticket: ticket, Tokens: prompt(tokens), Tables: [][]uint32{destination}, Push: push, Deadline: time.Minute,
		Begun: func(transfer [16]byte) { begun = transfer },
	})
	if err != nil {
		t.Fatal(err)
	}
	if got != id || begun != id {
		t.Errorf("accepted %x, begun %x, offered %x", got, begun, id)
	}
	to.heard(t, "ready", func(e door.Event) bool {
		return e.Kind == door.Ready && e.Transfer == id && e.Accepted && e.Problem == nil
	})
	if wrong := to.wrong(destination, tokens); wrong != 0 {
		t.Errorf("%d bytes are wrong", wrong)
	}
	from.heard(t, "freed", func(e door.Event) bool {
		return e.Kind == door.Freed && e.Transfer == id && !e.Accepted && e.Problem == nil
	})
	return id
}

var (
	prefillCut = cut{tp: 2, pp: 1, blockTokens: 16, blocks: 64, layout: "LBHNC"}
	decodeCut  = cut{tp: 4, pp: 2, blockTokens: 64, blocks: 16, layout: "BLNHFD"}
)

func TestHandOffThroughTheDoor(t *testing.T) {
	for _, fabricName := range []string{"host", "tcp"} {
		for _, push := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/push=%t", fabricName, push), func(t *testing.T) {
				c := newCell(t, fabricName)
				p, d := c.start("p"), c.start("d")
				from, to := c.engine("prefill", p, prefillCut), c.engine("decode", d, decodeCut)
				for _, e := range []*engine{from, to} {
					if !e.Serving() {
						t.Errorf("%s does not serve", e.id)
					}
				}
				for _, tokens := range []int{1, 16, 200} {
					handOver(t, from, to, tokens, push)
				}
			})
		}
	}
}

// One agent for a whole host: both engines have come in at the same door.
func TestBothEnginesAtOneDoor(t *testing.T) {
	for _, fabricName := range []string{"host", "tcp"} {
		t.Run(fabricName, func(t *testing.T) {
			c := newCell(t, fabricName)
			n := c.start("n")
			from, to := c.engine("prefill", n, prefillCut), c.engine("decode", n, decodeCut)
			handOver(t, from, to, 200, false)
			handOver(t, to, from, 130, true) // an engine may play either part
		})
	}
}

// Layers move as they are computed.
func TestLayersMoveAsTheyAreComputed(t *testing.T) {
	c := newCell(t, "tcp")
	p, d := c.start("p"), c.start("d")
	from, to := c.engine("prefill", p, prefillCut), c.engine("decode", d, decodeCut)
	const tokens = 100
	id := [16]byte(agent.NewID())
	source, destination := from.blocksFor(tokens), to.blocksFor(tokens)
	ticket, err := from.Offer(soon(t), door.Offer{Transfer: id, Tokens: prompt(tokens), Tables: [][]uint32{source}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := to.Accept(soon(t), door.Accept{Ticket: ticket, Tokens: prompt(tokens), Tables: [][]uint32{destination}}); err != nil {
		t.Fatal(err)
	}
	from.fill(source, tokens)
	from.Progress(id, 2, 0)
	from.Progress(id, 4, 0)
	to.hears(t, door.Ready, id)
	if wrong := to.wrong(destination, tokens); wrong != 0 {
		t.Errorf("%d bytes are wrong", wrong)
	}
	from.hears(t, door.Freed, id)
}

// Chunks move as they are computed: what has arrived is there before the rest is
// computed at all.
func TestChunksMoveAsTheyAreComputed(t *testing.T) {
	for _, push := range []bool{false, true} {
		t.Run(fmt.Sprintf("push=%t", push), func(t *testing.T) {
			c := newCell(t, "tcp")
			p, d := c.start("p"), c.start("d")
			from, to := c.engine("prefill", p, prefillCut), c.engine("decode", d, decodeCut)
			const tokens = 100
			layers := len(model.Layers)
			id := [16]byte(agent.NewID())
			source, destination := from.blocksFor(tokens), to.blocksFor(tokens)
			from.fill(source, 40) // a prefix that was there, and is part of the offer from its beginning
			ticket, err := from.Offer(soon(t), door.Offer{Transfer: id, Tokens: prompt(tokens), Tables: [][]uint32{source}, Whole: 32})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := to.Accept(soon(t), door.Accept{Ticket: ticket, Tokens: prompt(tokens), Tables: [][]uint32{destination}, Push: push}); err != nil {
				t.Fatal(err)
			}
			from.Progress(id, layers, 40)
			from.Progress(id, layers, tokens+1) // which cannot be
			until.True(t, "the first blocks have come", func() bool { return to.wrong(destination, 32) == 0 })
			from.fill(source, tokens)
			for layer := range layers {
				from.Progress(id, layer+1, 80)
			}
			for layer := range layers {
				from.Progress(id, layer+1, tokens)
			}
			to.hears(t, door.Ready, id)
			if wrong := to.wrong(destination, tokens); wrong != 0 {
				t.Errorf("%d bytes are wrong", wrong)
			}
			from.hears(t, door.Freed, id)
		})
	}
}

// What is not wanted any more gives its blocks back.
func TestCancel(t *testing.T) {
	c := newCell(t, "tcp")
	p, d := c.start("p"), c.start("d")
	from, to := c.engine("prefill", p, prefillCut), c.engine("decode", d, decodeCut)
	offer := func() (id [16]byte, ticket []byte) {
		id = agent.NewID()
		ticket, err := from.Offer(soon(t), door.Offer{Transfer: id, Tokens: prompt(20), Tables: [][]uint32{{1, 2}}})
		if err != nil {
			t.Fatal(err)
		}
		return id, ticket
	}
	withdrawn, _ := offer()
	if err := from.Cancel(soon(t), door.Cancel{Offered: withdrawn}); err != nil {
		t.Error(err)
	}
	if e := from.hears(t, door.Freed, withdrawn); e.Problem == nil || e.Problem.Code != "withdrawn" {
		t.Errorf("%+v", e.Problem)
	}
	cancelled, ticket := offer() // nothing of it is computed, so that it waits
	if _, err := to.Accept(soon(t), door.Accept{Ticket: ticket, Tokens: prompt(20), Tables: [][]uint32{{3}}}); err != nil {
		t.Fatal(err)
	}
	if err := to.Cancel(soon(t), door.Cancel{Accepted: cancelled}); err != nil {
		t.Error(err)
	}
	to.hears(t, door.Failed, cancelled)
	to.hears(t, door.Freed, cancelled)
	unused, ticket := offer()
	if err := to.Cancel(soon(t), door.Cancel{Ticket: ticket}); err != nil {
		t.Error(err)
	}
	from.hears(t, door.Freed, unused)
	if err := from.Cancel(soon(t), door.Cancel{Offered: unused}); err != nil {
		t.Errorf("what has ended: %v", err)
	}
	if err := from.Cancel(soon(t), door.Cancel{}); err == nil {
		t.Error("nothing can be cancelled")
	}
}
