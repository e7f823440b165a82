package governor

import (
	"slices"
	"testing"

	"meridian/block"
	"meridian/sched"
)

// One block that the engine did not copy does not keep the others of its batch under way.
func TestAWrongBlockAmongCopies(t *testing.T) {
	g := open(t, options(t, &scripted{}))
	thinkThen(t, g, endID, 92, 7)
	g.Step(&Facts{Copied: []Copied{{Sequence: 1, Blocks: []block.ID{60, 1, 2}, Took: 2000, Whole: true}}})
	if c := g.Counters(); c.Contradictions != 1 || g.underWay != 0 || g.snapshot.Requests[0].Copied != 2 {
		t.Errorf("%+v, %d under way, %+v", c, g.underWay, g.snapshot.Requests[0])
	}
}

// What is given up is not copied out any more: others will have the blocks.
func TestNoCopyOfWhatIsGivenUp(t *testing.T) {
	p := &scripted{}
	g := open(t, options(t, p))
	thinkThen(t, g, 5)
	p.victims = []sched.Victim{{Request: 0, Reclaim: sched.Recompute}}
	d := step(t, g, Facts{Commits: []Commit{{Sequence: 1, Computed: 2, Tokens: []uint32{endID, 92, 7}}}})
	if len(d.CopyOut) != 0 || len(d.Preempt) != 1 {
		t.Errorf("%+v", d)
	}
}

// A copy that fails does not bring back what has left before.
func TestAFailedCopyOfTheRest(t *testing.T) {
	p := &scripted{}
	o := options(t, p)
	o.Blocks.Aggressive = true
	g := open(t, o)
	thinkThen(t, g, endID, 92, 7)
	step(t, g, Facts{Copied: []Copied{{Sequence: 1, Blocks: []block.ID{1, 2}, Took: 2000, Whole: true}}})
	p.victims = []sched.Victim{{Request: 0, Reclaim: sched.Offload}}
	step(t, g, Facts{})
	if d := step(t, g, Facts{Stopped: []Stopped{{Sequence: 1}}}); !slices.Equal(d.Evict, []block.ID{2, 1}) || len(d.CopyOut) != 1 {
		t.Fatalf("%+v", d)
	}
	d := step(t, g, Facts{Copied: []Copied{{Sequence: 1, Blocks: []block.ID{0, 3}}}})
	if r := p.seen.Requests[0]; r.State != sched.Away || r.Blocks != 2 || len(d.Order) != 0 {
		t.Errorf("%+v, %+v", r, d)
	}
}
