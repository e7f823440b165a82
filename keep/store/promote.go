package store

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"meridian/keep/store/admission"
	"meridian/keep/store/arena"
	"meridian/keep/store/tier"
)

const (
	// promotedTogether is how many objects of a run are on their way to memory at a time.
	promotedTogether = 8
	// promotePatience is the longest that a run takes.
	promotePatience = 2 * time.Second
	// maxPromotions is how many runs come at once. One more waits for its turn.
	maxPromotions = 64
)

// promote brings objects of a run to memory, from the first on, as far as tiers have them,
// and says where those came from that came before ctx is over; nil: there is no more here
// than before. The run goes on without its reader, or one with little time would have it
// begin anew each time, and never see its end.
func (c *cold) promote(ctx context.Context, names [][]byte, payer string) []arrival {
	if c == nil || len(names) == 0 || !c.has(names[:1])[0] {
		return nil
	}
	select {
	case c.coming <- struct{}{}:
	case <-ctx.Done():
		return nil
	}
	if !c.store.isOpen() {
		<-c.coming
		return nil
	}
	p := &promotion{cold: c, names: names, payer: payer, places: make([]admission.Place, len(names)), came: make([]arrival, len(names)), ended: make(chan promoted), over: make(chan struct{})}
	go p.run() // Close waits for running
	select {
	case <-p.over:
	case <-ctx.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.came)
}

// arrival is where an object of a run came from, "" for one that was in memory, and when: so
// long after the run was asked for.
type arrival struct {
	tier  string
	after time.Duration
}

// promotion is a run on its way to memory.
type promotion struct {
	cold   *cold
	names  [][]byte
	payer  string // whose share of the memory they take: who has them brought there
	places []admission.Place
	ended  chan promoted
	own    bool // it was the first to ask a tier for something of it
	over   chan struct{}

	mu   sync.Mutex // protects came
	came []arrival
}

// promoted is what became of one object.
type promoted struct {
	index int
	tier  string
	own   bool
	err   error
}

// run brings the run, or what of it comes in time.
func (p *promotion) run() {
	defer p.cold.store.running.Done()
	defer func() { <-p.cold.coming }()
	defer close(p.over)
	ctx, cancel := context.WithTimeout(p.cold.store.ending, promotePatience)
	defer cancel()
	began := time.Now()
	p.fetch(ctx)
	if p.own {
		p.cold.count(func(s *ColdStats) { s.PromotionSeconds += time.Since(began).Seconds() })
	}
}

// fetch fetches the first objects, and those that follow while they come.
func (p *promotion) fetch(ctx context.Context) {
	for i, is := range p.cold.has(p.names) {
		if is {
			p.places[i] = admission.Cold
		} else if p.cold.store.hasWarm(p.names[i]) {
			p.places[i] = admission.Memory
		}
	}
	underWay, began := 0, time.Now()
	for {
		if ctx.Err() == nil {
			for _, i := range admission.Ahead(p.places, promotedTogether) {
				p.places[i] = admission.Coming
				underWay++
				go func() { // awaited below
					tier, own, err := p.cold.promoteOnce(ctx, p.names[i], p.payer)
					p.ended <- promoted{i, tier, own, err}
				}()
			}
		}
		if underWay == 0 {
			return
		}
		one := <-p.ended
		underWay--
		p.own = p.own || one.own
		if one.err != nil {
			p.places[one.index] = admission.Nowhere // and what follows is not fetched
			continue
		}
		p.places[one.index] = admission.Memory
		p.mu.Lock()
		p.came[one.index] = arrival{one.tier, time.Since(began)}
		p.mu.Unlock()
	}
}

// promoteOnce brings an object to memory, or waits for another reader that does: runs that
// are read at once may begin and end anywhere in one another. It says which tier had it, ""
// where that is memory.
func (c *cold) promoteOnce(ctx context.Context, name []byte, payer string) (from string, own bool, err error) {
	hash, mine := arena.HashKey(name), &objectPromotion{over: make(chan struct{})}
	for {
		c.mu.Lock()
		other := c.promoting[hash]
		if other == nil {
			c.promoting[hash] = mine
		}
		c.mu.Unlock()
		if other == nil {
			break
		}
		select {
		case <-other.over:
		case <-ctx.Done():
		}
		switch {
		case c.store.hasWarm(name):
			c.mu.Lock()
			defer c.mu.Unlock()
			return other.tier, false, nil
		case ctx.Err() != nil || !c.has([][]byte{name})[0]:
			return "", false, tier.ErrMissing
		}
		// The other's time was over, and this reader's is not.
	}
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.promoting, hash)
		mine.tier = from
		close(mine.over)
	}()
	if c.store.hasWarm(name) {
		return "", false, nil
	}
	from, err = c.promoteOne(ctx, name, payer)
	return from, true, err
}

// promoteOne brings an object to memory: from its tier, whose name it says, straight to where
// it is to lie.
func (c *cold) promoteOne(ctx context.Context, name []byte, payer string) (from string, err error) {
	var bytes uint64
	for _, b := range c.behind {
		if !b.Has([][]byte{name})[0] {
			continue
		}
		from = b.Name()
		var plan *WritePlan
		var refused error
		bytes = 0
		into := func(_ []byte, size int) []byte {
			var plans []*WritePlan
			if plans, refused = c.store.reserveNames(ctx, [][]byte{name}, demand{payer, uint64(size), promotePatience}); len(plans) == 0 {
				return nil
			}
			plan, bytes = plans[0], plans[0].Bytes
			return c.store.owned.memory.Bytes(plan.span.Offset, plan.span.Length)
		}
		_, err = b.Get(ctx, name, into)
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), promotePatience)
		switch {
		case plan == nil:
			err = errors.Join(err, refused)
		case err != nil:
			_ = plan.Abort(end) // unheard, its time will be over
		default:
			err = plan.Commit(end)
		}
		cancel()
		if err == nil || errors.Is(err, ErrExists) {
			break
		}
	}
	c.count(func(s *ColdStats) {
		if err != nil {
			s.PromotionsFailed++
			return
		}
		s.Promoted++
		s.PromotedBytes += bytes
	})
	return from, err
}

// isOpen reports whether the store is, and keeps it so until running.Done.
func (s *Store) isOpen() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.running.Add(1)
	}
	return !s.closed
}

// hasWarm reports whether an object can be read from memory.
func (s *Store) hasWarm(name []byte) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.server != nil && s.server.Has(s.now(), name)
}
