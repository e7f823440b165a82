package replay

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"meridian/decide/governor"
	"meridian/decide/placement"
	"meridian/decide/policy"
	"meridian/prove/replay/workload"
)

// ErrStuck means that a policy lets no request run though requests are there.
var ErrStuck = errors.New("replay: no request runs")

const never = ps(math.MaxInt64)

func (t ps) duration() time.Duration { return time.Duration(t / nanosecond) }

func (t ps) seconds() float64 { return float64(t) / float64(second) }

// instant is a moment as policies see it.
func instant(t ps) policy.Instant { return policy.Instant(t / nanosecond) }

// cell is the world of a replay: engines, the store, and the next arrival.
type cell struct {
	config       Config
	cost         stepCost
	blockBytes   int64
	prefixTokens int32 // of a chunk; all have the same
	slack        []int32

	engines    []*engine
	store      *store
	candidates []placement.Engine
	tally      tally
	series     series

	source    workload.Source
	arrival   workload.Request
	hasNext   bool
	number    int64
	live      int64
	now       ps
	last      ps // the last arrival
	atLast    Tokens
	endedLast int64
	ended     int64
	idleTurns int
	// deliveries are hand-offs that arrive at another engine at this moment.
	deliveries []delivery
}

type delivery struct {
	to  *engine
	seq *sequence
}

// Run replays a workload on a cell under a policy, and goes on until the last
// request has ended. It does not close the source.
func Run(ctx context.Context, config Config, source workload.Source, policy policy.Policy) (*Result, error) {
	c, err := newCell(config, source, policy)
	if err != nil {
		return nil, err
	}
	if err := c.pull(); err != nil {
		return nil, err
	}
	for turn := 0; ; turn++ {
		if turn%4096 == 0 {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			if config.Progress != nil {
				config.Progress(c.now.duration(), c.ended)
			}
		}
		more, err := c.turn()
		if err != nil {
			return nil, err
		}
		if !more {
			return c.result(), nil
		}
	}
}

func newCell(config Config, source workload.Source, policy policy.Policy) (*cell, error) {
	config = config.withDefaults()
	if err := config.validate(); err != nil {
		return nil, err
	}
	c := &cell{config: config, cost: config.Profile.cost(), source: source, slack: make([]int32, config.Profile.BlockTokens)}
	c.blockBytes = config.Profile.KVBytesPerToken * int64(config.Profile.BlockTokens)
	c.tally = tally{config: &c.config, tpot: config.SLO.TPOT.Microseconds(), ttfat: config.SLO.TTFAT.Microseconds()}
	every := ps(config.SampleEvery) * nanosecond
	c.series = series{every: every, next: every}
	c.store = newStore(config.StoreTokens)
	role := placement.Both
	if config.Prefills > 0 {
		role = placement.Decode
	}
	// Those that prefill come first: what one hands over at the end of a step is
	// there for the step of another that begins at that moment.
	for i := range config.Prefills {
		c.engines = append(c.engines, c.newEngine(fmt.Sprintf("prefill-%d", i), placement.Prefill, policy))
	}
	for i := range config.Replicas {
		c.engines = append(c.engines, c.newEngine(fmt.Sprintf("engine-%d", i), role, policy))
	}
	return c, nil
}

// turn lets the next thing happen; it says false when nothing is left.
func (c *cell) turn() (more bool, err error) {
	at, who := never, (*engine)(nil)
	for _, e := range c.engines {
		if t := e.next(); t < at {
			at, who = t, e
		}
	}
	arrival := c.arrivalAt()
	if at == never && arrival == never {
		return false, c.stuck()
	}
	if c.series.next < min(at, arrival) { // what happens at that very moment is seen
		c.sample(c.series.next)
		return true, nil
	}
	if arrival <= at {
		c.now = max(c.now, arrival)
		return true, c.arrive()
	}
	c.now = at
	if err := who.turn(at); err != nil {
		return false, err
	}
	for _, d := range c.deliveries {
		d.to.arrive(d.seq, c.now)
	}
	c.deliveries = c.deliveries[:0]
	return true, nil
}

