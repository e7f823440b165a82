package workload

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"
)

// Parts of a trace that are drawn: of a minute, of which a run has many, and no
// more than are worth counting.
const (
	partLength = time.Minute
	leastParts = 16
	mostParts  = 1 << 16
	mostDraws  = 1 << 28
)

// resampled is another hour as the recorded one might have been: the window,
// in the trace's own time, is cut into equal parts, a seed draws parts with
// repetition, and those that were drawn come in the order of the trace, each as
// often as it was drawn. So what runs for an hour comes from no other hour than
// that, at any scale; slow changes over the window stay, and so does the order
// in which prompts build on one another. The second time that a part comes it is
// of other prompts, and so on: else it would find all of its prompts in caches.
type resampled struct {
	trace *recorded // the window, from 0 on, at a scale of 1
	scale float64
	part  time.Duration
	drawn []int32 // how often, by part
	end   time.Duration

	ahead   Request // the first of the next part
	hasNext bool
	at      int       // the part that is given
	all     []Request // of it
	given   int       // of them
	copied  int32     // how often the part has been given
	slots   int64     // parts that were given before
}

// length is how long a window is whose last request comes at last: a trace is
// taken to go on after it for as long as requests are apart.
func (r *recorded) length(last time.Duration, requests float64, asked time.Duration) time.Duration {
	if r.beyond {
		return asked
	}
	known := last + max(time.Duration(float64(last)/requests), time.Microsecond)
	if asked > 0 {
		return min(asked, known)
	}
	return known
}

// resample draws from a trace that was described over its window of that length.
func resample(o opening, trace *recorded, length time.Duration) (*resampled, error) {
	wanted := float64(length) * o.Scale
	part := max(min(float64(partLength), float64(length)/leastParts, wanted/leastParts), float64(length)/mostParts)
	parts := max(1, int(float64(length)/part))
	s := &resampled{trace: trace, scale: o.Scale, part: length/time.Duration(parts) + 1, drawn: make([]int32, parts)}
	draws := math.Ceil(wanted / float64(s.part))
	if !(draws <= mostDraws) {
		return nil, fmt.Errorf("%w: scale %g needs %.0f parts of the trace; there are at most %d", ErrOptions, o.Scale, draws, mostDraws)
	}
	s.end = time.Duration(wanted)
	dice := stream(o.Seed, streamParts, 0, 0)
	for range int(draws) {
		s.drawn[dice.IntN(parts)]++
	}
	s.ahead, s.hasNext = trace.Next()
	s.read()
	return s, nil
}

// Next returns the next request.
func (s *resampled) Next() (Request, bool) {
	for s.at < len(s.drawn) && s.trace.err == nil {
		switch {
		case s.copied == s.drawn[s.at]:
			s.at++
			s.copied, s.given = 0, 0
			s.read()
			continue
		case s.given == len(s.all):
			s.copied++
			s.slots++
			s.given = 0
			continue
		}
		q := s.all[s.given]
		s.given++
		at := time.Duration(s.slots-int64(s.at))*s.part + q.At
		if at >= s.end {
			break
		}
		q.At = time.Duration(float64(at) / s.scale).Truncate(time.Microsecond)
		q.Prefix = renamed(q.Prefix, s.copied)
		return q, true
	}
	s.Close()
	return Request{}, false
}

// read takes the requests of a part from the trace.
func (s *resampled) read() {
	s.all = s.all[:0]
	for s.hasNext && int(s.ahead.At/s.part) == s.at {
		s.all = append(s.all, s.ahead)
		s.ahead, s.hasNext = s.trace.Next()
	}
}

// renamed gives the blocks of a prompt other names in every copy: equal ones
// stay equal.
func renamed(prefix []uint64, copied int32) []uint64 {
	if copied == 0 || len(prefix) == 0 {
		return prefix
	}
	other := make([]uint64, len(prefix))
	for i, name := range prefix {
		other[i] = rand.NewPCG(name, uint64(copied)).Uint64()
	}
	return other
}

// Err is what was wrong with the trace.
func (s *resampled) Err() error { return s.trace.Err() }

// Close closes the trace.
func (s *resampled) Close() error {
	s.at = len(s.drawn)
	return s.trace.Close()
}
