package governing

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"

	"meridian/decide/governor"
	"meridian/decide/phase"
	"meridian/serve/door/doorpb"
)

// Entropies that another connection measured lead to the same end of a thought as those
// that come with their tokens, in whatever order and pieces they come before them.
func TestMeasuredElsewhere(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		const tokens = 1600
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(r, "seed"), 0))
		nats := make([]float32, tokens)
		for i := range nats { // a chain that loses its way at some point
			nats[i] = 0.1 + 0.2*random.Float32()
			if i > 1200 {
				nats[i] *= 20
			}
		}
		c := &clock{}
		o := testOptions(t, c, "meridian")
		o.Budget.MaxThinkTokens = 2 * tokens
		g := newGovernors(t, o)
		own := newThought(t, g, c, "own")
		own.begin([]uint32{thinkID}, 0)
		want, reason := own.forcedAt(func(i int) float32 { return nats[i] })
		if reason != "overthinking" {
			r.Fatalf("ended by %s after %d", reason, want)
		}

		early := rapid.Bool().Draw(r, "before the scheduler")
		measures := []*Connection{govern(t, g, "other", measuring()), govern(t, g, "other", measuring())}
		number := [2]uint64{}
		told := 0
		ahead := func(upTo int) { // tells up to a place, in pieces of any order
			var pieces [][2]int
			for told < upTo {
				n := min(1+random.IntN(9), upTo-told)
				pieces, told = append(pieces, [2]int{told, n}), told+n
			}
			random.Shuffle(len(pieces), func(i, j int) { pieces[i], pieces[j] = pieces[j], pieces[i] })
			for _, at := range pieces {
				which := random.IntN(2)
				number[which]++
				step(t, measures[which], &doorpb.Step{
					Number: number[which], Sequences: []uint64{7}, Places: []uint32{uint32(at[0]) + 1}, Counts: []uint32{uint32(at[1])}, Entropies: nats[at[0] : at[0]+at[1]],
				})
			}
		}
		if early {
			ahead(20)
		}
		there := newThought(t, g, c, "other")
		there.begin([]uint32{thinkID}, 0)
		got, why := there.forcedAt(func(i int) float32 {
			if told < tokens && told-i < 10 {
				ahead(min(tokens, i+1+random.IntN(60)))
			}
			return float32(math.NaN()) // none in this connection
		})
		if got != want || why != reason {
			r.Fatalf("ended after %d by %s, and with entropies of its own after %d by %s", got, why, want, reason)
		}
		if m := g.Metrics(); m.Missed != 0 || m.Late != 0 || m.Measured != int64(told) {
			r.Fatalf("%d measured, %d missed, %d late; told %d", m.Measured, m.Missed, m.Late, told)
		}
		if seen := g.Engines()[0].Requests[0]; seen.Measured != int64(got) || seen.Entropy == nil || *seen.Entropy != float64(nats[got-1]) {
			r.Fatalf("seen: %+v", seen)
		}
	})
}

// What comes after its tokens is late, what has not come is missed, and the thought is
// ended by its cap alone.
func TestMeasuredLate(t *testing.T) {
	c := &clock{}
	g := newGovernors(t, testOptions(t, c, "meridian"))
	other := govern(t, g, "a", measuring())
	one := newThought(t, g, c, "a")
	one.begin([]uint32{thinkID, word}, 0)
	at, reason := one.forcedAt(unmeasured)
	if at != 23 || reason != "hard_cap" {
		t.Errorf("ended after %d by %s", at, reason)
	}
	// Places 2 to 24 are committed, 25 and 26 are not.
	step(t, other, &doorpb.Step{Number: 1, Sequences: []uint64{7}, Places: []uint32{20}, Counts: []uint32{7}, Entropies: make([]float32, 7)})
	if m := g.Metrics(); m.Missed != 23 || m.Late != 5 || m.Measured != 7 {
		t.Errorf("%d missed, %d late, %d measured", m.Missed, m.Late, m.Measured)
	}
	one.token(word, float32(math.NaN()))
	if r := g.Engines()[0].Requests[0]; r.Measured != 1 {
		t.Errorf("the one that came in time was not taken: %+v", r)
	}
}