// stuck is nil if every request has ended.
func (c *cell) stuck() error {
	if c.live == 0 {
		return nil
	}
	return fmt.Errorf("%w: policy %s leaves %d requests at %v, and nothing is on its way", ErrStuck, c.engines[0].policy.Name(), c.live, c.now.duration())
}

// arrivalAt is when the next request comes.
func (c *cell) arrivalAt() ps {
	switch {
	case !c.hasNext:
		return never
	case c.config.Closed == 0:
		return ps(c.arrival.At) * nanosecond
	case c.live < int64(c.config.Closed):
		return c.now
	}
	return never
}

// pull reads the next request.
func (c *cell) pull() error {
	var r workload.Request
	r, c.hasNext = c.source.Next()
	if !c.hasNext {
		if err := c.source.Err(); err != nil {
			return fmt.Errorf("replay: the workload ended after %d requests: %w", c.number, err)
		}
		return nil
	}
	switch {
	case r.At < c.arrival.At || r.At > maxTime:
		return fmt.Errorf("%w: request %d arrives at %v, after one at %v; requests come in order, within %v", ErrConfig, c.number, r.At, c.arrival.At, maxTime)
	case r.Prompt < 1 || r.Think < 0 || r.Output < 0 || r.Tenant < 0 || r.Tenant >= maxTenants:
		return fmt.Errorf("%w: request %d has %d tokens of prompt, %d of thought, %d of output and tenant %d", ErrConfig, c.number, r.Prompt, r.Think, r.Output, r.Tenant)
	case len(r.Prefix) > 0 && (r.PrefixTokens < 1 || r.PrefixTokens%c.config.Profile.BlockTokens != 0):
		return fmt.Errorf("%w: request %d names blocks of %d tokens, which engines with blocks of %d cannot share", ErrConfig, c.number, r.PrefixTokens, c.config.Profile.BlockTokens)
	case len(r.Prefix) > 0 && c.prefixTokens != 0 && r.PrefixTokens != c.prefixTokens:
		return fmt.Errorf("%w: request %d names blocks of %d tokens; those before named %d", ErrConfig, c.number, r.PrefixTokens, c.prefixTokens)
	}
	if len(r.Prefix) > 0 {
		c.prefixTokens = r.PrefixTokens
		for _, e := range c.engines {
			e.cache.blocks = r.PrefixTokens / c.config.Profile.BlockTokens
		}
	}
	c.arrival = r
	return nil
}

const (
	maxTime    = 90 * 24 * time.Hour
	maxTenants = 1 << 20
)

// arrive places the next request and reads the one after it.
func (c *cell) arrive() error {
	r := c.arrival
	c.tally.requests.Arrived++
	c.tally.cache.PromptTokens += int64(r.Prompt)
	s := c.sequence(r)
	c.number++
	if c.last = c.now; c.fits(s) {
		c.place(s)
	} else {
		c.tally.requests.Refused++
	}
	if err := c.pull(); err != nil {
		return err
	}
	if !c.hasNext {
		c.settle(c.now)
		c.atLast, c.endedLast = c.tally.tokens, c.ended
	}
	return nil
}

func (c *cell) sequence(r workload.Request) *sequence {
	s := &sequence{
		number: c.number, arrived: c.now, prompt: r.Prompt, think: r.Think, output: r.Output, tenant: r.Tenant,
		thought: r.Think, converged: r.Converged, prefix: r.Prefix, prefixTokens: r.PrefixTokens,
		counted: c.now >= ps(c.config.Warmup)*nanosecond,
	}
	if s.think > 0 && c.config.Thoughts != nil {
		s.think, s.forced = endOf(c.config.Thoughts, c.config.Seed, s.number, &r)
	}
	if s.think == 0 {
		s.output = max(s.output, 1) // a request finds a token at least
	}
	return s
}

