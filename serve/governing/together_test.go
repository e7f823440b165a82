package governing

import (
	"sync"
	"testing"

	"meridian/serve/door/doorpb"
)

// An engine steps, its ranks measure, people look and other engines come and go, all at
// the same time; what is told of each is whole.
func TestTogether(t *testing.T) {
	const steps = 200
	g := newGovernors(t, testOptions(t, &clock{}, "meridian"))
	a, b := govern(t, g, "a", able()), govern(t, g, "a", measuring())
	var all sync.WaitGroup
	all.Go(func() {
		if _, err := a.Step(&doorpb.Step{Number: 1, FreeBlocks: 64, Begun: []*doorpb.Begun{{Sequence: 7, PromptTokens: 3}}}); err != nil {
			t.Error(err)
		}
		for n := range uint64(steps) {
			d, err := a.Step(&doorpb.Step{Number: n + 2, FreeBlocks: 64, Sequences: []uint64{7}, Computed: []uint32{1}, Counts: []uint32{1}, Tokens: []uint32{word}})
			if err != nil || d.Step != n+2 {
				t.Errorf("step %d: %v, %v", n+2, d, err)
			}
		}
	})
	all.Go(func() {
		for n := range uint32(steps) {
			if _, err := b.Step(&doorpb.Step{Number: uint64(n) + 1, Sequences: []uint64{7}, Places: []uint32{n}, Counts: []uint32{1}, Entropies: []float32{1}}); err != nil {
				t.Error(err)
			}
		}
		b.Close()
	})
	all.Go(func() {
		for range steps {
			c, err := g.Govern("b", able())
			if err != nil {
				t.Error(err)
				return
			}
			c.Close()
		}
	})
	all.Go(func() {
		for range steps {
			for _, e := range g.Engines() {
				if e.Name == "a" && len(e.Requests) > 1 {
					t.Errorf("seen: %+v", e)
				}
			}
			if m := g.Metrics(); m.Governor.Steps > steps+1 || m.Measured > steps {
				t.Errorf("%d steps, %d entropies", m.Governor.Steps, m.Measured)
			}
		}
	})
	all.Wait()
	a.Close()
	if m := g.Metrics(); m.Governor.Steps != steps+1 || m.Measured != steps || m.Engines != 0 {
		t.Errorf("%d steps, %d entropies, %d engines", m.Governor.Steps, m.Measured, m.Engines)
	}
}
