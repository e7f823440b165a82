package prefix

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"meridian/keep/prefix/keys"
	"meridian/kv"
	"meridian/move/agent"
	"meridian/move/reshard"
	"meridian/move/transceiver"
	"meridian/move/transceiver/handoff"
)

// Keep is an engine's: these tokens' blocks may be kept for later.
type Keep struct {
	Engine string
	// Request is what the engine calls the request, for its Record. Keeps of one request come
	// after one another: each keeps what the one before it has not.
	Request string
	// Tenant is whose share of owners' memory it takes; empty: the engine's own.
	Tenant string
	// Transfer is a new one for every Keep.
	Transfer kv.ID
	// Content is the tokens whose cache is computed, and what they are of. Those behind
	// the last whole unit are not kept.
	Content handoff.Content
	// Holding is where the blocks are. They are not the engine's until Freed.
	Holding reshard.Holding

	began   time.Time
	present int // how many tokens are kept already, once that is known
}

// keeping is a Keep under way.
type keeping struct {
	Keep
	cache   *Cache
	engine  *engine
	chain   keys.Chain
	machine *keys.KeepMachine
	parts   []RecordPart
	life    context.Context // ends when it is to
	endLife context.CancelFunc
	ended   chan struct{} // closed at the end, for the next Keep of its request
	// before is the Keep of its request that came before it, over whether it has ended. The
	// cache's mu protects them.
	before *keeping
	over   bool
}

// Keep has what no owner keeps yet copied, and returns at once. With nil the blocks are the
// engine's again at the one event Freed of the transfer, as a source, of Options.Events. With
// an error they never were lent.
func (c *Cache) Keep(_ context.Context, k Keep) error {
	run, err := c.newKeeping(k)
	if err != nil {
		return err
	}
	if !c.begin(&c.keeps, 0, run.run) {
		run.end(outcomeDropped, errDropped)
		run.engine.early.Done()
	}
	return nil
}

// CancelKeep ends a Keep: what of it is kept by then stays.
func (c *Cache) CancelKeep(transfer kv.ID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if k := c.keepings[transfer]; k != nil {
		k.endLife()
	}
}

// newKeeping is a Keep of an engine that does not leave until it is begun.
func (c *Cache) newKeeping(k Keep) (*keeping, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, err := c.engineLocked(k.Engine)
	if err != nil {
		return nil, err
	}
	if c.keepings[k.Transfer] != nil {
		return nil, fmt.Errorf("%w: Keep %s is under way", handoff.ErrContradiction, k.Transfer)
	}
	e.early.Add(1)
	k.began = c.options.Clock.Now()
	run := &keeping{Keep: k, cache: c, engine: e, ended: make(chan struct{})}
	run.life, run.endLife = context.WithTimeout(e.life, c.options.KeepTimeout)
	c.keepings[k.Transfer] = run
	if k.Request != "" {
		run.before = e.last[k.Request]
		e.last[k.Request] = run
	}
	return run, nil
}

// running is the last Keep of its request before it that has not ended: one that ended early
// may have come after another that goes on. Mu is held.
func (k *keeping) running() *keeping {
	for k.before != nil && k.before.over {
		k.before = k.before.before
	}
	return k.before
}

// awaitTurn waits for the Keeps of its request that came before it.
func (k *keeping) awaitTurn() error {
	for {
		k.cache.mu.Lock()
		before := k.running()
		k.cache.mu.Unlock()
		if before == nil {
			return nil
		}
		select {
		case <-before.ended:
		case <-k.life.Done():
			return k.life.Err()
		}
	}
}

// outcomeDropped is of a Keep for which there is no room, errDropped why.
const outcomeDropped = "dropped"

var errDropped = fmt.Errorf("%w: as much as may be is on its way to be kept", handoff.ErrDeclined)

// outcomeWithdrawn is of a Keep that its engine took back, or whose engine has left.
const outcomeWithdrawn = "withdrawn"

// isWithdrawn reports whether a Keep that ended with an error is one of these.
func (k *keeping) isWithdrawn(err error) bool {
	return err != nil && (errors.Is(k.life.Err(), context.Canceled) || errors.Is(err, ErrUnknown))
}

// errNotOffered means that the transceiver did not take a piece.
var errNotOffered = errors.New("offload: its blocks cannot be offered")

// problem is what an engine is told of an outcome: nothing where something of it is there now.
func problem(outcome string, why error) handoff.Problem {
	switch {
	case slices.Contains([]string{"kept", "part", "present", "short"}, outcome):
		return handoff.Problem{}
	case why == nil:
		why = fmt.Errorf("%w: %s", handoff.ErrDeclined, keepOutcomes[outcome])
	case errors.Is(why, context.Canceled):
		why = fmt.Errorf("%w: %w", handoff.ErrWithdrawn, why)
	case errors.Is(why, context.DeadlineExceeded):
		why = fmt.Errorf("%w: %w", handoff.ErrDeadline, why)
	}
	return handoff.ProblemOf(why)
}

