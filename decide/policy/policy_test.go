package policy

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"meridian/kv"
)

// every runs a property with policies that are drawn, so that all of them get
// their share.
func every(t *testing.T, property func(t *rapid.T, p Policy)) {
	rapid.Check(t, func(t *rapid.T) {
		property(t, newPolicy(t, rapid.SampledFrom(Names()).Draw(t, "policy")))
	})
}

func newPolicy(t interface{ Fatal(...any) }, name string) Policy {
	p, err := New(name, Options{ChunkFree: true, ThinkCap: 60, Quantum: 10, DemoteAfter: 30, Patience: 2 * Second, Backfill: Second, MaxAge: 4 * Second, FairTokens: 100})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestNew(t *testing.T) {
	if _, err := New("fifo", Options{}); !errors.Is(err, ErrUnknownPolicy) {
		t.Errorf("an unknown policy: %v", err)
	}
	if _, err := New("static-budget", Options{ThinkCap: -1}); err == nil {
		t.Error("a negative cap was taken")
	}
	for _, name := range Names() {
		if p := newPolicy(t, name); p.Name() != name {
			t.Errorf("%s calls itself %s", name, p.Name())
		}
	}
}

// drawWorld is an engine with little memory.
func drawWorld(t *rapid.T) *world {
	w := newWorld(Limits{
		Tokens: rapid.Int32Range(8, 64).Draw(t, "tokens"), Sequences: rapid.Int32Range(2, 8).Draw(t, "sequences"),
		BlockTokens: rapid.Int32Range(1, 8).Draw(t, "blockTokens"), Blocks: 0, PreemptMaxFraction: 0.1,
	}.withRoomFor(rapid.Int32Range(200, 600).Draw(t, "room")), 3)
	w.s.Costs.FreeTokens = rapid.Int32Range(0, 8).Draw(t, "free")
	return w
}

func (l Limits) withRoomFor(tokens int32) Limits {
	l.Blocks = l.blocksFor(int64(tokens))
	return l
}

func drawArrival(t *rapid.T, w *world, id int) {
	w.arrive(id, rapid.Int32Range(0, 2).Draw(t, "tenant"), rapid.Int32Range(1, 60).Draw(t, "prompt"),
		rapid.Int32Range(0, 80).Draw(t, "think"), rapid.Int32Range(1, 50).Draw(t, "output"))
}

// Under arrivals that never pause no limit is exceeded; once they end,
// every request ends: no livelock.
func TestLimitsHoldAndEverybodyEnds(t *testing.T) {
	every(t, func(t *rapid.T, p Policy) {
		w := drawWorld(t)
		arrivals := rapid.IntRange(1, 40).Draw(t, "arrivals")
		gap := rapid.IntRange(0, 6).Draw(t, "gap")
		var work int
		for id := 0; id < arrivals || len(w.s.Requests) > 0; {
			if id < arrivals && (gap == 0 || w.lastStep%gap == 0) {
				drawArrival(t, w, id)
				last := w.plans[len(w.plans)-1]
				work += int(last.prompt + last.think + last.output)
				id++
			}
			p.Decide(&w.s, &w.d)
			if err := w.check(p.Name() != "stock" && p.Name() != "static-budget"); err != nil {
				t.Fatalf("step %d: %v\n%+v", w.lastStep, err, w.d)
			}
			w.apply(20 * Millisecond)
			if w.lastStep > 20*work+1000 {
				t.Fatalf("%d steps for %d tokens: %d requests never end: %+v", w.lastStep, work, len(w.s.Requests), w.s.Requests)
			}
		}
	})
}

// Requests that need every block there is end, too, among others and however
// often they were preempted. The last token of an answer needs no room.
func TestExactFitsEnd(t *testing.T) {
	every(t, func(t *rapid.T, p Policy) {
		w := newWorld(Limits{
			Tokens: rapid.Int32Range(8, 64).Draw(t, "tokens"), Sequences: rapid.Int32Range(2, 8).Draw(t, "sequences"),
			BlockTokens: rapid.Int32Range(1, 8).Draw(t, "blockTokens"), Blocks: rapid.Int32Range(4, 30).Draw(t, "blocks"), PreemptMaxFraction: 0.1,
		}, 3)
		w.s.Costs.CopiedBlock *= Instant(rapid.IntRange(0, 1).Draw(t, "copies"))
		room := w.s.Limits.Blocks * w.s.Limits.BlockTokens
		gap := rapid.IntRange(1, 40).Draw(t, "gap")
		for id := 0; id < 8 || len(w.s.Requests) > 0; {
			if id < 8 && w.lastStep%gap == 0 {
				all := room
				if id%2 == 1 {
					all = rapid.Int32Range(2, room).Draw(t, "all")
				}
				prompt := rapid.Int32Range(1, all).Draw(t, "prompt")
				think := rapid.Int32Range(0, all-prompt).Draw(t, "think")
				w.arrive(id, int32(id%3), prompt, think, all-prompt-think+1)
				id++
			}
			p.Decide(&w.s, &w.d)
			if err := w.check(p.Name() != "stock" && p.Name() != "static-budget"); err != nil {
				t.Fatalf("step %d: %v\n%+v", w.lastStep, err, w.d)
			}
			w.apply(20 * Millisecond)
			if w.lastStep > 20*8*int(room)+1000 {
				t.Fatalf("%d steps with room for %d tokens: %d requests never end: %+v", w.lastStep, room, len(w.s.Requests), w.s.Requests)
			}
		}
	})
}

// said is a decision without its order, which no engine looks at.
func said(d *Decision) string {
	run := slices.SortedFunc(slices.Values(d.Run), func(a, b Allotment) int { return int(a.Request - b.Request) })
	return fmt.Sprint(run, d.Victims, d.Recall, d.Force)
}

// A decision that holds for n steps is the one that is made at each of them.
func TestStepsAreAPromise(t *testing.T) {
	every(t, func(t *rapid.T, p Policy) {
		w := drawWorld(t)
		for id := 0; w.lastStep < 300; {
			if id < 12 && rapid.IntRange(0, 9).Draw(t, "arrives") == 0 {
				drawArrival(t, w, id)
				id++
			}
			p.Decide(&w.s, &w.d)
			promised, until := w.d.Steps, w.d.Until
			first := said(&w.d)
			for n := int32(1); !w.apply(Instant(rapid.IntRange(10, 200).Draw(t, "ms"))*Millisecond) && n < promised && n < 200; n++ {
				if until > 0 && w.s.Now >= until {
					break
				}
				p.Decide(&w.s, &w.d)
				if now := said(&w.d); now != first {
					t.Fatalf("promised for %d steps until %d: %s\nafter %d, at %d: %s", promised, until, first, n, w.s.Now, now)
				}
			}
			if len(w.s.Requests) == 0 && id >= 12 {
				break
			}
		}
	})
}

// However many others come, and whatever they are, one that has come ends.
func TestNobodyStarves(t *testing.T) {
	every(t, func(t *rapid.T, p Policy) {
		w := drawWorld(t)
		thinks := rapid.Bool().Draw(t, "others think")
		const marked = 1000
		w.s.Costs.CopiedBlock *= Instant(rapid.IntRange(0, 1).Draw(t, "copies"))
		ended := func() bool {
			return slices.ContainsFunc(w.finished, func(f finish) bool { return f.id == marked })
		}
		for id := 0; !ended(); id++ {
			for waiting(w) < 3 {
				w.arrive(id, int32(id%2), rapid.Int32Range(1, 60).Draw(t, "prompt"), 0, rapid.Int32Range(1, 50).Draw(t, "output"))
				if thinks {
					w.plans[len(w.plans)-1].think = rapid.Int32Range(0, 80).Draw(t, "think")
				}
			}
			if id == 50 {
				w.arrive(marked, 2, 60, 80, 50)
			}
			p.Decide(&w.s, &w.d)
			w.apply(20 * Millisecond)
			if w.lastStep > 4000 {
				t.Fatalf("%d have ended, but not the marked one: %+v", len(w.finished), w.s.Requests)
			}
		}
	})
}

func waiting(w *world) (n int) {
	for i := range w.s.Requests {
		if w.s.Requests[i].State == Waiting {
			n++
		}
	}
	return n
}

// The same snapshot gives the same decision, whatever was decided before.
func TestDeterministic(t *testing.T) {
	every(t, func(t *rapid.T, p Policy) {
		w := drawWorld(t)
		for id := range 60 {
			if id%2 == 0 {
				drawArrival(t, w, id)
			}
			var fresh Decision
			newPolicy(t, p.Name()).Decide(&w.s, &fresh)
			p.Decide(&w.s, &w.d)
			if fmt.Sprint(fresh) != fmt.Sprint(w.d) {
				t.Fatalf("step %d: %+v, by a new one %+v", id, w.d, fresh)
			}
			w.apply(20 * Millisecond)
		}
	})
}

func TestDecideDoesNotAllocate(t *testing.T) {
	for _, name := range Names() {
		p, w := newPolicy(t, name), crowded(1000)
		var d Decision
		p.Decide(&w.s, &d)
		if n := testing.AllocsPerRun(20, func() { p.Decide(&w.s, &d) }); n > 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
		if reflect.ValueOf(d).IsZero() {
			t.Errorf("%s decided nothing", name)
		}
	}
}

// Tokens of many large blocks are counted, however many they are.
func TestManyLargeBlocks(t *testing.T) {
	for _, name := range Names() {
		s := Snapshot{
			Limits: Limits{Tokens: 1, Sequences: 1, BlockTokens: 1 << 14, Blocks: 1, PreemptMaxFraction: 0.1}, FreeBlocks: 1,
			Requests: []Request{{Pending: 1, Length: math.MaxInt32 - 1, Prompt: 1, Blocks: math.MaxInt32 - 1, Phase: kv.Output, State: Running}}, Tenants: make([]Tenant, 1),
		}
		var d Decision
		newPolicy(t, name).Decide(&s, &d)
		if len(d.Run) != 1 {
			t.Errorf("%s: %+v", name, d)
		}
	}
}
