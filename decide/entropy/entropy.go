package entropy

import (
	"errors"
	"fmt"
	"math"
)

// BF16 is a logit as the upper half of a float32.
type BF16 uint16

// F16 is a logit of IEEE half precision.
type F16 uint16

// Logit is an element of a row, as engines have them.
type Logit interface{ float32 | BF16 | F16 }

var (
	// ErrNaN means that a logit is not a number.
	ErrNaN = errors.New("probe: a logit is NaN")
	// ErrInfinite means that a logit is +Inf: no distribution has it.
	ErrInfinite = errors.New("probe: a logit is +Inf")
	// ErrMasked means that a row has no token that may come: all are -Inf.
	ErrMasked = errors.New("probe: every logit is -Inf")
	// ErrEmpty means that a row has no logits.
	ErrEmpty = errors.New("probe: a row without logits")
)

// Entropy returns the entropy in nats of the distribution that a row of logits
// is, within 1e-5. It allocates nothing unless it fails.
func Entropy[T Logit](row []T) (nats float64, err error) { return entropyBy(best, row) }

// blockLogits fit into the nearest cache as fp32.
const blockLogits = 2048

func entropyBy[T Logit](f implementation, row []T) (float64, error) {
	if len(row) == 0 {
		return 0, ErrEmpty
	}
	var block [blockLogits]float32
	s := sums{most: negativeInfinity}
	for first := 0; first < len(row); first += blockLogits {
		logits := row[first:min(first+blockLogits, len(row))]
		most, unordered := load(f, &block, logits)
		if unordered || most > math.MaxFloat32 {
			return 0, misplaced(row, first)
		}
		if most == negativeInfinity {
			continue // masked, all of it
		}
		s.raise(most)
		var lanes laneSums
		f.sum(block[:wholeGroups(len(logits))], s.most, &lanes)
		s.add(&lanes)
	}
	if s.most == negativeInfinity {
		return 0, ErrMasked
	}
	return s.entropy(), nil
}

// load fills the block with logits and, to the end of their last group, with
// masks. It returns the largest, and whether any is NaN.
func load[T Logit](f implementation, block *[blockLogits]float32, logits []T) (most float32, unordered bool) {
	whole := len(logits) &^ (groupLogits - 1)
	most = negativeInfinity
	if whole > 0 {
		switch from := any(logits[:whole]).(type) {
		case []float32:
			most, unordered = f.loadF32(block[:whole], from)
		case []BF16:
			most, unordered = f.loadBF16(block[:whole], from)
		case []F16:
			most, unordered = f.loadF16(block[:whole], from)
		}
	}
	for i := whole; i < len(logits); i++ {
		x := widen(logits[i])
		block[i] = x
		most = max(most, x)
		unordered = unordered || x != x
	}
	for i := len(logits); i < wholeGroups(len(logits)); i++ {
		block[i] = negativeInfinity
	}
	return most, unordered
}

// misplaced finds what is wrong with a row, from a logit on.
func misplaced[T Logit](row []T, first int) error {
	for i := first; i < len(row); i++ {
		switch x := widen(row[i]); {
		case x != x:
			return fmt.Errorf("%w: token %d of %d", ErrNaN, i, len(row))
		case x > math.MaxFloat32:
			return fmt.Errorf("%w: token %d of %d", ErrInfinite, i, len(row))
		}
	}
	panic("probe: a block was refused, and nothing is wrong with it")
}

// sums are S and T of the blocks so far, about the largest logit of them. T
// is in eighths of an octave, as the terms are.
type sums struct {
	most        float32
	sum, weight float64
}

// raise moves the sums to a larger logit.
func (s *sums) raise(most float32) {
	if most <= s.most {
		return
	}
	if s.sum > 0 {
		down := float64(s.most) - float64(most)
		factor := math.Exp(down)
		s.weight = (s.weight + down*octaveEighths*s.sum) * factor
		s.sum *= factor
	}
	s.most = most
}

func (s *sums) add(lanes *laneSums) {
	for half := Lanes / 2; half > 0; half /= 2 {
		for i := range half {
			lanes.sum[i] += lanes.sum[i+half]
			lanes.weight[i] += lanes.weight[i+half]
		}
	}
	s.sum += lanes.sum[0]
	s.weight += lanes.weight[0]
}

func (s *sums) entropy() float64 {
	return math.Log(s.sum) - s.weight/octaveEighths/s.sum
}

// octaveEighths are in one nat.
const octaveEighths = 8 / math.Ln2

var negativeInfinity = float32(math.Inf(-1))
