package prefix

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"meridian/keep/prefix/keys"
	"meridian/kv"
	"meridian/move/reshard"
	"meridian/move/transceiver"
	"meridian/move/transceiver/handoff"
)

// Keep is an engine's: these tokens' blocks may be kept for later.
type Keep struct {
	Engine string
	// Request is what the engine calls the request, for its Record.
	Request string
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

// Keep has what no owner keeps yet copied, and returns at once. With nil the blocks are the
// engine's again at the one event Freed of the transfer, as a source, which the transceiver
// tells, or Options.Events where nothing was offered. With an error they never were lent.
func (c *Cache) Keep(_ context.Context, k Keep) error {
	e, err := c.beginEarly(k.Engine)
	if err != nil {
		return err
	}
	k.began = c.options.Clock.Now()
	if !c.begin(&c.keeps, 0, func() { c.keep(k, e) }) {
		c.freed(k, "dropped", errDropped)
		e.early.Done()
	}
	return nil
}

// beginEarly is an engine that does not leave until its early Keep is done.
func (c *Cache) beginEarly(id string) (*engine, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, err := c.engineLocked(id)
	if err == nil {
		e.early.Add(1)
	}
	return e, err
}

// errDropped is why something is not kept while there is much to do.
var errDropped = fmt.Errorf("%w: as much as may be is on its way to be kept", handoff.ErrDeclined)

// freed tells an engine that its blocks were not offered.
func (c *Cache) freed(k Keep, outcome string, why error) {
	c.count(func(m *Metrics) { m.Keeps[outcome]++ })
	c.recordKeep(k, outcome, why)
	c.options.Events(handoff.Event{Kind: handoff.Freed, As: handoff.Source, Engine: k.Engine, Transfer: k.Transfer, Problem: handoff.ProblemOf(why)})
}

// keep has a prefix kept, and returns when its blocks are the engine's again. Until it is
// offered or freed it is early.
func (c *Cache) keep(k Keep, e *engine) {
	ctx, cancel := context.WithTimeout(e.life, c.options.KeepTimeout)
	defer cancel()
	offered := sync.OnceFunc(e.early.Done)
	defer offered()
	tokens := k.Content.Tokens[:min(len(k.Content.Tokens), keys.MaxUnits*e.unit.Tokens)]
	chain := keys.ChainOf(c.names, k.Content.Scope, e.digest, tokens, e.unit.Tokens)
	if len(chain.Keys) == 0 {
		c.freed(k, "short", nil)
		return
	}
	giveBack, ok := c.lend(e, k.Holding) // before any answer is waited for
	if !ok {
		c.freed(k, "dropped", errDropped)
		return
	}
	defer giveBack()
	have, err := c.where(ctx, runOf(chain))
	if err != nil { // what others have is not known: nothing is written twice
		c.freed(k, "unknown", err)
		return
	}
	c.tellUsed(chain, have)
	own, owners := c.owners()
	machine := keys.NewKeepMachine(have, own, keys.Belongs(chain, owners))
	k.present = machine.First * e.unit.Tokens
	if outcome, over := machine.Over(); over {
		_ = c.options.Store.Touch(runOf(chain))
		c.count(func(m *Metrics) { m.UnitsPresent += uint64(machine.First) })
		c.freed(k, outcomes[outcome], nil)
		return
	}
	bytes := uint64(machine.End-machine.First) * objectBytes(e.unit)
	if !c.grow(bytes) {
		c.freed(k, "dropped", errDropped)
		return
	}
	defer c.shrink(bytes)
	c.offer(ctx, k, e, chain, machine, offered)
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

// grow counts bytes that are on their way, if that is not too much; shrink ends it.
func (c *Cache) grow(bytes uint64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.keeps.Grow(bytes)
}

func (c *Cache) shrink(bytes uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.keeps.Shrink(bytes)
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

// offer offers what is missing, to one owner after the other, and returns when the blocks
// are the engine's again.
func (c *Cache) offer(ctx context.Context, k Keep, e *engine, chain keys.Chain, machine *keys.KeepMachine, offered func()) {
	if err := ctx.Err(); err != nil {
		c.freed(k, "unknown", err)
		return
	}
	content := k.Content
	content.Tokens = content.Tokens[:machine.End*e.unit.Tokens]
	out, err := c.options.Transceiver.Offer(transceiver.Offer{
		Transfer: k.Transfer, Engine: k.Engine, Content: content, Holding: k.Holding, Layers: e.layers, Keep: c.options.KeepTimeout, ToKeep: true,
	})
	if err != nil {
		c.freed(k, "declined", err)
		return
	}
	offered()
	ask := &keys.KeepAsk{Shape: e.shape, Chain: chain.Part(0, machine.End), First: machine.First, Ticket: out.Ticket, WithinMs: uint64(c.options.KeepTimeout / time.Millisecond)}
	part := RecordPart{Start: machine.First * e.unit.Tokens, End: machine.End * e.unit.Tokens}
	for name := machine.Ask(); name != ""; name = machine.Ask() {
		part.Owner = name // the last that is asked takes it, or none does
		machine.Answered(c.askToKeep(ctx, name, ask))
	}
	verdict, _ := machine.Over()
	outcome := outcomes[verdict]
	if verdict != keys.Taken {
		out.Withdraw()
	}
	select {
	case <-out.Freed():
	case <-ctx.Done():
		out.Withdraw()
		<-out.Freed() // at the latest when the engine leaves
	}
	err = out.Wait(context.Background())
	if err != nil && verdict == keys.Taken {
		outcome = "failed"
	}
	use := keys.Use{Model: k.Content.Scope.Model, Tenant: chain.Tenant, Keeps: 1}
	if outcome == outcomes[keys.Taken] {
		use.UnitsKept = uint64(machine.End - machine.First)
		use.BytesKept = use.UnitsKept * objectBytes(e.unit)
	}
	c.count(func(m *Metrics) {
		c.tally.Add(use)
		m.Keeps[outcome]++
		m.UnitsPresent += uint64(machine.First)
		m.UnitsKept += use.UnitsKept
		m.BytesKept += use.BytesKept
	})
	switch outcome {
	case outcomes[keys.Taken]:
		c.recordKeep(k, outcome, nil, part)
	case "failed":
		c.recordKeep(k, outcome, err)
	default: // that the offer was withdrawn is no news
		c.recordKeep(k, outcome, nil)
	}
}

// askToKeep asks one owner; nil is no answer.
func (c *Cache) askToKeep(ctx context.Context, name string, ask *keys.KeepAsk) *keys.KeepAnswer {
	to, _, err := c.owner(name)
	if err != nil {
		return nil
	}
	if to == c.self {
		return c.take(c.self, ask)
	}
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
