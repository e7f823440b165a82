package governor

import (
	"testing"
	"time"

	"meridian/phase"
	"meridian/sched"
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
	if d := g.Step(&Facts{Now: sched.Second, Ended: []phase.Sequence{1}}); d.Contradictions != 0 || g.Counters().Sequences != 0 {
		t.Errorf("the next step suffers: %d contradictions", d.Contradictions)
	}
}