// end tells an engine that its blocks are its own again.
func (k *keeping) end(outcome string, why error) {
	c := k.cache
	c.mu.Lock()
	c.metrics.Keeps[outcome]++
	delete(c.keepings, k.Transfer)
	k.over = true
	if k.engine.last[k.Request] == k {
		if before := k.running(); before != nil {
			k.engine.last[k.Request] = before
		} else {
			delete(k.engine.last, k.Request)
		}
	}
	now := c.engines[k.Engine]
	c.mu.Unlock()
	k.endLife()
	close(k.ended)
	c.recordKeep(k, outcome, why)
	if now == nil || now == k.engine { // one that has taken its place never lent them
		c.options.Events(handoff.Event{Kind: handoff.Freed, As: handoff.Source, Engine: k.Engine, Transfer: k.Transfer, Problem: problem(outcome, why)})
	}
}

// run keeps a prefix, and returns when its blocks are the engine's again. Until its first
// piece is offered it is early.
func (k *keeping) run() {
	giveBack, ok := k.cache.lend(k.engine, k.Holding) // before anything is waited for
	if !ok {
		k.end(outcomeDropped, errDropped)
		k.engine.early.Done()
		return
	}
	offered := sync.OnceFunc(k.engine.early.Done)
	outcome, err := k.keep(offered)
	if outcome != "part" && k.isWithdrawn(err) {
		outcome = outcomeWithdrawn
	}
	giveBack()
	k.end(outcome, err)
	offered()
}

// keep says what came of it.
func (k *keeping) keep(offered func()) (outcome string, err error) {
	c, unit := k.cache, k.engine.unit
	tokens := k.Content.Tokens[:min(len(k.Content.Tokens), keys.MaxUnits*unit.Tokens)]
	k.chain = keys.ChainOf(c.names, k.Content.Scope, k.engine.digest, tokens, unit.Tokens)
	k.chain.Payer = keys.PayerOf(k.Tenant, k.Engine)
	switch {
	case len(k.chain.Keys) == 0:
		return "short", nil
	case objectBytes(unit) > c.options.MaxBytesInFlight:
		return outcomeDropped, fmt.Errorf("%w: a piece of %d tokens has %d bytes, and %d may be on their way to be kept", handoff.ErrDeclined, unit.Tokens, objectBytes(unit), c.options.MaxBytesInFlight)
	}
	if err := k.awaitTurn(); err != nil {
		return outcomeDropped, err
	}
	have, err := c.where(k.life, runOf(k.chain))
	if err != nil { // what others have is not known: nothing is written twice
		return "unknown", err
	}
	c.tellUsed(k.chain, have)
	own, owners := c.owners()
	k.machine = keys.NewKeepMachine(have, own, keys.Belongs(k.chain, owners), int(max(1, c.pieceBytes()/objectBytes(unit))))
	k.present = k.machine.First * unit.Tokens
	c.count(func(m *Metrics) { m.UnitsPresent += uint64(k.machine.First) })
	if verdict, over := k.machine.Over(); over {
		_ = c.options.Store.Touch(runOf(k.chain))
		return outcomes[verdict], nil
	}
	for over := false; !over && err == nil; _, over = k.machine.Over() {
		err = k.keepPiece(offered)
	}
	return k.outcome(err)
}

// pieceBytes is how much of a Keep is on its way at a time, so that others go on beside it.
func (c *Cache) pieceBytes() uint64 { return c.options.MaxBytesInFlight / 4 }

// outcome is what came of all pieces, where err ended them.
func (k *keeping) outcome(err error) (string, error) {
	c, unit, verdict := k.cache, k.engine.unit, keys.Taken
	kept := uint64(k.machine.Kept)
	use := keys.Use{Model: k.Content.Scope.Model, Tenant: k.chain.Tenant, Keeps: 1, UnitsKept: kept, BytesKept: kept * objectBytes(unit)}
	c.count(func(m *Metrics) {
		c.tally.Add(use)
		m.UnitsKept += use.UnitsKept
		m.BytesKept += use.BytesKept
	})
	if err == nil {
		verdict, _ = k.machine.Over()
	}
	switch {
	case kept > 0 && (err != nil || verdict != keys.Taken):
		return "part", err
	case errors.Is(err, errInFlight):
		return outcomeDropped, err
	case errors.Is(err, errNotOffered):
		return "declined", err
	case err != nil && k.machine.Copies():
		return "failed", err
	case err != nil: // its time is over, and the owner that was asked last said nothing
		return "busy", err
	}
	return outcomes[verdict], nil
}

