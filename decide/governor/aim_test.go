package governor_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"meridian/decide/entropy"
	"meridian/decide/governor"
	"meridian/decide/phase"
	"meridian/decide/policy"
	"meridian/internal/rounds"
)

// aim is a whole step of the governor, in nanoseconds a sequence, with entropies for every
// think token and the policy stock.
func aim(sequences int) rounds.Task {
	return rounds.Task{
		What: fmt.Sprintf("a step, %d sequences, of one of them", sequences),
		Ours: func() (rounds.Lap, error) { return steps(sequences) },
	}
}

func BenchmarkAim(b *testing.B) {
	var judge rounds.Judge
	judge.Run(b, aim(256))
	judge.Verdict(b)
}

func TestAim(t *testing.T) {
	if _, err := rounds.Once(aim(4)); err != nil {
		t.Error(err)
	}
}

// Without sequences nothing is measured.
func TestAimOfNoSequence(t *testing.T) {
	if _, err := rounds.Once(aim(0)); !errors.Is(err, rounds.ErrNothing) {
		t.Error(err)
	}
}

const (
	thinkID = 151667
	endID   = 151668
)

func steps(sequences int) (rounds.Lap, error) {
	model, err := phase.NewModel(phase.Markers{Start: []phase.Marker{{IDs: []uint32{thinkID}}}, End: []phase.Marker{{IDs: []uint32{endID}}}})
	if err != nil {
		return rounds.Lap{}, err
	}
	stock, err := policy.New("stock", policy.Options{})
	if err != nil {
		return rounds.Lap{}, err
	}
	g, err := governor.New(governor.Options{
		Model: model, Policy: stock,
		Limits: policy.Limits{Tokens: 1 << 16, Sequences: int32(sequences), BlockTokens: 16, Blocks: 1 << 20},
		Budget: governor.Budget{MaxThinkTokens: 1 << 20, Entropy: true, Probe: entropy.Options{
			Alpha: 0.05, EATVariance: 1e-3, EATInterval: 32, RPDI: 3, Transition: 2.5, MinThinkTokens: 512,
		}},
	})
	if err != nil {
		return rounds.Lap{}, err
	}
	facts := governor.Facts{Now: 1, FreeBlocks: 1 << 19}
	for s := range sequences {
		facts.Arrivals = append(facts.Arrivals, governor.Arrival{Sequence: phase.Sequence(s), At: 1, PromptTokens: 16})
	}
	g.Step(&facts)
	facts.Arrivals = nil
	first, nats := []uint32{thinkID}, []float64{0.7}
	for s := range sequences {
		facts.Commits = append(facts.Commits, governor.Commit{Sequence: phase.Sequence(s), Computed: 16, Tokens: first, Entropies: nats})
	}
	for step := range 3 {
		facts.Now += policy.Millisecond
		g.Step(&facts)
		if step == 0 {
			for i := range facts.Commits {
				facts.Commits[i].Computed, facts.Commits[i].Tokens = 1, []uint32{7}
			}
		}
	}
	const count = 200
	start := time.Now()
	for range count {
		facts.Now += policy.Millisecond
		if d := g.Step(&facts); len(d.Order) != sequences {
			return rounds.Lap{}, fmt.Errorf("%d of %d sequences are in the order", len(d.Order), sequences)
		}
	}
	return rounds.Lap{Operations: count * sequences, Took: time.Since(start)}, nil
}
