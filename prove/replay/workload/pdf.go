package workload

import (
	"fmt"
	"math"
	"sort"
	"strconv"
	"strings"
)

// pdf is a distribution over a few numbers, ready to be drawn from.
type pdf struct {
	values []float64
	// below[i] is the probability of values[i] and all before it.
	below []float64
	mean  float64
}

// maxPoints bounds the numbers of one distribution.
const maxPoints = 1 << 17

// parsePDF reads a distribution as ServeGen writes it: {45: 0.25, 46: 0.75}.
// Numbers rise from 0 to highest and probabilities add up to 1.
func parsePDF(text string, highest float64) (pdf, error) {
	var p pdf
	inner, opened := strings.CutPrefix(strings.TrimSpace(text), "{")
	inner, closed := strings.CutSuffix(inner, "}")
	if !opened || !closed {
		return p, fmt.Errorf("a distribution reads {number: probability, …}")
	}
	if strings.TrimSpace(inner) == "" {
		return p, nil
	}
	total, weighted := 0.0, 0.0
	last := -1.0
	for points := 0; inner != ""; points++ {
		var item string
		item, inner, _ = strings.Cut(inner, ",")
		key, value, _ := strings.Cut(item, ":")
		number, err := strconv.ParseFloat(strings.TrimSpace(key), 64)
		if err != nil || !(number > last) || number > highest {
			return p, fmt.Errorf("point %d: %.40q is not a number above %g and up to %g", points+1, key, last, highest)
		}
		probability, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
		if err != nil || !(probability >= 0) || probability > 1 {
			return p, fmt.Errorf("point %d: %.40q is not a probability", points+1, value)
		}
		if points == maxPoints {
			return p, fmt.Errorf("more than %d points", maxPoints)
		}
		last = number
		if probability == 0 {
			continue
		}
		total += probability
		weighted += number * probability
		p.values = append(p.values, number)
		p.below = append(p.below, total)
	}
	if math.Abs(total-1) > 1e-3 {
		return p, fmt.Errorf("the probabilities add up to %g, not to 1", total)
	}
	p.mean = weighted / total
	return p, nil
}

func (p *pdf) empty() bool { return len(p.values) == 0 }

// at returns the number below which the fraction u of all draws lies.
func (p *pdf) at(u float64) float64 {
	i := sort.SearchFloat64s(p.below, u*p.below[len(p.below)-1])
	return p.values[min(i, len(p.values)-1)]
}
