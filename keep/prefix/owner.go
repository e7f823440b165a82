package prefix

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"meridian/keep/prefix/keys"
	"meridian/keep/store"
	"meridian/kv"
	"meridian/move/agent"
	"meridian/move/reshard"
	"meridian/move/transceiver"
	"meridian/move/transceiver/handoff"
)

// storeEngine is this agent's owner as a party to hand-offs of one kind of units.
type storeEngine struct {
	id     string
	unit   reshard.Unit
	layers int
	bytes  uint64 // of an object
	// users are hand-offs of it that have not ended; used is when the last began. The
	// cache's mu protects them.
	users int
	used  uint64
}

// maxShapes bounds how many kinds of units an owner has hand-offs of. One that is not used
// makes room: it may be of an engine that is gone, and joins again when it is asked for.
const maxShapes = 256

// errShapes means that there are too many.
var errShapes = fmt.Errorf("offload: an owner keeps units of at most %d kinds", maxShapes)

// errNothingKept means that this agent has no owner.
var errNothingKept = errors.New("offload: nothing is kept here")

// storeOf is the party for units of a shape; it joins when it is first asked for, by who
// has shown that there are such units or will be. It stays until doneWith.
func (c *Cache) storeOf(shape *keys.Shape, unit reshard.Unit) (*storeEngine, error) {
	region, epoch, bytes, keeps := c.options.Store.Memory()
	if !keeps {
		return nil, errNothingKept
	}
	digest := unit.Digest()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.uses++
	if s := c.stores[digest]; s != nil {
		s.users++
		s.used = c.uses
		return s, nil
	}
	switch {
	case c.closed:
		return nil, ErrClosed
	case len(c.stores) >= maxShapes && !c.dropStore():
		return nil, errShapes
	}
	side, err := unit.Side(int64(bytes))
	if err != nil {
		return nil, err
	}
	s := &storeEngine{
		id: handoff.StorePrefix + c.self.Name + "/" + hex.EncodeToString(digest[:8]), unit: unit, layers: len(shape.Geometry.Layers), bytes: objectBytes(unit),
		users: 1, used: c.uses,
	}
	err = c.options.Transceiver.JoinStore(handoff.Engine{ID: s.id, Side: side, Ranks: []handoff.Rank{{
		Agent: c.self, Memory: handoff.Memory{{Region: region, Epoch: epoch, Length: bytes}},
	}}}, func(handoff.Event) {}) // what it waits for, channels tell
	if err != nil {
		return nil, err
	}
	c.stores[digest] = s
	return s, nil
}

// doneWith says that a hand-off of a kind of units has ended.
func (c *Cache) doneWith(s *storeEngine) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s.users--
}

// dropStore lets the kind of units go that was not used for longest, of those that have no
// hand-offs. Mu is held.
func (c *Cache) dropStore() bool {
	var oldest kv.Hash
	var s *storeEngine
	for digest, one := range c.stores {
		if one.users == 0 && (s == nil || one.used < s.used) {
			oldest, s = digest, one
		}
	}
	if s == nil {
		return false
	}
	delete(c.stores, oldest)
	ctx, cancel := context.WithCancel(c.ctx)
	cancel()
	_ = c.options.Transceiver.Leave(ctx, s.id) // nothing of it runs that could be waited for
	return true
}

// verdictOf is what an owner says to an error of its store.
func verdictOf(err error) keys.Verdict {
	for _, known := range []struct {
		err     error
		verdict keys.Verdict
	}{
		{store.ErrExists, keys.Have},
		{store.ErrBusy, keys.Have},
		{store.ErrFull, keys.Full},
		{store.ErrTooLarge, keys.Full},
		{store.ErrMissing, keys.Missing},
		{errShapes, keys.Full},
		{errNothingKept, keys.Full},
		{kv.ErrShape, keys.Refused},
	} {
		if errors.Is(err, known.err) {
			return known.verdict
		}
	}
	return keys.Busy
}

// take takes what a publisher offers: as many units as there is room for, from the first
// that is neither there nor on its way on. The answer comes when the copy has begun, or ctx
// ends: then the publisher takes its offer back.
func (c *Cache) take(ctx context.Context, from kv.Member, m *keys.KeepAsk) *keys.KeepAnswer {
	return c.takeUnits(ctx, from, &taking{
		ticket: m.Ticket, shape: &m.Shape, within: m.WithinMs, first: m.First,
		head: runOf(m.Chain.Part(0, m.First)), units: runOf(m.Chain.Part(m.First, len(m.Chain.Keys))), touched: runOf(m.Chain),
	})
}

// taking is units on their way into the arena.
type taking struct {
	cache  *Cache
	store  *storeEngine
	opened handoff.Ticket // the units are of its content, whatever that is
	ticket []byte
	shape  *keys.Shape
	within uint64 // ms
	// first is the number in its sequence of the first that comes; head is what comes before
	// it and is not to leave meanwhile, touched what counts as used with it.
	first                int
	head, units, touched store.Run
}

