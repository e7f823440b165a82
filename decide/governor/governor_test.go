package governor

import (
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"meridian/decide/block"
	"meridian/decide/entropy"
	"meridian/decide/phase"
	"meridian/decide/policy"
	"meridian/kv"
)

const (
	thinkID = 90
	endID   = 91
)

func thinker(t testing.TB) *phase.Model {
	t.Helper()
	m, err := phase.NewModel(phase.Markers{
		Start: []phase.Marker{{IDs: []uint32{thinkID}}}, End: []phase.Marker{{IDs: []uint32{endID, 92}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// scripted is a policy that runs every request that can, and does what a test says.
type scripted struct {
	victims []policy.Victim
	recall  []int32
	rest    []int32 // left out
	seen    policy.Snapshot
}

func (*scripted) Name() string { return "scripted" }

func (p *scripted) Decide(s *policy.Snapshot, d *policy.Decision) {
	p.seen = *s
	p.seen.Requests = slices.Clone(s.Requests)
	*d = policy.Decision{Victims: p.victims, Recall: p.recall, Steps: 100}
	stops := func(i int32) bool {
		return slices.Contains(p.rest, i) || slices.ContainsFunc(p.victims, func(v policy.Victim) bool { return v.Request == i })
	}
	for i := range int32(len(s.Requests)) {
		if r := &s.Requests[i]; (r.Holds() || r.State == policy.Waiting) && !stops(i) {
			d.Run = append(d.Run, policy.Allotment{Request: i, Tokens: r.Pending})
		}
	}
	p.victims, p.recall = nil, nil
}

func probing() entropy.Options {
	return entropy.Options{Alpha: 0.5, EATVariance: 1e-3, EATInterval: 1, RPDI: 2, Transition: 2.5, MinThinkTokens: 4}
}

func options(t testing.TB, p policy.Policy) Options {
	return Options{
		Model: thinker(t), Policy: p, Limits: policy.Limits{Tokens: 64, Sequences: 8, BlockTokens: 4, Blocks: 64, PreemptMaxFraction: 0.1},
		Budget: Budget{MaxThinkTokens: 10, Entropy: true, Probe: probing()}, Blocks: block.Options{Blocks: 64},
		OffloadThreshold: 2, Offloads: true,
	}
}

func open(t testing.TB, o Options) *Governor {
	t.Helper()
	g, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// step feeds facts and demands that none of them contradicts another.
func step(t testing.TB, g *Governor, f Facts) *Decision {
	t.Helper()
	d := g.Step(&f)
	if c := g.Counters(); c.Contradictions > 0 {
		t.Fatal(c.LastContradiction)
	}
	return d
}

func arrival(s phase.Sequence) Arrival { return Arrival{Sequence: s, At: 1, PromptTokens: 4} }

func tokens(n int, id uint32) []uint32 { return slices.Repeat([]uint32{id}, n) }

func TestHardCap(t *testing.T) {
	for name, c := range map[string]struct {
		enabled   bool
		entropies []float64
	}{
		"disabled": {false, nil},
		"absent":   {true, nil},
		"measured": {true, slices.Repeat([]float64{1}, 10)},
	} {
		o := options(t, &scripted{})
		o.Budget.Entropy = c.enabled
		g := open(t, o)
		step(t, g, Facts{Arrivals: []Arrival{arrival(1)}})
		if d := step(t, g, Facts{Commits: []Commit{{Sequence: 1, Computed: 4, Tokens: []uint32{thinkID}}}}); len(d.Force) != 0 || d.Steps != 10 {
			t.Errorf("%s: %v, holds for %d steps", name, d.Force, d.Steps)
		}
		d := step(t, g, Facts{Commits: []Commit{{Sequence: 1, Computed: 10, Tokens: tokens(10, 5), Entropies: c.entropies}}})
		want := []Force{{Sequence: 1, Reason: HardCap, Tokens: []uint32{endID, 92}}}
		if diff := cmp.Diff(want, d.Force); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		// The engine needs some steps; then it is told again.
		if d = step(t, g, Facts{Commits: []Commit{{Sequence: 1, Computed: 1, Tokens: []uint32{5}}}}); len(d.Force) != 0 {
			t.Errorf("%s: at once again", name)
		}
		if d = step(t, g, Facts{Commits: []Commit{{Sequence: 1, Computed: 31, Tokens: tokens(31, 5)}}}); len(d.Force) != 1 {
			t.Errorf("%s: never again", name)
		}
		if d = step(t, g, Facts{Commits: []Commit{{Sequence: 1, Computed: 2, Tokens: []uint32{endID, 92, 5}}}}); len(d.Force) != 0 || g.Phase(1) != kv.Output {
			t.Errorf("%s: %v in %v", name, d.Force, g.Phase(1))
		}
		if n := g.Counters(); n.Forced != [4]int64{HardCap: 1} || n.Thoughts != 1 || n.ThinkTokens != 42 {
			t.Errorf("%s: %+v", name, n)
		}
	}
}

// The cap of a request is what it asked for, but no more than is allowed.
func TestCapOfARequest(t *testing.T) {
	for asked, want := range map[int32]int{0: 10, 3: 3, 99: 10} {
		o := options(t, &scripted{})
		g := open(t, o)
		a := arrival(1)
		a.MaxThinkTokens = asked
		step(t, g, Facts{Arrivals: []Arrival{a}})
		step(t, g, Facts{Commits: []Commit{{Sequence: 1, Computed: 4, Tokens: []uint32{thinkID}}}})
		n := 0
		for len(g.decision.Force) == 0 {
			n++
			step(t, g, Facts{Commits: []Commit{{Sequence: 1, Computed: 1, Tokens: []uint32{5}}}})
		}
		if n != want {
			t.Errorf("asked for %d: ended after %d, want %d", asked, n, want)
		}
	}
}

func TestConverged(t *testing.T) {
	o := options(t, &scripted{})
	o.Budget.MaxThinkTokens, o.Forks = 1000, true
	o.Texts = func(id uint32) []byte { return []byte(map[bool]string{true: ".\n\n", false: "a"}[id == 6]) }
	g := open(t, o)
	step(t, g, Facts{Arrivals: []Arrival{arrival(1)}})
	step(t, g, Facts{Commits: []Commit{{Sequence: 1, Computed: 4, Tokens: []uint32{thinkID, 5, 5}}}})
	forks := 0
	for range 40 {
		d := step(t, g, Facts{Commits: []Commit{{Sequence: 1, Computed: 1, Tokens: []uint32{6}}}})
		if len(d.Fork) == 0 {
			continue
		}
		forks++
		d = step(t, g, Facts{Forks: []Fork{{Sequence: 1, Nats: 0.5}}})
		if len(d.Force) > 0 {
			if d.Force[0].Reason != Converged || forks <= entropy.WarmUp(0.5) {
				t.Errorf("%+v after %d forks", d.Force, forks)
			}
			return
		}
	}
	t.Errorf("not ended after %d forks", forks)
}

func TestOverthinking(t *testing.T) {
	o := options(t, &scripted{})
	o.Budget.MaxThinkTokens = 1 << 20
	g := open(t, o)
	step(t, g, Facts{Arrivals: []Arrival{arrival(1)}})
	step(t, g, Facts{Commits: []Commit{{Sequence: 1, Computed: 4, Tokens: []uint32{thinkID}}}})
	entropies := append(slices.Repeat([]float64{0.1}, 4*entropy.Window), slices.Repeat([]float64{2}, entropy.Window)...)
	d := step(t, g, Facts{Commits: []Commit{{Sequence: 1, Computed: 5, Tokens: tokens(len(entropies), 5), Entropies: entropies}}})
	if len(d.Force) != 1 || d.Force[0].Reason != Overthinking {
		t.Errorf("%+v", d.Force)
	}
}

// thinkThen runs a sequence through a thought that fills blocks 1, 2 and 3.
func thinkThen(t *testing.T, g *Governor, more ...uint32) *Decision {
	t.Helper()
	step(t, g, Facts{Arrivals: []Arrival{arrival(1)}})
	step(t, g, Facts{Held: []Hold{{1, 0}}, Commits: []Commit{{Sequence: 1, Computed: 4, Tokens: []uint32{thinkID}}}})
	step(t, g, Facts{Held: []Hold{{1, 1}, {1, 2}, {1, 3}}, Commits: []Commit{{Sequence: 1, Computed: 8, Tokens: tokens(8, 5)}}})
	return step(t, g, Facts{Commits: []Commit{{Sequence: 1, Computed: int32(len(more)), Tokens: more}}})
}

func TestThoughtIsCopiedOut(t *testing.T) {
	g := open(t, options(t, &scripted{}))
	d := thinkThen(t, g, endID, 92, 7)
	if diff := cmp.Diff([]CopyOut{{Sequence: 1, Blocks: []block.ID{1, 2}}}, d.CopyOut); diff != "" {
		t.Error(diff)
	}
	step(t, g, Facts{Copied: []Copied{{Sequence: 1, Blocks: []block.ID{1, 2}, Took: 2000, Whole: true}}})
	if r := g.snapshot.Requests[0]; r.Copied != 2 || r.State != policy.Running || g.Costs().CopiedBlock != 1000 || g.underWay != 0 {
		t.Errorf("%+v, %+v, %d under way", r, g.Costs(), g.underWay)
	}
}

func TestSmallBatchesWait(t *testing.T) {
	o := options(t, &scripted{})
	o.OffloadThreshold = 3
	g := open(t, o)
	if d := thinkThen(t, g, endID, 92, 7); len(d.CopyOut) != 0 || len(g.waiting) != 2 {
		t.Errorf("%v, %d wait", d.CopyOut, len(g.waiting))
	}
	step(t, g, Facts{Ended: []phase.Sequence{1}})
	if len(g.waiting) != 0 {
		t.Error("the end of a sequence left its blocks behind")
	}
}

func TestOffloadAndRecall(t *testing.T) {
	p := &scripted{}
	g := open(t, options(t, p))
	thinkThen(t, g, 5, 5)
	p.victims = []policy.Victim{{Request: 0, Reclaim: policy.Offload, Reason: policy.Thinking}}
	d := step(t, g, Facts{})
	if len(d.Preempt) != 1 || d.Preempt[0].Reclaim != policy.Offload || len(d.CopyOut) != 0 || len(d.Order) != 0 {
		t.Fatalf("%+v", d)
	}
	// A step that was under way commits; then the engine stops it.
	step(t, g, Facts{Commits: []Commit{{Sequence: 1, Computed: 1, Tokens: []uint32{5}}}})
	d = step(t, g, Facts{Stopped: []Stopped{{Sequence: 1}}})
	if len(d.CopyOut) != 1 || !slices.Equal(d.CopyOut[0].Blocks, []block.ID{0, 1, 2, 3}) || len(d.Evict) != 0 {
		t.Fatalf("%+v", d)
	}
	d = step(t, g, Facts{Copied: []Copied{{Sequence: 1, Blocks: []block.ID{0, 1, 2, 3}, Took: 4000, Whole: true}}})
	if !slices.Equal(d.Evict, []block.ID{0, 1, 2, 3}) || p.seen.Requests[0].State != policy.Away || p.seen.Requests[0].Blocks != 4 {
		t.Fatalf("%+v, %+v", d, p.seen.Requests[0])
	}
	p.recall = []int32{0}
	if d = step(t, g, Facts{}); !slices.Equal(d.Recall, []phase.Sequence{1}) || len(d.Order) != 0 {
		t.Fatalf("%+v", d)
	}
	d = step(t, g, Facts{Recalled: []Recalled{{Sequence: 1, Blocks: []block.ID{9, 8, 7, 6}, Took: 8000, Whole: true}}})
	if !slices.Equal(d.Resume, []phase.Sequence{1}) || len(d.Order) != 1 || g.Costs().RecalledBlock != 2000 {
		t.Fatalf("%+v, %+v", d, g.Costs())
	}
	step(t, g, Facts{Commits: []Commit{{Sequence: 1, Computed: 1, Tokens: []uint32{endID, 92, 4}}}, Held: []Hold{{1, 20}}})
	if r := g.snapshot.Requests[0]; r.Preemptions != 1 || r.Blocks != 5 || r.Phase != kv.Output || r.State != policy.Running {
		t.Errorf("%+v", r)
	}
}

// Who has stopped and whose blocks are being copied computes nothing, whatever a
// commit says; what its last step computed may be said together with its stop.
func TestCommitAfterTheStop(t *testing.T) {
	for name, later := range map[string]bool{"with the stop": false, "later": true} {
		p := &scripted{}
		g := open(t, options(t, p))
		thinkThen(t, g, 5, 5)
		p.victims = []policy.Victim{{Request: 0, Reclaim: policy.Offload, Reason: policy.Thinking}}
		step(t, g, Facts{})
		before := g.snapshot.Requests[0]
		commits := []Commit{{Sequence: 1, Computed: 1, Tokens: []uint32{5}}}
		if later {
			step(t, g, Facts{Stopped: []Stopped{{Sequence: 1}}})
			g.Step(&Facts{Commits: commits})
		} else {
			g.Step(&Facts{Stopped: []Stopped{{Sequence: 1}}, Commits: commits})
		}
		r, contradicted := g.snapshot.Requests[0], g.Counters().Contradictions > 0
		if r.State != policy.Leaving || contradicted != later || (r.Length == before.Length) != later || r.Think != before.Think+1 {
			t.Errorf("%s: %+v, was %+v; %v", name, r, before, g.Counters().LastContradiction)
		}
	}
}

func TestFabricDown(t *testing.T) {
	p := &scripted{}
	g := open(t, options(t, p))
	thinkThen(t, g, 5, 5)
	d := step(t, g, Facts{FabricDown: true, Commits: []Commit{{Sequence: 1, Computed: 2, Tokens: []uint32{endID, 92}}}})
	if c := p.seen.Costs; len(d.CopyOut) != 0 || c.CopiedBlock != 0 || c.RecalledBlock != 0 {
		t.Errorf("%v, %+v", d.CopyOut, c)
	}
	p.victims = []policy.Victim{{Request: 0, Reclaim: policy.Offload}}
	if d = step(t, g, Facts{FabricDown: true}); len(d.Preempt) != 1 || d.Preempt[0].Reclaim != policy.Recompute {
		t.Errorf("%+v", d.Preempt)
	}
	d = step(t, g, Facts{FabricDown: true, Stopped: []Stopped{{Sequence: 1, Lost: true}}})
	if r := p.seen.Requests[0]; r.State != policy.Waiting || r.Length != 0 || r.Pending != 4+13 || len(d.Order) != 1 {
		t.Errorf("%+v", r)
	}
}

// Who is away when the fabric goes down is computed anew once that would have
// been quicker than waiting.
func TestAwayWhileTheFabricIsDown(t *testing.T) {
	p := &scripted{}
	g := open(t, options(t, p))
	thinkThen(t, g, 5, 5)
	p.victims = []policy.Victim{{Request: 0, Reclaim: policy.Offload}}
	for range counts {
		step(t, g, Facts{Took: 1000, Computed: 1, Sequences: 1})
		step(t, g, Facts{Took: 3000, Computed: 11, Sequences: 1})
	}
	step(t, g, Facts{Stopped: []Stopped{{Sequence: 1}}})
	step(t, g, Facts{Copied: []Copied{{Sequence: 1, Blocks: []block.ID{0, 1, 2, 3}, Took: 4000, Whole: true}}})
	if d := step(t, g, Facts{Now: 10_000, FabricDown: true}); len(d.Preempt) != 0 || p.seen.Requests[0].State != policy.Away {
		t.Fatalf("%+v, %+v", d, p.seen.Requests[0])
	}
	d := step(t, g, Facts{Now: 10_000 + 200*15, FabricDown: true})
	if len(d.Preempt) != 1 || d.Preempt[0].Reclaim != policy.Recompute || p.seen.Requests[0].State != policy.Waiting || len(d.Order) != 1 {
		t.Fatalf("%+v, %+v", d, p.seen.Requests[0])
	}
	if c, _ := g.Blocks(); c.Held != [3]int{} {
		t.Errorf("%+v", c)
	}
}

func TestFailedCopies(t *testing.T) {
	p := &scripted{}
	g := open(t, options(t, p))
	thinkThen(t, g, 5, 5)
	p.victims = []policy.Victim{{Request: 0, Reclaim: policy.Offload}}
	step(t, g, Facts{})
	step(t, g, Facts{Stopped: []Stopped{{Sequence: 1}}})
	d := step(t, g, Facts{Copied: []Copied{{Sequence: 1, Blocks: []block.ID{0, 1, 2, 3}}}})
	if !slices.Equal(d.Resume, []phase.Sequence{1}) || len(d.Evict) != 0 || g.Counters().FailedCopies != 4 {
		t.Errorf("%+v", d)
	}
}

// An engine that does not carry a preemption out is believed.
func TestPreemptionIgnored(t *testing.T) {
	p := &scripted{}
	g := open(t, options(t, p))
	thinkThen(t, g, 5, 5)
	p.victims = []policy.Victim{{Request: 0, Reclaim: policy.Recompute}}
	step(t, g, Facts{})
	for range ignoredOften {
		if d := step(t, g, Facts{}); len(d.Order) != 0 {
			t.Fatalf("ordered although it is to stop: %+v", d)
		}
		step(t, g, Facts{Commits: []Commit{{Sequence: 1, Computed: 1, Tokens: []uint32{5}}}})
	}
	if r := g.snapshot.Requests[0]; r.State != policy.Running || r.Length != 14+ignoredOften || r.Blocks != 4 || r.Pending != 1 || r.Preemptions != 0 {
		t.Errorf("%+v", r)
	}
}

func TestPauseAndResume(t *testing.T) {
	p := &scripted{}
	g := open(t, options(t, p))
	thinkThen(t, g, 5, 5)
	p.rest = []int32{0}
	if d := step(t, g, Facts{}); !slices.Equal(d.Pause, []phase.Sequence{1}) || len(d.Order) != 0 {
		t.Errorf("%+v", d)
	}
	if d := step(t, g, Facts{}); len(d.Pause) != 0 {
		t.Errorf("paused twice: %+v", d)
	}
	p.rest = nil
	if d := step(t, g, Facts{}); !slices.Equal(d.Resume, []phase.Sequence{1}) {
		t.Errorf("%+v", d)
	}
}

// A pause reaches the engine after it has begun its next step, so the one that is to wait
// computes once more. It is paused all the same, and has to be told when it may go on.
func TestResumeAfterAStepThatOverlappedThePause(t *testing.T) {
	p := &scripted{}
	g := open(t, options(t, p))
	thinkThen(t, g, 5, 5)
	p.rest = []int32{0}
	if d := step(t, g, Facts{}); !slices.Equal(d.Pause, []phase.Sequence{1}) {
		t.Fatalf("%+v", d)
	}
	p.rest = nil
	if d := step(t, g, Facts{Commits: []Commit{{Sequence: 1, Computed: 1, Tokens: tokens(1, 5)}}}); !slices.Equal(d.Resume, []phase.Sequence{1}) {
		t.Errorf("the engine leaves it out for ever: %+v", d)
	}
	if d := step(t, g, Facts{}); len(d.Resume) != 0 {
		t.Errorf("resumed twice: %+v", d)
	}
}

func TestCarry(t *testing.T) {
	here, there := open(t, options(t, &scripted{})), open(t, options(t, &scripted{}))
	a := arrival(1)
	a.MaxThinkTokens = 5
	step(t, here, Facts{Arrivals: []Arrival{a}})
	step(t, here, Facts{Commits: []Commit{{Sequence: 1, Computed: 4, Tokens: []uint32{thinkID, 5, 5, 5}}}})
	carry, known := here.Carry(1)
	if !known {
		t.Fatal("it is not there")
	}
	step(t, there, Facts{Arrivals: []Arrival{{Sequence: 7, At: 1, PromptTokens: 4, Resumed: &carry}}})
	if r := there.snapshot.Requests[0]; r.Phase != kv.Think || r.Think != 3 || r.Pending != 8 {
		t.Errorf("%+v", r)
	}
	if d := step(t, there, Facts{Commits: []Commit{{Sequence: 7, Computed: 8, Tokens: []uint32{5, 5}}}}); len(d.Force) != 1 || d.Force[0].Reason != HardCap {
		t.Errorf("the budget stayed behind: %+v", d.Force)
	}
	if _, known = here.Carry(9); known {
		t.Error("a sequence that never was has a budget")
	}
}

func TestReaped(t *testing.T) {
	p := &scripted{}
	g := open(t, options(t, p))
	step(t, g, Facts{Arrivals: []Arrival{arrival(1), arrival(2)}})
	step(t, g, Facts{Now: 2, Commits: []Commit{{Sequence: 1, Computed: 4, Tokens: []uint32{5}}}}) // the other waits
	var reaped []phase.Sequence
	for range reapEvery {
		reaped = append(reaped, step(t, g, Facts{Now: 61 * policy.Second}).Reaped...)
	}
	if !slices.Equal(reaped, []phase.Sequence{1}) || len(g.sequences) != 1 || g.Phase(1) != kv.Complete {
		t.Errorf("%v, %d are left", reaped, len(g.sequences))
	}
}

// Phases that are given and phases that are found lead to the same decisions.
func TestGivenPhasesDecideTheSame(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		byTokens, byPhase := open(t, options(t, newPolicy(t, "stock"))), open(t, options(t, newPolicy(t, "stock")))
		machine := thinker(t).Begin(phase.Prompt{})
		both := func(f Facts, given Facts) {
			a, b := byTokens.Step(&f), byPhase.Step(&given)
			if diff := cmp.Diff(a, b); diff != "" {
				rt.Fatalf("wrong: %s", diff)
			}
		}
		f := Facts{Arrivals: []Arrival{arrival(1)}, FreeBlocks: 60}
		both(f, f)
		for range rapid.IntRange(1, 30).Draw(rt, "steps") {
			found := rapid.SliceOfN(rapid.SampledFrom([]uint32{5, 5, 5, thinkID, endID, 92}), 1, 4).Draw(rt, "tokens")
			machine.Step(found, nil)
			now := policy.Instant(machine.Tokens())
			c := Commit{Sequence: 1, Computed: int32(len(found)), Tokens: found}
			g := Commit{Sequence: 1, Computed: c.Computed, Given: &KnownPhase{
				Phase: machine.Phase(), Found: int32(len(found)), Think: int32(machine.Think()), Output: int32(machine.Output()),
			}}
			both(Facts{Now: now, FreeBlocks: 60, Commits: []Commit{c}}, Facts{Now: now, FreeBlocks: 60, Commits: []Commit{g}})
		}
	})
}

func newPolicy(t testing.TB, name string) policy.Policy {
	t.Helper()
	p, err := policy.New(name, policy.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Whatever an engine says, a decision comes, and what contradicts is counted.
func TestNonsense(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		name := rapid.SampledFrom(policy.Names()).Draw(rt, "policy")
		g, again := open(t, options(t, newPolicy(t, name))), open(t, options(t, newPolicy(t, name)))
		for i := range rapid.IntRange(1, 40).Draw(rt, "steps") {
			f := nonsense(rt, policy.Instant(i)*policy.Millisecond)
			d := g.Step(&f)
			if diff := cmp.Diff(again.Step(&f), d); diff != "" {
				rt.Fatalf("wrong: not the same twice: %s", diff)
			}
			for _, run := range d.Order {
				if g.byNumber[run.Sequence] == nil {
					rt.Fatalf("%d is ordered and unknown", run.Sequence)
				}
			}
			if len(g.sequences) != len(g.snapshot.Requests) || len(g.sequences) != len(g.byNumber) || len(g.sequences) != g.phases.Len() {
				rt.Fatalf("%d, %d, %d, %d sequences", len(g.sequences), len(g.snapshot.Requests), len(g.byNumber), g.phases.Len())
			}
		}
	})
}

func nonsense(t *rapid.T, now policy.Instant) Facts {
	f := Facts{
		Now: now, Took: policy.Instant(rapid.Int64Range(-1, 1e7).Draw(t, "took")), Computed: rapid.Int32Range(-1, 99).Draw(t, "computed"),
		Sequences: rapid.Int32Range(-1, 9).Draw(t, "sequences"), FreeBlocks: rapid.Int32Range(0, 64).Draw(t, "free"), FabricDown: rapid.Bool().Draw(t, "down"),
	}
	for range rapid.IntRange(0, 6).Draw(t, "facts") {
		s := phase.Sequence(rapid.IntRange(0, 4).Draw(t, "sequence"))
		blocks := []block.ID{block.ID(rapid.IntRange(0, 70).Draw(t, "block"))}
		took, whole := policy.Instant(rapid.Int64Range(-5, 1e6).Draw(t, "copying")), rapid.Bool().Draw(t, "whole")
		switch rapid.IntRange(0, 8).Draw(t, "kind") {
		case 0:
			f.Arrivals = append(f.Arrivals, Arrival{Sequence: s, At: now, PromptTokens: rapid.Int32Range(-1, 40).Draw(t, "prompt"), Tenant: rapid.Int32Range(-1, 2).Draw(t, "tenant"), Cached: rapid.Int32Range(-1, 9).Draw(t, "cached")})
		case 1:
			f.Held = append(f.Held, Hold{s, blocks[0]})
		case 2:
			f.Evicted = append(f.Evicted, blocks[0])
		case 3:
			f.Forks = append(f.Forks, Fork{s, math.NaN()})
		case 4:
			f.Ended = append(f.Ended, s)
		case 5:
			f.Stopped = append(f.Stopped, Stopped{s, whole})
		case 6:
			f.Copied = append(f.Copied, Copied{s, blocks, took, whole})
		case 7:
			f.Recalled = append(f.Recalled, Recalled{s, blocks, took, whole})
		default:
			found := rapid.SliceOfN(rapid.SampledFrom([]uint32{5, 5, 5, thinkID, endID, 92}), 0, 4).Draw(t, "tokens")
			f.Commits = append(f.Commits, Commit{Sequence: s, Computed: rapid.Int32Range(-1, 12).Draw(t, "kv"), Tokens: found, Entropies: slices.Repeat([]float64{1}, rapid.IntRange(0, 4).Draw(t, "entropies"))})
		}
	}
	return f
}

func TestOptionsRefused(t *testing.T) {
	for name, change := range map[string]func(*Options){
		"no cap":    func(o *Options) { o.Budget.MaxThinkTokens = 0 },
		"no policy": func(o *Options) { o.Policy = nil },
		"no blocks": func(o *Options) { o.Limits.BlockTokens = 0 },
	} {
		o := options(t, &scripted{})
		change(&o)
		if _, err := New(o); !errors.Is(err, ErrOptions) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
