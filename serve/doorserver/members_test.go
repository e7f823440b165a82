package doorserver_test

import (
	"bytes"
	"context"
	"testing"

	"meridian/internal/until"
	"meridian/member/directory"
	"meridian/serve/door"
	"meridian/serve/doorserver"
)

// wide is one engine on two hosts: control and rank 0 at one agent, its other
// ranks at another.
func (c *cell) wide(home, other *node, shape cut) (control, ranks *engine) {
	c.t.Helper()
	ranks = c.engine("wide", other, shape, func(o *door.Options) { o.RanksOnly, o.Memory[0] = true, nil })
	ranks.sections = ranks.sections[1:]
	control = c.engine("wide", home, shape, func(o *door.Options) { o.Memory = o.Memory[:1] })
	copy(control.memory[1:], ranks.memory[1:]) // one process has both here, and looks at all of it
	return control, ranks
}

var wideCut = cut{tp: 4, pp: 1, blockTokens: 16, blocks: 64, layout: "LBHNC"}

// Ranks at several agents make one engine, which gives and takes as a whole.
func TestRanksAtSeveralAgents(t *testing.T) {
	for _, fabricName := range []string{"host", "tcp"} {
		t.Run(fabricName, func(t *testing.T) {
			c := newCell(t, fabricName)
			a, b, d := c.start("a"), c.start("b"), c.start("d")
			wide, ranks := c.wide(a, b, wideCut)
			wide.hears(t, door.Serving, [16]byte{})
			ranks.hears(t, door.Serving, [16]byte{})
			other := c.engine("other", d, decodeCut)
			id := handOver(t, wide, other, 150, false)
			ranks.hears(t, door.Freed, id)
			id = handOver(t, other, wide, 150, true)
			ranks.hears(t, door.Ready, id)
			handOver(t, other, wide, 70, false)
		})
	}
}

// Whichever part is lost, all of it is fenced, everywhere; and it comes back.
func TestPartOfAWideEngineIsLost(t *testing.T) {
	c := newCell(t, "tcp")
	a, b, d := c.start("a"), c.start("b"), c.start("d")
	wide, ranks := c.wide(a, b, wideCut)
	other := c.engine("other", d, decodeCut)
	for _, part := range []struct {
		name  string
		where *node
		lost  *engine
	}{{"its ranks at the other agent", b, wide}, {"its home", a, ranks}} {
		wide.hears(t, door.Serving, [16]byte{})
		ranks.hears(t, door.Serving, [16]byte{})
		handOver(t, wide, other, 40, false)
		part.where.stop(t)
		part.lost.hears(t, door.Fenced, [16]byte{})
		until.True(t, part.name+" is gone, and the rest too", func() bool { _, there := d.record(t, "wide"); return !there })
		*part.where = *c.start(map[*node]string{a: "a", b: "b"}[part.where])
	}
	wide.hears(t, door.Serving, [16]byte{})
	handOver(t, wide, other, 40, false)
}

// olderDirectory is that of an agent of a build that knows no object cache: what it writes
// does not say that it does.
type olderDirectory struct{ directory.Directory }

func (d olderDirectory) Create(ctx context.Context, e directory.Entry) (directory.Record, error) {
	e.Value = bytes.ReplaceAll(e.Value, []byte(`,"places":true`), nil)
	return d.Directory.Create(ctx, e)
}

// An engine keeps and finds only if all agents that have ranks of it know what an object
// cache is: others would let each of its hand-offs wait.
func TestWideEngineKeepsIfAllItsAgentsCan(t *testing.T) {
	c := newCell(t, "tcp")
	offload := &fakeOffload{joined: make(map[string]bool)}
	a, d := c.start("a", func(o *doorserver.Options) { o.Offload, offload.relay = offload, o.Relay }), c.start("d")
	older := func(o *doorserver.Options) { o.Directory = olderDirectory{o.Directory} }
	b := c.start("b", older)
	wide, ranks := c.wide(a, b, wideCut)
	other := c.engine("other", d, decodeCut)
	for _, can := range []bool{false, true} {
		wide.hears(t, door.Serving, [16]byte{})
		ranks.hears(t, door.Serving, [16]byte{})
		if joined := offload.count(func() int { return len(offload.joined) }) == 1; joined != can {
			t.Errorf("it keeps and finds: %v, where all its agents can: %v", joined, can)
		}
		handOver(t, wide, other, 40, false)
		if !can { // its agent is upgraded
			b.stop(t)
			wide.hears(t, door.Fenced, [16]byte{})
			*b = *c.start("b")
		}
	}
}
