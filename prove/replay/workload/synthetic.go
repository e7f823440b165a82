package workload

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"
)

// Mix has the knobs of the synthetic workload: chat and reasoning requests
// that arrive by chance. Zero values are the defaults of the Meridian book.
type Mix struct {
	// Rate is requests a second, 8 by default.
	Rate float64
	// Reasoning is the fraction of requests that think; 0 is 0.4, and a
	// negative one is none.
	Reasoning float64
}

// The synthetic mix. Lengths are uniform. The book gives the chat's answers
// and the thoughts; the prompts, and the answers after a thought, which it
// leaves open, are ours.
var (
	mixPrompt = between{20, 400}
	mixAnswer = between{40, 240}
	mixThink  = between{600, 6000}
)

const mixDuration = 30 * time.Second

// between is a range of lengths, both ends included.
type between struct{ low, high int32 }

func (b between) draw(r *rand.Rand) int32 { return b.low + r.Int32N(b.high-b.low+1) }
func (b between) mean() float64           { return float64(b.low+b.high) / 2 }

func (m Mix) defaulted() (Mix, error) {
	if m.Rate == 0 {
		m.Rate = 8
	}
	if m.Reasoning == 0 {
		m.Reasoning = 0.4
	}
	m.Reasoning = max(m.Reasoning, 0)
	if !(m.Rate > 0) || math.IsInf(m.Rate, 0) || !(m.Reasoning <= 1) {
		return m, fmt.Errorf("%w: arrivals by chance need a positive rate and a fraction of reasoning up to 1, not %g and %g",
			ErrOptions, m.Rate, m.Reasoning)
	}
	return m, nil
}

type synthetic struct {
	Unread
	arrivals, lengths *rand.Rand
	rate, reasoning   float64
	at, end           float64
}

func openSynthetic(o opening) (Source, Info, error) {
	m, err := o.Synthetic.defaulted()
	if err != nil {
		return nil, Info{}, err
	}
	if o.Duration == 0 {
		o.Duration = mixDuration
	}
	rate := m.Rate * o.Scale
	info := Info{
		Label: "synthetic mix of chat and reasoning, Poisson arrivals", Synthetic: true,
		Duration: o.Duration, Rate: rate, Tenants: 1,
		MeanPrompt: mixPrompt.mean(), MeanThink: m.Reasoning * mixThink.mean(), MeanOutput: mixAnswer.mean(),
	}
	return &synthetic{
		arrivals: stream(o.Seed, streamArrivals, 0, 0), lengths: stream(o.Seed, streamLengths, 0, 0),
		rate: rate, reasoning: m.Reasoning, end: o.Duration.Seconds(),
	}, info, nil
}

// Next returns the next request.
func (s *synthetic) Next() (Request, bool) {
	s.at += s.arrivals.ExpFloat64() / s.rate
	if s.at >= s.end {
		return Request{}, false
	}
	r := Request{At: seconds(s.at), Prompt: mixPrompt.draw(s.lengths)}
	if s.lengths.Float64() < s.reasoning {
		r.Think = mixThink.draw(s.lengths)
	}
	r.Output = mixAnswer.draw(s.lengths)
	return r, true
}
