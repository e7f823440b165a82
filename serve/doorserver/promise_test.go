package doorserver_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"meridian/internal/until"
	"meridian/member/trust"
	"meridian/move/agent"
	"meridian/serve/door"
)

// promised is what a gateway gives a decode engine before the prefill engine at
// home has offered anything.
func promised(id [16]byte, home *node) []byte {
	return trust.Promise{ID: id, Home: home.agent.Name(), Incarnation: home.agent.Incarnation()}.Seal(legKey)
}

// A decode engine that was promised a cache asks before it is offered, and has
// it when it is.
func TestPromiseIsKept(t *testing.T) {
	for _, push := range []bool{false, true} {
		t.Run(fmt.Sprintf("push=%t", push), func(t *testing.T) {
			c := newCell(t, "tcp")
			p, d := c.start("p"), c.start("d")
			from, to := c.engine("prefill", p, prefillCut), c.engine("decode", d, decodeCut)
			const tokens = 200
			id := [16]byte(agent.NewID())
			source, destination := from.blocksFor(tokens), to.blocksFor(tokens)
			accept := door.Accept{
				Ticket: promised(id, p), Tokens: prompt(tokens), Tables: [][]uint32{destination}, Push: push, Deadline: time.Minute,
			}
			heard := p.transceiver.Metrics().MessagesHeard
			for range 2 { // a repetition changes nothing
				if got, err := to.Accept(soon(t), accept); err != nil || got != id {
					t.Fatalf("accepted %x, %v", got, err)
				}
			}
			until.True(t, "its ask is there", func() bool { return p.transceiver.Metrics().MessagesHeard > heard })
			from.fill(source, tokens)
			if _, err := from.Offer(soon(t), door.Offer{Transfer: id, Tokens: prompt(tokens), Tables: [][]uint32{source}, Layers: len(model.Layers)}); err != nil {
				t.Fatal(err)
			}
			to.hears(t, door.Ready, id)
			if wrong := to.wrong(destination, tokens); wrong != 0 {
				t.Errorf("%d bytes are wrong", wrong)
			}
			if e := from.hears(t, door.Freed, id); e.Problem != nil {
				t.Error(e.Problem)
			}
		})
	}
}

// What is offered is of another prompt than the request that was promised it: not
// a byte of it comes, and the offer stands for whom it is for.
func TestPromiseOfAnotherPrompt(t *testing.T) {
	c := newCell(t, "tcp")
	p, d := c.start("p"), c.start("d")
	from, to := c.engine("prefill", p, prefillCut), c.engine("decode", d, decodeCut)
	id := [16]byte(agent.NewID())
	other := slices.Clone(prompt(20))
	other[7]++
	if _, err := to.Accept(soon(t), door.Accept{Ticket: promised(id, p), Tokens: other, Tables: [][]uint32{{3}}}); err != nil {
		t.Fatal(err)
	}
	ticket, err := from.Offer(soon(t), door.Offer{Transfer: id, Tokens: prompt(20), Tables: [][]uint32{{1, 2}}, Layers: len(model.Layers)})
	if err != nil {
		t.Fatal(err)
	}
	if e := to.hears(t, door.Failed, id); e.Problem == nil || e.Problem.Code != "other_prompt" {
		t.Errorf("%+v", e.Problem)
	}
	to.hears(t, door.Freed, id)
	right := c.engine("right", d, decodeCut)
	if _, err := right.Accept(soon(t), door.Accept{Ticket: ticket, Tokens: prompt(20), Tables: [][]uint32{{3}}}); err != nil {
		t.Fatal(err)
	}
	right.hears(t, door.Ready, id)
}

