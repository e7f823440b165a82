package governor

import (
	"slices"
	"testing"
	"time"

	"meridian/decide/block"
	"meridian/decide/phase"
	"meridian/decide/policy"
)

// Thousands that end in one step cost about what they cost one by one, and who stays
// keeps his place.
func TestManyEndAtOnce(t *testing.T) {
	const n = 1 << 15
	g := open(t, options(t, &scripted{}))
	var begin, end Facts
	for i := range phase.Sequence(n) {
		begin.Arrivals = append(begin.Arrivals, arrival(i))
		if i%1024 != 7 {
			end.Ended = append(end.Ended, i)
		}
	}
	step(t, g, begin)
	began := time.Now()
	step(t, g, end)
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("it took %v", took)
	}
	if len(g.sequences) != n/1024 || len(g.snapshot.Requests) != n/1024 || len(g.byNumber) != n/1024 || g.Counters().Contradictions != 0 {
		t.Fatalf("%d sequences, %d requests are left", len(g.sequences), len(g.snapshot.Requests))
	}
	for i, s := range g.sequences {
		if s.index != i || s.number != phase.Sequence(1024*i+7) {
			t.Fatalf("place %d has %d, which believes to be at %d", i, s.number, s.index)
		}
	}
	if here := g.snapshot.Tenants[0].Here; here != n/1024 {
		t.Errorf("the tenant has %d", here)
	}
}

// A step of nothing but nonsense is given up early.
func TestTooManyContradictions(t *testing.T) {
	g := open(t, options(t, &scripted{}))
	f := Facts{Arrivals: []Arrival{arrival(1)}, Ended: make([]phase.Sequence, 1<<20)}
	f.Ended[1<<20-1] = 1
	if d := g.Step(&f); d.Contradictions != MaxContradictions+1 || g.Counters().Sequences != 1 {
		t.Errorf("%d contradictions, %d sequences", d.Contradictions, g.Counters().Sequences)
	}
	if d := g.Step(&Facts{Now: policy.Second, Ended: []phase.Sequence{1}}); d.Contradictions != 0 || g.Counters().Sequences != 0 {
		t.Errorf("the next step suffers: %d contradictions", d.Contradictions)
	}
}

// An engine that says again and again in one step that a sequence with very many blocks
// stopped, and was copied, has that looked into once.
func TestStoppedAndCopiedAreRepeated(t *testing.T) {
	const blocks, rows = 1 << 14, 1 << 16 // 10⁹ looks, if each row had all
	p := &scripted{}
	o := options(t, p)
	o.Blocks.Blocks = blocks
	g := open(t, o)
	step(t, g, Facts{Arrivals: []Arrival{{Sequence: 1, PromptTokens: blocks * 4}}})
	held := Facts{Commits: []Commit{{Sequence: 1, Computed: blocks * 4, Tokens: []uint32{thinkID}}}}
	for b := range block.ID(blocks) {
		held.Held = append(held.Held, Hold{1, b})
	}
	step(t, g, held)
	p.victims = []policy.Victim{{Request: 0, Reclaim: policy.Offload}}
	step(t, g, Facts{})
	p.victims = nil
	began := time.Now()
	d := step(t, g, Facts{Stopped: slices.Repeat([]Stopped{{Sequence: 1}}, rows), Copied: slices.Repeat([]Copied{{Sequence: 1, Whole: true}}, rows)})
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("it took %v", took)
	}
	if len(d.CopyOut) != 1 || len(d.CopyOut[0].Blocks) != blocks {
		t.Errorf("%d copies are asked for", len(d.CopyOut))
	}
	all := Copied{Sequence: 1, Blocks: d.CopyOut[0].Blocks, Whole: true}
	if d = step(t, g, Facts{Copied: []Copied{all}}); len(d.Evict) != blocks || g.snapshot.Requests[0].State != policy.Away {
		t.Errorf("%d blocks are free, and it is %v", len(d.Evict), g.snapshot.Requests[0].State)
	}
}

// Of those who give up blocks that were to be copied nothing is copied, and what is wished
// for others stays.
func TestManyWishesAreForgotten(t *testing.T) {
	const n = 1 << 10
	o := options(t, &scripted{})
	o.Blocks.Blocks, o.OffloadThreshold = 4*n, 4*n
	g := open(t, o)
	var begin, think, grow, end, lose Facts
	for i := range phase.Sequence(n) {
		b := block.ID(4 * i)
		begin.Arrivals = append(begin.Arrivals, arrival(i))
		think.Held = append(think.Held, Hold{i, b})
		think.Commits = append(think.Commits, Commit{Sequence: i, Computed: 4, Tokens: []uint32{thinkID}})
		grow.Held = append(grow.Held, Hold{i, b + 1}, Hold{i, b + 2}, Hold{i, b + 3})
		grow.Commits = append(grow.Commits, Commit{Sequence: i, Computed: 8, Tokens: tokens(8, 5)})
		end.Commits = append(end.Commits, Commit{Sequence: i, Computed: 3, Tokens: []uint32{endID, 92, 7}})
		if i%128 != 7 {
			lose.Stopped = append(lose.Stopped, Stopped{Sequence: i, Lost: true})
		}
	}
	step(t, g, begin)
	step(t, g, think)
	step(t, g, grow)
	step(t, g, end)
	if len(g.waiting) != 2*n {
		t.Fatalf("%d blocks are to be copied", len(g.waiting))
	}
	step(t, g, lose)
	if len(g.waiting) != 2*n/128 || g.waiting[0].sequence != 7 {
		t.Errorf("%d are left", len(g.waiting))
	}
}
