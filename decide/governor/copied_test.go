package governor

import (
	"slices"
	"testing"

	"meridian/decide/block"
	"meridian/decide/phase"
	"meridian/decide/policy"
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

// An engine that has not heard yet that a block is to be copied may give it up, and others
// use it: that is no contradiction, and what it says of the copy later is of what was there.
func TestACopyIsAskedForTooLate(t *testing.T) {
	for _, whole := range []bool{false, true} {
		g := open(t, options(t, &scripted{}))
		thinkThen(t, g, endID, 92, 7)
		step(t, g, Facts{Ended: []phase.Sequence{1}})
		step(t, g, Facts{Evicted: []block.ID{1, 2}, Arrivals: []Arrival{{Sequence: 2, At: 2, PromptTokens: 8}}, Held: []Hold{{2, 1}, {2, 2}}})
		if location, _ := g.blocks.Location(1); location != block.Here || g.underWay != 2 {
			t.Errorf("block 1 is %v, %d are under way", location, g.underWay)
		}
		step(t, g, Facts{Copied: []Copied{{Sequence: 1, Blocks: []block.ID{1, 2}, Took: 2000, Whole: whole}}})
		if location, _ := g.blocks.Location(1); location != block.Here || g.underWay != 0 || len(g.outdated) != 0 || g.Counters().Contradictions != 0 {
			t.Errorf("block 1 is %v, %d under way, %d outdated, %+v", location, g.underWay, len(g.outdated), g.Counters())
		}
	}
}

// What is given up is not copied out any more: others will have the blocks.
func TestNoCopyOfWhatIsGivenUp(t *testing.T) {
	p := &scripted{}
	g := open(t, options(t, p))
	thinkThen(t, g, 5)
	p.victims = []policy.Victim{{Request: 0, Reclaim: policy.Recompute}}
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
	p.victims = []policy.Victim{{Request: 0, Reclaim: policy.Offload}}
	step(t, g, Facts{})
	if d := step(t, g, Facts{Stopped: []Stopped{{Sequence: 1}}}); !slices.Equal(d.Evict, []block.ID{2, 1}) || len(d.CopyOut) != 1 {
		t.Fatalf("%+v", d)
	}
	d := step(t, g, Facts{Copied: []Copied{{Sequence: 1, Blocks: []block.ID{0, 3}}}})
	if r := p.seen.Requests[0]; r.State != policy.Away || r.Blocks != 2 || len(d.Order) != 0 {
		t.Errorf("%+v, %+v", r, d)
	}
}

// Who waits and shares a block with one that leaves is away as well: it is recalled before
// it runs, and not ordered to run without the block.
func TestWhoSharesWhatLeavesIsAwayToo(t *testing.T) {
	p := &scripted{}
	g := open(t, options(t, p))
	thinkThen(t, g, 5)
	step(t, g, Facts{Arrivals: []Arrival{{Sequence: 2, At: 2, PromptTokens: 9, Cached: 4, Shared: 1}}})
	p.rest = []int32{1}
	step(t, g, Facts{Held: []Hold{{2, 0}, {2, 10}}, Commits: []Commit{{Sequence: 2, Computed: 5, Tokens: []uint32{thinkID}}}})
	p.victims = []policy.Victim{{Request: 0, Reclaim: policy.Offload}}
	step(t, g, Facts{})
	step(t, g, Facts{Stopped: []Stopped{{Sequence: 1}}})
	p.rest = nil
	d := step(t, g, Facts{Copied: []Copied{{Sequence: 1, Blocks: []block.ID{0, 1, 2, 3}, Took: 4000, Whole: true}}})
	if r := p.seen.Requests[1]; !slices.Contains(d.Evict, 0) || r.State != policy.Away || r.Blocks != 1 || len(d.Order) != 0 {
		t.Fatalf("%+v, %+v", d, r)
	}
	p.recall = []int32{1}
	if d = step(t, g, Facts{}); !slices.Equal(d.Recall, []phase.Sequence{2}) {
		t.Fatalf("%+v", d)
	}
	d = step(t, g, Facts{Recalled: []Recalled{{Sequence: 2, Blocks: []block.ID{0}, Took: 1, Whole: true}}})
	if len(d.Order) != 1 || !slices.Equal(d.Resume, []phase.Sequence{2}) {
		t.Errorf("%+v", d)
	}
	// The other finds the block that they share here.
	p.recall = []int32{0}
	step(t, g, Facts{})
	d = step(t, g, Facts{Recalled: []Recalled{{Sequence: 1, Blocks: []block.ID{0, 21, 22, 23}, Took: 1, Whole: true}}})
	if r := p.seen.Requests[0]; len(d.Order) != 2 || r.Blocks != 4 || r.Length != 13 {
		t.Errorf("%+v, %+v", d, r)
	}
}

// An engine that no longer waits for the governor has brought a sequence back without being asked:
// it is back all the same.
func TestBackUnasked(t *testing.T) {
	p := &scripted{}
	g := open(t, options(t, p))
	thinkThen(t, g, 5)
	p.victims = []policy.Victim{{Request: 0, Reclaim: policy.Offload}}
	step(t, g, Facts{})
	step(t, g, Facts{Stopped: []Stopped{{Sequence: 1}}})
	step(t, g, Facts{Copied: []Copied{{Sequence: 1, Blocks: []block.ID{0, 1, 2, 3}, Took: 4000, Whole: true}}})
	step(t, g, Facts{
		Recalled: []Recalled{{Sequence: 1, Blocks: []block.ID{9, 8, 7, 6}, Took: 1, Whole: true}},
		Commits:  []Commit{{Sequence: 1, Computed: 1, Tokens: []uint32{5}}},
	})
	if r := p.seen.Requests[0]; r.State != policy.Running || r.Blocks != 4 || r.Length != 14 {
		t.Errorf("%+v", r)
	}
	// One that stays, since its copies take too long, goes on with what it has.
	p.victims = []policy.Victim{{Request: 0, Reclaim: policy.Offload}}
	step(t, g, Facts{})
	step(t, g, Facts{Stopped: []Stopped{{Sequence: 1}}})
	step(t, g, Facts{Copied: []Copied{{Sequence: 1}}, Commits: []Commit{{Sequence: 1, Computed: 1, Tokens: []uint32{5}}}})
	if r := p.seen.Requests[0]; r.State != policy.Running || r.Length != 15 {
		t.Errorf("%+v", r)
	}
}