// What is measured of sequences that no scheduler tells of is bounded, and an end
// forgets what waits.
func TestMeasuredOfStrangers(t *testing.T) {
	c := &clock{}
	g := newGovernors(t, testOptions(t, c, "meridian"))
	other, a := govern(t, g, "a", measuring()), govern(t, g, "a", able())
	for i := range uint64(5 * maxStrangers) {
		step(t, other, &doorpb.Step{Number: i + 1, Sequences: []uint64{i}, Places: []uint32{math.MaxUint32 - 1}, Counts: []uint32{3}, Entropies: []float32{1, 2, 3}})
	}
	h := a.engine.heard
	if len(h.bySequence) > 2*maxStrangers || len(h.strangers) > 2*maxStrangers || h.forgotten < 3*maxStrangers-1 {
		t.Errorf("%d sequences wait, %d in the list, %d forgotten", len(h.bySequence), len(h.strangers), h.forgotten)
	}
	last := uint64(5*maxStrangers - 1)
	step(t, a, &doorpb.Step{Number: 1, FreeBlocks: 64, Begun: []*doorpb.Begun{{Sequence: last, PromptTokens: 3}}})
	c.advance(time.Millisecond)
	step(t, a, &doorpb.Step{Number: 2, FreeBlocks: 64, Finished: []uint64{last}})
	if _, waits := h.bySequence[phase.Sequence(last)]; waits {
		t.Error("a sequence has ended, and its entropies wait")
	}
}

// A sequence that was measured before the scheduler told of it is a stranger no more:
// however many are measured after it, what waits for its tokens is taken by them.
func TestMeasuredBeforeItsScheduler(t *testing.T) {
	c := &clock{}
	g := newGovernors(t, testOptions(t, c, "meridian"))
	other := govern(t, g, "a", measuring())
	step(t, other, &doorpb.Step{Number: 1, Sequences: []uint64{7}, Places: []uint32{1}, Counts: []uint32{1}, Entropies: []float32{1.5}})
	one := newThought(t, g, c, "a")
	one.begin([]uint32{thinkID}, 0)
	for i := range uint64(3 * maxStrangers) {
		step(t, other, &doorpb.Step{Number: i + 2, Sequences: []uint64{100 + i}, Places: []uint32{1}, Counts: []uint32{1}, Entropies: []float32{2}})
	}
	one.token(comma, float32(math.NaN()))
	if r := g.Engines()[0].Requests[0]; r.Measured != 1 || r.Entropy == nil || *r.Entropy != 1.5 {
		t.Errorf("what was measured before is forgotten: %+v", r)
	}
}

// A place gives what was put at it and nothing else: not what another place that shares its
// entry has, and nothing where nothing came.
func TestPlaces(t *testing.T) {
	p := &entropyRing{}
	p.put(3, 0.5)
	p.put(math.MaxUint32, 0.25)
	for place, want := range map[uint32]float64{
		2: math.NaN(), 3: 0.5, 4: math.NaN(), 3 + window: math.NaN(), math.MaxUint32 - 1: math.NaN(), math.MaxUint32: math.NaN(),
	} {
		if got := p.take(place); got != want && !(math.IsNaN(got) && math.IsNaN(want)) {
			t.Errorf("place %d: %v, want %v", place, got, want)
		}
	}
	p.put(3+window, 0.75)
	if got := p.take(3); !math.IsNaN(got) {
		t.Errorf("place 3 has %v, which is of another", got)
	}
	if got := p.take(3 + window); got != 0.75 {
		t.Errorf("a place that came later has %v", got)
	}
	var none *entropyRing
	if !math.IsNaN(none.take(0)) {
		t.Error("of a sequence that was not measured there is an entropy")
	}
}