func TestPromiseThatIsNotWanted(t *testing.T) {
	c := newCell(t, "tcp")
	p, d := c.start("p"), c.start("d")
	from, to := c.engine("prefill", p, prefillCut), c.engine("decode", d, decodeCut)
	offer := func(id [16]byte) error {
		_, err := from.Offer(soon(t), door.Offer{Transfer: id, Tokens: prompt(20), Tables: [][]uint32{{1, 2}}, Layers: len(model.Layers)})
		return err
	}
	given := [16]byte(agent.NewID())
	if err := to.Cancel(soon(t), door.Cancel{Ticket: promised(given, p)}); err != nil {
		t.Fatal(err)
	}
	cancelled := [16]byte(agent.NewID())
	if _, err := to.Accept(soon(t), door.Accept{Ticket: promised(cancelled, p), Tokens: prompt(20), Tables: [][]uint32{{3}}}); err != nil {
		t.Fatal(err)
	}
	if err := to.Cancel(soon(t), door.Cancel{Accepted: cancelled}); err != nil {
		t.Fatal(err)
	}
	to.hears(t, door.Freed, cancelled)
	for _, id := range [][16]byte{given, cancelled} {
		var refused *door.Problem
		for end := time.Now().Add(time.Minute); ; { // the source home may not have heard yet that the destination does not come
			if err := offer(id); errors.As(err, &refused) {
				break
			}
			if e := from.hears(t, door.Freed, id); e.Problem != nil {
				break
			}
			if time.Now().After(end) {
				t.Fatal("blocks are kept though the destination does not come")
			}
		}
	}
}

func TestForgedPromise(t *testing.T) {
	c := newCell(t, "tcp")
	n := c.start("n")
	to := c.engine("decode", n, decodeCut)
	forged := promised([16]byte(agent.NewID()), n)
	if !door.IsPromise(forged) {
		t.Error("an engine does not know a promise")
	}
	forged[len(forged)-1] ^= 1
	var refused *door.Problem
	if _, err := to.Accept(soon(t), door.Accept{Ticket: forged, Tokens: prompt(20), Tables: [][]uint32{{3}}}); !errors.As(err, &refused) || refused.Code != "leg" {
		t.Errorf("accepting: %v", err)
	}
	id := [16]byte(agent.NewID())
	another := trust.Leg{Kind: trust.LegDecode, ID: [16]byte{1}, Engine: "decode"}.Seal(legKey)
	if _, err := to.Accept(soon(t), door.Accept{Ticket: promised(id, n), Tokens: prompt(20), Tables: [][]uint32{{3}}, Leg: another}); !errors.As(err, &refused) || refused.Code != "leg" {
		t.Errorf("accepting with another request's leg: %v", err)
	}
	if err := to.Cancel(soon(t), door.Cancel{Ticket: forged}); !errors.As(err, &refused) || refused.Code != "leg" {
		t.Errorf("giving it back: %v", err)
	}
}

// A leg that is none is told before a ticket that is none, that before a leg of another transfer, and that
// before a ticket of another prompt.
func TestOrderOfRefusals(t *testing.T) {
	c := newCell(t, "tcp")
	n := c.start("n")
	from, to := c.engine("prefill", n, prefillCut), c.engine("decode", n, decodeCut)
	id := [16]byte(agent.NewID())
	ticket, err := from.Offer(soon(t), door.Offer{Transfer: id, Tokens: prompt(20), Tables: [][]uint32{{1, 2}}, Layers: len(model.Layers)})
	if err != nil {
		t.Fatal(err)
	}
	spoiled, other := slices.Clone(ticket), prompt(20)
	spoiled[len(spoiled)-1] ^= 1
	other[7]++
	leg := trust.Leg{Kind: trust.LegDecode, ID: id, Engine: "decode"}
	right := leg.Seal(legKey)
	leg.ID = [16]byte{1}
	wrong := leg.Seal(legKey)
	for _, c := range []struct {
		ticket, leg []byte
		tokens      []uint32
		code        string
	}{
		{spoiled, right[1:], other, "leg"},
		{spoiled, wrong, other, "forged"},
		{spoiled, right, other, "forged"},
		{ticket, wrong, other, "leg"},
		{ticket, right, other, "other_prompt"},
		{ticket, wrong, prompt(20), "leg"},
	} {
		var refused *door.Problem
		if _, err := to.Accept(soon(t), door.Accept{Ticket: c.ticket, Tokens: c.tokens, Tables: [][]uint32{{3}}, Leg: c.leg}); !errors.As(err, &refused) || refused.Code != c.code {
			t.Errorf("%v, want %s", err, c.code)
		}
	}
	if _, err := to.Accept(soon(t), door.Accept{Ticket: ticket, Tokens: prompt(20), Tables: [][]uint32{{3}}, Leg: right}); err != nil {
		t.Fatal(err)
	}
	to.hears(t, door.Ready, id)
	from.hears(t, door.Freed, id)
}
