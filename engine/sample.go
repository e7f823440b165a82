package engine

import (
	"cmp"
	"math"
	"slices"
)

// Sampling is how the next token is chosen. Temperature 0 takes the likeliest.
type Sampling struct {
	Temperature float64
	TopP        float64 // 0 means 1
	TopK        int     // 0 means all
	// Seed and the token's place decide what is drawn, so that an answer can be
	// resumed anywhere.
	Seed uint64
	// What has been answered becomes less likely: once, and with every time.
	PresencePenalty, FrequencyPenalty float64
}

func (s Sampling) validate() error {
	inRange := func(v, low, high float64) bool { return v >= low && v <= high } // false of NaN
	switch {
	case !inRange(s.Temperature, 0, 100):
		return invalid("temperature %g, must be 0…100", s.Temperature)
	case !inRange(s.TopP, 0, 1):
		return invalid("top_p %g, must be 0…1", s.TopP)
	case s.TopK < 0:
		return invalid("top_k %d, must not be negative", s.TopK)
	case !inRange(s.PresencePenalty, -2, 2) || !inRange(s.FrequencyPenalty, -2, 2):
		return invalid("penalties of %g and %g, must be -2…2", s.PresencePenalty, s.FrequencyPenalty)
	}
	return nil
}

// place is where a token is drawn.
type place struct {
	position int // in the answer
	choice   int // which answer to the prompt
}

var never = float32(math.Inf(-1))

// penalize makes tokens that were answered less likely.
func (s Sampling) penalize(logits []float32, counts map[uint32]int) {
	for token, count := range counts {
		logits[token] -= float32(s.PresencePenalty + s.FrequencyPenalty*float64(count))
	}
}

// draw chooses a token. Of equal ones the lowest id wins.
func (s Sampling) draw(logits []float32, at place) uint32 {
	if s.Temperature == 0 {
		return greatest(logits)
	}
	candidates := s.candidates(logits)
	var sum float64
	for i := range candidates {
		sum += candidates[i].weight
	}
	if s.TopP > 0 && s.TopP < 1 {
		kept, limit := 0, s.TopP*sum
		for sum = 0; kept < len(candidates) && (sum < limit || kept == 0); kept++ {
			sum += candidates[kept].weight
		}
		candidates = candidates[:kept]
	}
	target := s.dice(at) * sum
	for _, c := range candidates {
		if target -= c.weight; target < 0 {
			return c.token
		}
	}
	return candidates[len(candidates)-1].token // rounding
}

type candidate struct {
	token  uint32
	weight float64
}

// candidates are the tokens that can be drawn, with weights. They are in order
// of weight where that matters.
func (s Sampling) candidates(logits []float32) []candidate {
	top := float64(logits[greatest(logits)])
	list := make([]candidate, 0, len(logits))
	for token, l := range logits {
		if l != never {
			list = append(list, candidate{uint32(token), math.Exp((float64(l) - top) / s.Temperature)})
		}
	}
	if s.TopK > 0 || s.TopP > 0 && s.TopP < 1 {
		slices.SortFunc(list, func(a, b candidate) int {
			return cmp.Or(cmp.Compare(b.weight, a.weight), cmp.Compare(a.token, b.token))
		})
	}
	if s.TopK > 0 && s.TopK < len(list) {
		list = list[:s.TopK]
	}
	return list
}

// dice is a number in [0, 1) that depends on the seed and the place alone.
func (s Sampling) dice(at place) float64 {
	z := s.Seed
	for _, v := range []uint64{uint64(at.choice), uint64(at.position)} {
		z += (v + 1) * 0x9E3779B97F4A7C15
		z = (z ^ z>>30) * 0xBF58476D1CE4E5B9
		z = (z ^ z>>27) * 0x94D049BB133111EB
		z ^= z >> 31
	}
	return float64(z>>11) / (1 << 53)
}

func greatest(logits []float32) uint32 {
	best := 0
	for i, l := range logits {
		if l > logits[best] || logits[best] == never && l != never {
			best = i
		}
	}
	return uint32(best)
}

// Logprob is how likely a token was, and the likeliest ones beside it.
type Logprob struct {
	Token   uint32
	Logprob float64
	Top     []Alternative
}

// Alternative is a token that could have been.
type Alternative struct {
	Token   uint32
	Logprob float64
}

// logprobOf tells of a token and the likeliest alternatives, the token itself
// among them if it is one. Temperature does not matter here.
func logprobOf(logits []float32, token uint32, alternatives int) Logprob {
	top := float64(logits[greatest(logits)])
	var sum float64
	for _, l := range logits {
		if l != never {
			sum += math.Exp(float64(l) - top)
		}
	}
	normal := top + math.Log(sum)
	p := Logprob{Token: token, Logprob: tellable(float64(logits[token]) - normal)}
	if alternatives == 0 {
		return p
	}
	var best []uint32
	for t, l := range logits {
		if l == never || len(best) == alternatives && l <= logits[best[len(best)-1]] {
			continue
		}
		at, _ := slices.BinarySearchFunc(best, l, func(other uint32, l float32) int {
			if logits[other] >= l {
				return -1
			}
			return 1
		})
		best = slices.Insert(best, at, uint32(t))
		best = best[:min(len(best), alternatives)]
	}
	for _, t := range best {
		p.Top = append(p.Top, Alternative{t, tellable(float64(logits[t]) - normal)})
	}
	return p
}

// tellable keeps out what JSON has no number for.
func tellable(p float64) float64 {
	if p >= leastLogprob {
		return p
	}
	return leastLogprob
}

const leastLogprob = -9999
