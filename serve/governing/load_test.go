package governing

import (
	"errors"
	"testing"
	"time"

	"meridian/serve/door/doorpb"
)

// An engine that tells of what never was loses its connection; one with more sequences
// than are governed tells of the others in vain, and nothing more.
func TestTooManyContradictions(t *testing.T) {
	g := newGovernors(t, testOptions(t, &clock{}, "meridian"))
	a := govern(t, g, "a", able())
	unknown := &doorpb.Step{Number: 2, Finished: make([]uint64, 64<<10)}
	if _, err := a.Step(unknown); !errors.Is(err, ErrSteps) {
		t.Errorf("got %v", err)
	}
	a.Close()
	a = govern(t, g, "a", able())
	step(t, a, &doorpb.Step{Number: 1, Begun: []*doorpb.Begun{{Sequence: 7, PromptTokens: 5}, {Sequence: 0, PromptTokens: maxTokens + 1}}})
	unknown.Sequences, unknown.BlockCounts, unknown.Blocks = []uint64{0, 7}, []uint32{4 << 10, 1}, make([]uint32, 4<<10+1)
	step(t, a, unknown)
	if s := a.engine.scheduler; s.governor.Counters().Contradictions != 0 || len(s.sequences) != 1 {
		t.Errorf("%d sequences, %v", len(s.sequences), s.governor.Counters().LastContradiction)
	}
}

// Who looks at an engine keeps no other from coming.
func TestLooksApart(t *testing.T) {
	c := &clock{}
	o := testOptions(t, c, "meridian")
	looks, goOn := make(chan bool), make(chan bool)
	var slow bool
	o.Now = func() time.Time {
		if slow {
			looks <- true
			<-goOn
		}
		return c.now()
	}
	g := newGovernors(t, o)
	govern(t, g, "a", able())
	slow = true
	seen := make(chan []Engine)
	go func() { seen <- g.Engines() }()
	<-looks
	if !g.mutex.TryLock() {
		t.Error("all engines wait for one")
	} else {
		g.mutex.Unlock()
	}
	goOn <- true
	if all := <-seen; len(all) != 1 {
		t.Errorf("%v", all)
	}
}

// What engines did that have gone is counted once, while others of them are there and
// after.
func TestGoneIsCountedOnce(t *testing.T) {
	g := newGovernors(t, testOptions(t, &clock{}, "meridian"))
	b := govern(t, g, "a", measuring())
	for n := range int64(3) {
		a := govern(t, g, "a", able())
		step(t, a, &doorpb.Step{Number: 1})
		engines, before := g.all()
		a.Close()
		if m := g.Metrics(); m.Governor.Steps != n+1 || m.Engines != 0 {
			t.Errorf("%d steps of %d engines", m.Governor.Steps, m.Engines)
		}
		for _, e := range engines { // who looked before it went finds it, too
			before.add(e.metrics(), true)
		}
		if before.Governor.Steps != n+1 {
			t.Errorf("%d steps", before.Governor.Steps)
		}
	}
	b.Close()
	if m := g.Metrics(); m.Governor.Steps != 3 || len(g.engines) != 0 {
		t.Errorf("%d steps", m.Governor.Steps)
	}
}
