package doorserver_test

import (
	"testing"

	"meridian/door"
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
		until(t, part.name+" is gone, and the rest too", func() bool { _, there := d.record(t, "wide"); return !there })
		*part.where = *c.start(map[*node]string{a: "a", b: "b"}[part.where])
	}
	wide.hears(t, door.Serving, [16]byte{})
	handOver(t, wide, other, 40, false)
}