// fits says whether an engine could ever hold all of s.
func (c *cell) fits(s *sequence) bool {
	all := int64(s.prompt) + int64(s.thought) + int64(s.output)
	return (all+int64(c.config.Profile.BlockTokens)-1)/int64(c.config.Profile.BlockTokens) <= int64(c.config.Blocks)
}

// place asks the gateway's own placement where s goes.
func (c *cell) place(s *sequence) {
	c.live++
	c.tally.work.PeakLive = max(c.tally.work.PeakLive, c.live)
	at := c.engines[0]
	if len(c.engines) > 1 {
		if len(s.prefix) > 0 {
			c.settle(c.now) // steps make caches forget
		}
		c.candidates = c.candidates[:0]
		for _, e := range c.engines {
			c.candidates = append(c.candidates, e.candidate(s))
		}
		choice, err := placement.Choose(c.candidates, placement.Request{Tokens: int(s.prompt), Turn: c.config.Seed + uint64(s.number)}, c.config.Place)
		if err != nil {
			panic(fmt.Sprintf("replay: a cell without a decode engine: %v", err)) // newCell makes one
		}
		at = c.engine(choice.Decode)
		if choice.Prefill != "" {
			at, s.decodeAt = c.engine(choice.Prefill), at
		}
	}
	s.remote = c.store.held(s)
	at.arrive(s, c.now)
}

func (c *cell) engine(id string) *engine {
	for _, e := range c.engines {
		if e.id == id {
			return e
		}
	}
	return nil
}

// deliver brings a prompt that was computed elsewhere to its decode engine,
// when the engine that computed it has ended its turn.
func (c *cell) deliver(to *engine, s *sequence) {
	c.deliveries = append(c.deliveries, delivery{to, s})
}

// settle carries out every step that has ended before t.
func (c *cell) settle(t ps) {
	for _, e := range c.engines {
		e.settle(t)
	}
}

// finished records the end of a request.
func (c *cell) finished(r *policy.Request, s *sequence, now ps) {
	c.live--
	c.ended++
	c.tally.finished(r, s, now, c.alone(s))
}

// alone is what the request would take if no other were there: its prompt in
// whole steps, then a token a step.
func (c *cell) alone(s *sequence) ps {
	var took ps
	for done := int32(0); done < s.prompt; {
		var one governor.Work
		n := min(s.prompt-done, c.config.MaxTokens)
		one.Add(done, n)
		took += c.cost.of(&one)
		done += n
	}
	var one governor.Work
	one.Add(s.prompt, 1)
	p := plan{first: c.cost.of(&one), growth: c.cost.context}
	return took + p.boundary(s.think+s.output-1)
}

func (c *cell) result() *Result {
	t := &c.tally
	for _, e := range c.engines {
		t.evictions.Cached += e.cache.evicted * int64(e.cache.blocks)
		t.work.Busy += float64(e.busy) / float64(max(c.now, 1)) / float64(len(c.engines))
	}
	r := &Result{
		Policy: c.engines[0].policy.Name(), Profile: c.config.Profile.Name,
		Requests: t.requests, DurationSeconds: c.last.seconds(), MakespanSeconds: c.now.seconds(),
		Tokens: t.tokens, Forced: t.forced, Evictions: t.evictions, Moved: t.moved, Cache: t.cache, Fairness: t.fairness(), Engine: t.work,
		Series: c.series.samples, Latency: t.latency(),
	}
	if t.requests.Counted > 0 {
		r.SLOAttainment = float64(t.requests.Met) / float64(t.requests.Counted)
	}
	if span := c.last.seconds(); span > 0 {
		r.TokensPerSecond = float64(c.atLast.Think+c.atLast.Output) / span
		r.RequestsPerSecond = float64(c.endedLast) / span
		r.Goodput = r.RequestsPerSecond * r.SLOAttainment
	}
	return r
}