func (c *Cache) takeUnits(ctx context.Context, from kv.Member, t *taking) *keys.KeepAnswer {
	refuse := func(v keys.Verdict, why error) *keys.KeepAnswer {
		c.count(func(m *Metrics) { m.TakesRefused++ })
		return &keys.KeepAnswer{Verdict: v, Why: why.Error()}
	}
	unit, err := t.shape.Unit()
	if err != nil {
		return refuse(verdictOf(err), err)
	}
	ticket, err := handoff.OpenTicket(t.ticket, c.options.TicketKey)
	if err != nil {
		return refuse(keys.Refused, err)
	}
	if want := (t.first + len(t.units.Keys)) * unit.Tokens; ticket.Home != from || ticket.Tokens != want {
		return refuse(keys.Refused, fmt.Errorf("offload: a ticket of %v for %d tokens, %v asks with it for %d", ticket.Home, ticket.Tokens, from, want))
	}
	bytes := uint64(len(t.units.Keys)) * objectBytes(unit)
	if bytes > c.options.MaxBytesInFlight { // that is never waited for: another owner may have more room
		return refuse(keys.Full, fmt.Errorf("offload: %d bytes, and at most %d come at a time", bytes, c.options.MaxBytesInFlight))
	}
	s, err := c.storeOf(t.shape, unit)
	if err != nil {
		return refuse(verdictOf(err), err)
	}
	t.cache, t.store, t.opened = c, s, ticket
	begun := make(chan error, 1)
	if !c.begin(&c.taking, 0, func() { // also those that wait count: they take no places of Finds
		defer c.doneWith(s)
		t.enter(ctx, bytes, begun)
	}) {
		c.doneWith(s)
		return refuse(keys.Busy, errInFlight)
	}
	select {
	case err = <-begun:
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		return refuse(verdictOf(err), err)
	}
	return &keys.KeepAnswer{Verdict: keys.Taken}
}

// enter takes the units when there is room for their bytes.
func (t *taking) enter(ctx context.Context, bytes uint64, begun chan<- error) {
	in := t.cache.in
	waits, cancel := context.WithTimeout(ctx, t.time()/8) // its asker waits for the answer
	err := in.enter(waits, bytes)
	cancel()
	if err != nil {
		begun <- err
		return
	}
	defer in.leave(bytes)
	t.run(begun)
}

// time is how long all of it may take.
func (t *taking) time() time.Duration {
	return min(time.Duration(t.within)*time.Millisecond, t.cache.options.KeepTimeout)
}

// commitTimeout bounds what happens after the copy.
const commitTimeout = 10 * time.Second

// run takes the units. Begun hears when the copy has begun, or why it has not.
func (t *taking) run(begun chan<- error) {
	c := t.cache
	within := t.time()
	ctx, cancel := context.WithTimeout(c.ctx, within)
	defer cancel()
	// What the chain begins with is not evicted to make room for how it goes on. Where that is
	// half of the memory, there is no room.
	head, err := c.options.Store.Pin(t.head)
	defer head.Release()
	if errors.Is(err, store.ErrOverloaded) {
		begun <- fmt.Errorf("%w: %w", store.ErrFull, err)
		return
	}
	there, plans, err := c.options.Store.Reserve(ctx, t.units, t.store.bytes, within+commitTimeout)
	t.first += there
	if len(plans) == 0 {
		begun <- err
		return
	}
	in, err := t.accept(ctx, plans)
	begun <- err
	if err == nil {
		err = in.Wait(context.Background()) // its deadline is that of ctx; after it nothing touches the arena
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(c.ctx), commitTimeout)
	defer cancel()
	if err != nil {
		err = errors.Join(err, c.options.Store.AbortRun(end, plans))
		c.count(func(m *Metrics) { m.UnitsAborted += uint64(len(plans)) })
		c.options.Logger.Debug("a cache was not kept", "units", len(plans), "error", err)
		return
	}
	committed, err := c.options.Store.CommitRun(end, plans)
	if err != nil {
		c.options.Logger.Warn("of a cache that was copied not all is kept", "units", len(plans), "kept", committed, "error", err)
	}
	_ = c.options.Store.Touch(t.touched) // its keys are names: Reserve took them
	c.count(func(m *Metrics) {
		m.UnitsTaken += uint64(committed)
		m.UnitsAborted += uint64(len(plans) - committed)
	})
}

func (t *taking) accept(ctx context.Context, plans []*store.WritePlan) (*transceiver.AcceptHandle, error) {
	first := t.first
	table := make([]uint32, first+len(plans))
	for i, p := range plans {
		table[first+i] = uint32(p.Offset / reshard.PlaceBytes)
	}
	return t.cache.options.Transceiver.Accept(ctx, transceiver.Accept{
		Ticket: t.opened, Engine: t.store.id, Holding: reshard.Holding{Tables: [][]uint32{table}},
		Tokens: kv.TokenRange{Start: first * t.store.unit.Tokens, End: len(table) * t.store.unit.Tokens},
	})
}

