package kv

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Parallelism says how an engine cuts a model over its ranks.
//
// Ranks are numbered with context fastest, then tensor, then attention-DP
// group, then pipeline stage:
//
//	rank = ((pp·DP + dp)·TP + tp)·CP + cp
type Parallelism struct {
	// TP is the number of ranks that share the heads of one layer, within one
	// attention-DP group.
	TP int
	// Stages is the number of layers of each pipeline stage, in order. Its
	// length is the pipeline degree and its sum the model's layers.
	Stages []int
	// CP is the number of ranks that share the tokens of one request.
	CP int
	// DP is the number of attention-DP groups; a request lives in one of them.
	DP int
}

// Split returns a parallelism of pp stages over layers, as even as possible
// with the remainder on the first stages.
func Split(layers, tp, pp int) Parallelism {
	return Parallelism{TP: tp, Stages: EvenStages(layers, pp), CP: 1, DP: 1}
}

// EvenStages cuts layers into pp stages whose sizes differ by at most one, the
// larger ones first.
func EvenStages(layers, pp int) []int {
	if pp < 1 {
		return nil
	}
	stages := make([]int, pp)
	for i := range stages {
		stages[i] = layers / pp
		if i < layers%pp {
			stages[i]++
		}
	}
	return stages
}

// Rank is one cell of a Parallelism.
type Rank struct {
	PP, DP, TP, CP int
}

const maxDegree = 1 << 16

// Validate checks p against a model of the given number of layers.
func (p Parallelism) Validate(layers int) error {
	for _, d := range []struct {
		name  string
		value int
	}{{"TP", p.TP}, {"PP", len(p.Stages)}, {"CP", p.CP}, {"DP", p.DP}} {
		if d.value < 1 || d.value > maxDegree {
			return fmt.Errorf("%w: %s is %d, must be 1…%d", ErrShape, d.name, d.value, maxDegree)
		}
	}
	sum := 0
	for i, n := range p.Stages {
		if n < 1 || n > maxLayers {
			return fmt.Errorf("%w: pipeline stage %d has %d layers, must be 1…%d", ErrShape, i, n, maxLayers)
		}
		sum += n
	}
	if sum != layers {
		return fmt.Errorf("%w: pipeline stages %v hold %d layers, the model has %d", ErrShape, p.Stages, sum, layers)
	}
	if p.Ranks() > maxDegree {
		return fmt.Errorf("%w: %d ranks, at most %d", ErrShape, p.Ranks(), maxDegree)
	}
	return nil
}

// Ranks returns the number of ranks.
func (p Parallelism) Ranks() int { return len(p.Stages) * p.DP * p.TP * p.CP }

// Index returns the number of rank r.
func (p Parallelism) Index(r Rank) int { return ((r.PP*p.DP+r.DP)*p.TP+r.TP)*p.CP + r.CP }

// Rank returns the rank numbered index; it is the inverse of Index.
func (p Parallelism) Rank(index int) Rank {
	var r Rank
	r.CP, index = index%p.CP, index/p.CP
	r.TP, index = index%p.TP, index/p.TP
	r.DP, index = index%p.DP, index/p.DP
	r.PP = index
	return r
}

// Layers returns the layers [first, end) of pipeline stage pp.
func (p Parallelism) Layers(pp int) (first, end int) {
	for _, n := range p.Stages[:pp] {
		first += n
	}
	return first, first + p.Stages[pp]
}

// Heads returns the KV heads [first, end) that tensor rank tp holds of a layer
// with kvHeads heads. There is no divisibility rule: with fewer ranks than
// heads their shares differ by at most one; with more, neighbours hold copies
// of the same head. Every head is held by some rank.
func (p Parallelism) Heads(tp, kvHeads int) (first, end int) {
	first = tp * kvHeads / p.TP
	return first, max(first+1, (tp+1)*kvHeads/p.TP)
}

// String writes what ParseParallelism reads, e.g. "tp=2,pp=3+4,cp=1,dp=1".
func (p Parallelism) String() string {
	return fmt.Sprintf("tp=%d,pp=%s,cp=%d,dp=%d", p.TP, p.stagesString(), p.CP, p.DP)
}

// stagesString writes the degree of an even cut, else the layers of each stage.
func (p Parallelism) stagesString() string {
	sum := 0
	for _, n := range p.Stages {
		sum += n
	}
	if slices.Equal(p.Stages, EvenStages(sum, len(p.Stages))) {
		return strconv.Itoa(len(p.Stages))
	}
	parts := make([]string, len(p.Stages))
	for i, n := range p.Stages {
		parts[i] = strconv.Itoa(n)
	}
	return strings.Join(parts, "+")
}

// ParseParallelism reads "tp=4,pp=2,cp=1,dp=1" for a model of layers layers.
// What is left out is 1. "pp=2" cuts evenly; "pp=4+3" names each stage.
func ParseParallelism(text string, layers int) (Parallelism, error) {
	p := Split(layers, 1, 1)
	seen := make(map[string]bool)
	for part := range strings.SplitSeq(text, ",") {
		name, value, found := strings.Cut(strings.TrimSpace(part), "=")
		if !found || seen[name] {
			return Parallelism{}, fmt.Errorf("%w: %q in %q: want each of tp=N, pp=N or pp=A+B+…, cp=N, dp=N at most once", ErrShape, part, text)
		}
		seen[name] = true
		if err := p.set(name, value, layers); err != nil {
			return Parallelism{}, fmt.Errorf("%w: %q in %q: %v", ErrShape, part, text, err)
		}
	}
	if err := p.Validate(layers); err != nil {
		return Parallelism{}, err
	}
	return p, nil
}

func (p *Parallelism) set(name, value string, layers int) error {
	var numbers []int
	for text := range strings.SplitSeq(value, "+") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > maxDegree {
			return fmt.Errorf("%q is not a number from 1 to %d", text, maxDegree)
		}
		numbers = append(numbers, n)
	}
	switch {
	case name == "pp" && len(numbers) > 1:
		p.Stages = numbers
		return nil
	case name == "pp":
		p.Stages = EvenStages(layers, numbers[0])
		return nil
	case len(numbers) > 1:
		return fmt.Errorf("only pp may list stages")
	}
	switch name {
	case "tp":
		p.TP = numbers[0]
	case "cp":
		p.CP = numbers[0]
	case "dp":
		p.DP = numbers[0]
	default:
		return fmt.Errorf("unknown name %q", name)
	}
	return nil
}