// lend counts blocks of an engine that it does not have for a while, if that is not too
// many.
func (c *Cache) lend(e *engine, h reshard.Holding) (giveBack func(), ok bool) {
	blocks := 0
	for _, table := range h.Tables {
		blocks = max(blocks, len(table))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if e.lent > 0 && float64(e.lent+blocks) > maxLentPart*float64(e.blocks) {
		return nil, false
	}
	e.lent += blocks
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		e.lent -= blocks
	}, true
}

// outcomes are what came of a Keep, as it is counted.
var outcomes = map[keys.Verdict]string{
	keys.Taken: "kept", keys.Have: "present", keys.Full: "full", keys.Busy: "busy", keys.Missing: "refused", keys.Refused: "refused",
}

// owners are those of the cell, and this agent's own if there is one.
func (c *Cache) owners() (own string, all []string) {
	for _, o := range c.options.Store.Owners() {
		all = append(all, o.Name)
	}
	if _, _, _, keeps := c.options.Store.Memory(); keeps {
		own = c.self.Name
	}
	return own, all
}

// keepPiece offers the next units to one owner, and returns when nothing reads them any more.
// What ends the Keep, beside owners' answers, is an error.
func (k *keeping) keepPiece(offered func()) error {
	c, unit, ctx := k.cache, k.engine.unit, k.life
	first, end := k.machine.Piece()
	bytes := uint64(end-first) * objectBytes(unit)
	if err := c.out.enter(ctx, bytes); err != nil {
		return err
	}
	defer c.out.leave(bytes)
	out, err := k.offer(first, end)
	if err != nil {
		return err
	}
	offered()
	ask := &keys.KeepAsk{Shape: k.engine.shape, Chain: k.chain.Part(0, end), First: first, Ticket: out.Ticket, WithinMs: uint64(k.timeLeft() / time.Millisecond)}
	owner := k.machine.Ask()
	k.machine.Answered(c.askToKeep(ctx, owner, ask))
	if !k.machine.Copies() {
		out.Withdraw()
	}
	select {
	case <-out.Freed():
	case <-ctx.Done():
		out.Withdraw()
		<-out.Freed() // at the latest when the engine leaves
	}
	if !k.machine.Copies() {
		return ctx.Err()
	}
	if err := out.Wait(context.Background()); err != nil {
		return err
	}
	taken := out.Taken()
	k.machine.Copied(taken.Start/unit.Tokens, taken.End/unit.Tokens)
	k.addPart(RecordPart{Owner: owner, Start: taken.Start, End: taken.End, Transfer: out.Transfer})
	return nil
}

// offer offers units for an owner to take, unless the engine is about to leave.
func (k *keeping) offer(first, end int) (*transceiver.OfferHandle, error) {
	c, unit := k.cache, k.engine.unit
	c.mu.Lock()
	leaves := c.engines[k.Engine] != k.engine
	if !leaves {
		k.engine.early.Add(1) // Leave waits until the transceiver knows of it, and ends it
		defer k.engine.early.Done()
	}
	c.mu.Unlock()
	if err := k.life.Err(); err != nil || leaves {
		return nil, errors.Join(err, fmt.Errorf("%w: %q", ErrUnknown, k.Engine))
	}
	content := k.Content
	content.Tokens = content.Tokens[:end*unit.Tokens]
	out, err := c.options.Transceiver.Offer(transceiver.Offer{
		Transfer: agent.NewID(), Engine: k.Engine, Content: content, First: first * unit.Tokens, Holding: k.Holding, Layers: k.engine.layers, Keep: k.timeLeft(), ToKeep: true,
	})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNotOffered, err)
	}
	return out, nil
}

// timeLeft is how much longer it may take.
func (k *keeping) timeLeft() time.Duration {
	deadline, _ := k.life.Deadline()
	return max(time.Millisecond, time.Until(deadline))
}

// addPart notes what an owner has taken, together with what it has taken right before.
func (k *keeping) addPart(p RecordPart) {
	if last := len(k.parts) - 1; last >= 0 && k.parts[last].Owner == p.Owner && k.parts[last].End == p.Start {
		k.parts[last].End, k.parts[last].Transfer = p.End, kv.ID{}
		return
	}
	k.parts = append(k.parts, p)
}

// askToKeep asks one owner; nil is no answer.
func (c *Cache) askToKeep(ctx context.Context, name string, ask *keys.KeepAsk) *keys.KeepAnswer {
	to, reads, err := c.owner(name)
	if err != nil {
		return nil
	}
	if to == c.self {
		return c.take(ctx, c.self, ask)
	}
	ask.Pays = keys.ReadsPayer(reads)
	ctx, cancel := context.WithTimeout(ctx, c.options.KeepTimeout/4) // so that another can be asked
	defer cancel()
	m, err := c.ask(ctx, to, ask)
	answer, is := m.(*keys.KeepAnswer)
	if err == nil && !is {
		err = errors.New("it answered something else")
	}
	if err != nil {
		c.options.Logger.Debug("an owner did not say whether it keeps a cache", "owner", name, "error", err)
		return nil
	}
	return answer
}
