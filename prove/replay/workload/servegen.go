package workload

import (
	"container/heap"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"time"
)

// Coupling says how the lengths of a prompt, of what is generated and the
// share of thought in it go together. ServeGen publishes each by itself.
type Coupling uint8

// Couplings.
const (
	// Comonotone is what ServeGen's own sampler does: one number decides all
	// three, so that the longest answers have the longest prompts and think most.
	Comonotone Coupling = iota
	// Independent draws each by itself.
	Independent
)

func (c Coupling) String() string {
	if c == Independent {
		return "with independent lengths"
	}
	return "with comonotone lengths"
}

// serveGen draws requests as ServeGen does. In every window every client has as
// many requests as its rate says (a fraction by chance), at intervals of its
// family and shape, stretched to fill the window. One window is held at a time.
type serveGen struct {
	Unread   // all was read when the source was opened
	clients  []client
	seed     uint64
	scale    float64
	coupling Coupling
	start    time.Duration
	end      time.Duration
	step     time.Duration
	window   int
	pending  calls
}

func openServeGen(o opening) (Source, Info, error) {
	clients, err := readClients(o.data)
	if err != nil {
		return nil, Info{}, err
	}
	windows := clients[0].windows
	s := &serveGen{clients: clients, seed: o.Seed, scale: o.Scale, coupling: o.Coupling, step: windows[1].start - windows[0].start}
	whole := windows[len(windows)-1].start + s.step
	s.start = o.Start
	s.end = whole
	if o.Duration > 0 && o.Duration < whole-o.Start {
		s.end = o.Start + o.Duration
	}
	if s.start >= s.end {
		return nil, Info{}, fmt.Errorf("%w: the window starts at %v, and the workload ends at %v", ErrOptions, o.Start, whole)
	}
	for s.window < len(windows) && windows[s.window].start+s.step <= s.start {
		s.window++
	}
	info := Info{
		Label: fmt.Sprintf("ServeGen DeepSeek-R1, %d clients of a production service, drawn from their published distributions, %s",
			len(clients), o.Coupling),
		Licence: "Apache-2.0", Duration: s.end - s.start, Tenants: int32(len(clients)),
	}
	if o.sample {
		info.Sample, info.Synthetic = true, true
		info.Label, info.Licence = fmt.Sprintf("generated sample in the manner of ServeGen DeepSeek-R1, %s", o.Coupling), ""
	}
	s.describe(&info)
	if info.Rate == 0 {
		return nil, Info{}, errors.New("no requests in the chosen window")
	}
	return s, info, nil
}

// describe adds what the window holds in the mean.
func (s *serveGen) describe(info *Info) {
	var requests float64
	for i := range s.clients {
		c := &s.clients[i]
		thinks := make(map[*lengths]float64) // many windows have the same
		for _, w := range c.windows {
			inside := min(s.end, w.start+s.step) - max(s.start, w.start)
			if w.rate == 0 || inside <= 0 {
				continue
			}
			n := w.rate * s.scale * inside.Seconds()
			l := c.lengthsAt(w.start)
			if _, known := thinks[l]; !known {
				thinks[l] = s.meanThink(l)
			}
			generated, think := l.output.mean, thinks[l]
			requests += n
			info.MeanPrompt += n * l.input.mean
			info.MeanThink += n * think
			info.MeanOutput += n * (generated - think)
		}
	}
	info.Rate = requests / info.Duration.Seconds()
	for _, mean := range []*float64{&info.MeanPrompt, &info.MeanThink, &info.MeanOutput} {
		*mean /= max(requests, 1e-9)
	}
}

// meanThink is exact for independent draws, and a fine grid for comonotone.
func (s *serveGen) meanThink(l *lengths) float64 {
	if s.coupling == Independent {
		return l.output.mean * l.ratio.mean
	}
	const grid = 512
	var sum float64
	for i := range grid {
		u := (float64(i) + 0.5) / grid
		sum += l.output.at(u) * l.ratio.at(u)
	}
	return sum / grid
}

// caller is a client within a window: when it calls, the soonest first.
type caller struct {
	tenant  int32
	at      []time.Duration
	lengths *lengths
	dice    *rand.Rand
}

// calls is a heap of callers by their next call.
type calls []*caller

func (c calls) Len() int { return len(c) }
func (c calls) Less(i, j int) bool {
	return c[i].at[0] < c[j].at[0] || c[i].at[0] == c[j].at[0] && c[i].tenant < c[j].tenant
}
func (c calls) Swap(i, j int) { c[i], c[j] = c[j], c[i] }
func (c *calls) Push(x any)   { *c = append(*c, x.(*caller)) }
func (c *calls) Pop() any {
	last := (*c)[len(*c)-1]
	*c = (*c)[:len(*c)-1]
	return last
}

// Next returns the next request.
func (s *serveGen) Next() (Request, bool) {
	for {
		for len(s.pending) == 0 {
			if s.window == len(s.clients[0].windows) || s.clients[0].windows[s.window].start >= s.end {
				return Request{}, false
			}
			s.fill()
		}
		c := s.pending[0]
		r := s.draw(c)
		if c.at = c.at[1:]; len(c.at) > 0 {
			heap.Fix(&s.pending, 0)
		} else {
			heap.Pop(&s.pending)
		}
		if r.At >= s.end {
			continue
		}
		if r.At >= s.start {
			r.At -= s.start
			return r, true
		}
	}
}

// fill draws the calls of the next window.
func (s *serveGen) fill() {
	s.pending = s.pending[:0]
	for i := range s.clients {
		w := s.clients[i].windows[s.window]
		if w.rate == 0 {
			continue
		}
		dice := stream(s.seed, streamArrivals, i, s.window)
		at := s.times(w, dice)
		if len(at) == 0 {
			continue
		}
		s.pending = append(s.pending, &caller{
			tenant: int32(i), at: at, lengths: s.clients[i].lengthsAt(w.start), dice: stream(s.seed, streamLengths, i, s.window),
		})
	}
	heap.Init(&s.pending)
	s.window++
}

// times draws a client's calls in a window: n calls and n+1 intervals.
func (s *serveGen) times(w arrivals, dice *rand.Rand) []time.Duration {
	n := int(w.rate*s.step.Seconds()*s.scale + dice.Float64())
	if n == 0 {
		return nil
	}
	interval := gamma
	if w.family == "Weibull" {
		interval = weibull
	}
	sums := make([]float64, n+1)
	var sum float64
	for i := range sums {
		sum += interval(dice, w.shape)
		sums[i] = sum
	}
	at := make([]time.Duration, n)
	for i := range at {
		// A shape so small that every interval is 0 puts all calls together.
		part := sums[i] / max(sum, math.SmallestNonzeroFloat64)
		at[i] = w.start + seconds(min(part, 1)*s.step.Seconds()*(1-1e-9))
	}
	return at
}

// draw makes the next request of a caller.
func (s *serveGen) draw(c *caller) Request {
	u := c.dice.Float64()
	v, w := u, u
	if s.coupling == Independent {
		v, w = c.dice.Float64(), c.dice.Float64()
	}
	r := Request{At: c.at[0], Tenant: c.tenant, Prompt: max(1, int32(c.lengths.input.at(u)))}
	generated := max(1, int32(c.lengths.output.at(v)))
	r.Think, r.Output = parts(generated, c.lengths.ratio.at(w))
	return r
}

// parts splits what is generated. Every request answers: where nothing is left
// for it, the last token counts as the answer.
func parts(generated int32, ratio float64) (think, output int32) {
	think = min(generated-1, int32(math.Round(float64(generated)*ratio)))
	return think, generated - think
}