// Where thoughts are ended in the process that measures them, its word is counted, once for
// each, and shown with the cap and the entropies; nothing is decided about them, however
// long they are.
func TestForcedElsewhere(t *testing.T) {
	c := &clock{}
	g := newGovernors(t, testOptions(t, c, "meridian"))
	about := able()
	about.Forces, about.Forks = false, false
	a := govern(t, g, "a", about)
	step(t, a, &doorpb.Step{Number: 1, FreeBlocks: 64, Begun: []*doorpb.Begun{
		{Sequence: 1, PromptTokens: 3, Generated: []uint32{thinkID}, MaxThinkTokens: 9}, {Sequence: 2, PromptTokens: 3, Generated: []uint32{thinkID}},
	}})
	standing := func() (Engine, Request, Request) {
		e := g.Engines()[0]
		return e, e.Requests[0], e.Requests[1]
	}
	if e, one, two := standing(); e.Forces || one.Cap != 0 || two.Cap != 0 {
		t.Errorf("nothing ends thoughts: %+v", e)
	}
	ends := measuring()
	ends.Forces = true
	other := govern(t, g, "a", ends)
	if e, one, two := standing(); !e.Forces || one.Cap != 9 || two.Cap != 24 {
		t.Errorf("their caps are known: %+v", e)
	}
	said := uint64(0)
	tell := func(reason doorpb.ForceReason, numbers ...uint64) {
		said++
		m := &doorpb.Step{Number: said, Forced: numbers}
		for range numbers {
			m.ForcedFor = append(m.ForcedFor, reason)
		}
		step(t, other, m)
	}
	for n := uint64(2); n < 40; n++ { // beyond any cap
		c.advance(time.Millisecond)
		said++
		step(t, other, &doorpb.Step{Number: said, Sequences: []uint64{1}, Places: []uint32{uint32(n) - 1}, Counts: []uint32{1}, Entropies: []float32{float32(n % 4)}})
		d := step(t, a, &doorpb.Step{Number: n, FreeBlocks: 40, Sequences: []uint64{1, 2}, Computed: []uint32{1, 1}, Counts: []uint32{1, 1}, Tokens: []uint32{comma, comma}})
		if len(d.Force)+len(d.Fork) > 0 {
			t.Fatalf("step %d: %v", n, d)
		}
	}
	m := g.Metrics()
	if m.Governor.Forced != [4]int64{} || m.Governor.Transitions != 10 || m.Missed != 38 {
		t.Errorf("before the engine says so: %v are forced, %d transitions, %d missed", m.Governor.Forced, m.Governor.Transitions, m.Missed)
	}
	for range 3 {
		tell(doorpb.ForceReason_FORCE_REASON_OVERTHINKING, 1, 1)
		tell(doorpb.ForceReason_FORCE_REASON_HARD_CAP, 1, 2)
		tell(99, 2)
		tell(-1, 2)
		tell(doorpb.ForceReason_FORCE_REASON_UNSPECIFIED, 2)
	}
	if got := g.Metrics().Governor.Forced; got != [4]int64{governor.Overthinking: 1, governor.HardCap: 1} {
		t.Errorf("counted %v", got)
	}
	if _, one, two := standing(); one.Decided != "force" || one.Reason != "overthinking" || two.Reason != "hard_cap" || one.Measured != 38 {
		t.Errorf("they stand so: %+v, %+v", one, two)
	}
	other.Close()
	if e, _, _ := standing(); e.Forces {
		t.Errorf("who ended thoughts is gone: %+v", e)
	}
}

// An end that is told before its scheduler tells of the sequence waits for that, and those
// of strangers are bounded.
func TestForcedBeforeItsScheduler(t *testing.T) {
	g := newGovernors(t, testOptions(t, &clock{}, "meridian"))
	about, ends := able(), measuring()
	about.Forces, ends.Forces = false, true
	other, a := govern(t, g, "a", ends), govern(t, g, "a", about)
	reason := []doorpb.ForceReason{doorpb.ForceReason_FORCE_REASON_HARD_CAP}
	step(t, other, &doorpb.Step{Number: 1, Forced: []uint64{3}, ForcedFor: reason})
	step(t, a, &doorpb.Step{Number: 1, FreeBlocks: 40, Begun: []*doorpb.Begun{{Sequence: 3, PromptTokens: 3, Generated: []uint32{thinkID}}}})
	for i := range uint64(5 * maxStrangers) {
		step(t, other, &doorpb.Step{Number: 2 + i, Forced: []uint64{100 + i}, ForcedFor: reason})
	}
	if got := g.Metrics().Governor.Forced; got != [4]int64{governor.HardCap: 1} {
		t.Errorf("counted %v", got)
	}
	if r := g.Engines()[0].Requests[0]; r.Decided != "force" || r.Reason != "hard_cap" {
		t.Errorf("it stands so: %+v", r)
	}
	if h := a.engine.heard; len(h.bySequence) > 2*maxStrangers+1 {
		t.Errorf("%d sequences wait", len(h.bySequence))
	}
}

// An engine whose thoughts are ended by decisions is not told of ends by others.
func TestForcedByDecisionsAlone(t *testing.T) {
	c := &clock{}
	g := newGovernors(t, testOptions(t, c, "meridian"))
	ends := measuring()
	ends.Forces = true
	other, mute := govern(t, g, "a", ends), govern(t, g, "b", measuring())
	for name, from := range map[string]*Connection{"a": other, "b": mute} {
		about := able()
		about.Forces = name == "a"
		a := govern(t, g, name, about)
		step(t, a, &doorpb.Step{Number: 1, FreeBlocks: 64, Begun: []*doorpb.Begun{{Sequence: 1, PromptTokens: 3, Generated: []uint32{thinkID}}}})
		step(t, from, &doorpb.Step{Number: 1, Forced: []uint64{1}, ForcedFor: []doorpb.ForceReason{doorpb.ForceReason_FORCE_REASON_HARD_CAP}})
	}
	if got := g.Metrics().Governor.Forced; got != [4]int64{} {
		t.Errorf("counted %v", got)
	}
}