// grantTo is grant for an engine of an agent: what is granted often is copied.
func (c *Cache) grantTo(ctx context.Context, from kv.Member, m *keys.FindAsk) *keys.FindAnswer {
	a := c.grant(ctx, m)
	if a.Verdict == keys.Taken {
		c.granted(from, m)
	}
	return a
}

// grant offers units to a finder: all that it asked for, verified, or it hears how many
// there are.
func (c *Cache) grant(ctx context.Context, m *keys.FindAsk) *keys.FindAnswer {
	var from []keys.TierWait
	refuse := func(v keys.Verdict, have int) *keys.FindAnswer {
		c.count(func(m *Metrics) { m.GrantsRefused++ })
		return &keys.FindAnswer{Verdict: v, Have: have, Tell: m.Tell, From: from[:min(have, len(from))]} // where nothing is, it was nowhere
	}
	unit, err := m.Shape.Unit()
	if err != nil {
		return refuse(verdictOf(err), 0)
	}
	hold, table, err := c.hold(ctx, m, unit)
	if m.Tell {
		from = fromOf(hold)
	}
	if have := len(table) - m.First; have < len(m.Units.Keys) {
		hold.Release()
		if have > 0 { // these can be asked for
			err = store.ErrMissing
		}
		return refuse(verdictOf(err), max(have, 0))
	}
	s, err := c.storeOf(&m.Shape, unit)
	if err != nil {
		hold.Release()
		return refuse(verdictOf(err), 0)
	}
	out, err := c.options.Transceiver.Offer(transceiver.Offer{
		Transfer: agent.NewID(), Engine: s.id, Known: &transceiver.KnownContent{Fingerprint: m.Fingerprint, Tokens: len(table) * s.unit.Tokens},
		First: m.First * s.unit.Tokens, Holding: reshard.Holding{Tables: [][]uint32{table}}, Layers: s.layers,
		Keep: min(time.Duration(m.WithinMs)*time.Millisecond, c.options.KeepTimeout),
	})
	if err != nil {
		c.doneWith(s)
		hold.Release()
		c.options.Logger.Debug("what was found could not be offered", "error", err)
		return refuse(keys.Busy, 0)
	}
	c.count(func(m *Metrics) { m.Grants++; m.Granted++ })
	release := func() {
		<-out.Freed()
		c.doneWith(s)
		hold.Release()
		c.count(func(m *Metrics) { m.Granted-- })
	}
	c.mu.Lock()
	closed := c.closed
	if !closed { // else Close may not wait for it any more
		c.wait.Go(release)
	}
	c.mu.Unlock()
	if closed {
		out.Withdraw()
		release()
		return refuse(keys.Busy, 0)
	}
	return &keys.FindAnswer{Verdict: keys.Taken, Have: len(m.Units.Keys), Ticket: out.Ticket, Tell: m.Tell, From: from}
}

// fromOf is where held units were.
func fromOf(h *store.Hold) []keys.TierWait {
	from := make([]keys.TierWait, len(h.From))
	for i, s := range h.From {
		from[i] = keys.TierWait{Tier: s.Tier, Units: s.Objects, Micros: uint64(s.Took.Microseconds())}
	}
	return from
}

// hold holds units that a finder asks for, where they lie, and says how many places there
// are: one for each that is there, behind those of what the sequence begins with. Err is why
// there are not more.
func (c *Cache) hold(ctx context.Context, m *keys.FindAsk, unit reshard.Unit) (*store.Hold, []uint32, error) {
	none := new(store.Hold)
	if _, _, _, keeps := c.options.Store.Memory(); !keeps {
		return none, nil, errNothingKept
	}
	each := objectBytes(unit)
	// What all of them may be is known before a byte is looked at. One that is larger
	// than there may be at a time is looked at alone: its time is bounded.
	bytes := uint64(maxVerified)
	if units := uint64(len(m.Units.Keys)); each <= maxVerified/units {
		bytes = units * each
	}
	if !c.enter(&c.verifying, bytes) {
		return none, nil, errVerifying
	}
	defer c.leave(&c.verifying, bytes)
	hold, err := c.options.Store.Hold(ctx, c.namesHere(m.Units), each) // an object of that name and another size is no unit
	if errors.Is(err, store.ErrTorn) {
		c.count(func(m *Metrics) { m.Broken++ })
	}
	table := make([]uint32, m.First, m.First+len(hold.Places))
	for _, p := range hold.Places {
		table = append(table, uint32(p.Offset/reshard.PlaceBytes))
	}
	if err == nil {
		err = store.ErrMissing
	}
	return hold, table, err
}

// maxVerified bounds the bytes of units that are being looked at for finders: some tenths of
// a second of one processor.
const maxVerified = 4 << 30

// errVerifying means that there are too many.
var errVerifying = errors.New("offload: as much as may be is being looked at")
