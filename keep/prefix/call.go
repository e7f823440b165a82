package prefix

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"meridian/keep/prefix/keys"
	"meridian/keep/store"
	"meridian/kv"
	"meridian/move/fabric"
)

// owner is the start of an owner that the directory names, and the last kind of message that
// it reads.
func (c *Cache) owner(name string) (to kv.Member, reads int, err error) {
	all := c.options.Store.Owners()
	i := slices.IndexFunc(all, func(o store.OwnerRecord) bool { return o.Name == name })
	if i < 0 {
		return kv.Member{}, 0, fmt.Errorf("offload: owner %q is gone", name)
	}
	return kv.Member{Name: name, Incarnation: all[i].Incarnation}, all[i].Prefixes, nil
}

// ask asks another agent, and waits for its answer as long as ctx lasts. A ticket that
// comes later is given back.
func (c *Cache) ask(ctx context.Context, to kv.Member, m keys.Message) (keys.Message, error) {
	id, answer, end := c.calls.Begin(to)
	defer end()
	if err := c.peers.Tell(ctx, to, keys.AppendMessage(nil, id, m)); err != nil {
		return nil, err
	}
	select {
	case m := <-answer:
		return m, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// giveBack lets a holder have its blocks back that will not be taken.
func (c *Cache) giveBack(m keys.Message) {
	if a, is := m.(*keys.FindAnswer); is && len(a.Ticket) > 0 {
		c.decline(a.Ticket)
	}
}

func (c *Cache) decline(tickets ...[]byte) {
	for _, ticket := range tickets {
		if err := c.options.Transceiver.ReturnTicket(ticket); err != nil { // then it expires
			c.options.Logger.Debug("a ticket could not be given back", "error", err)
		}
	}
}

// onNotification takes a message of another agent.
func (c *Cache) onNotification(n fabric.Notification) {
	request, m, err := keys.ParseMessage(n.Payload)
	from := kv.Member{Name: n.From, Incarnation: n.Incarnation}
	if err != nil {
		c.count(func(m *Metrics) { m.Malformed++ })
		c.options.Agent.Unreadable(n, err)
		return
	}
	switch m := m.(type) {
	case *keys.KeepAsk:
		m.Chain.Payer = cmp.Or(m.Chain.Payer, store.PayerOfAgent(from.Name)) // of a build that does not say it
		c.serve(from, request, &keys.KeepAnswer{Verdict: keys.Busy}, func() keys.Message { return c.take(c.ctx, from, m) })
	case *keys.FindAsk:
		m.Units.Payer = cmp.Or(m.Units.Payer, store.PayerOfAgent(from.Name))
		c.serve(from, request, &keys.FindAnswer{Verdict: keys.Busy}, func() keys.Message {
			// How long an owner looks is its own to say: no asker waits longer for it.
			ctx, cancel := context.WithTimeout(c.ctx, min(time.Duration(m.PatienceMs)*time.Millisecond, c.options.FindTimeout))
			defer cancel()
			return c.grantTo(ctx, from, m)
		})
	case *keys.CopyAsk:
		m.Units.Payer = cmp.Or(m.Units.Payer, store.PayerOfAgent(from.Name))
		c.serve(from, request, &keys.KeepAnswer{Verdict: keys.Busy}, func() keys.Message { return c.takeCopy(from, m) })
	case *keys.Used:
		c.doFor(from, func() { // where there is too much to do it is not heard
			if c.options.Store.Touch(runOf(m.Units)) == nil {
				c.count(func(m *Metrics) { m.UsesHeard++ })
			}
		})
	default:
		c.calls.Answered(from, request, m)
	}
}

// tellUsed tells owners elsewhere that what they have of a chain was used; who does not hear it
// has not. An owner that hangs takes nothing of what this agent answers with.
func (c *Cache) tellUsed(chain keys.Chain, have []string) {
	for name, units := range keys.UsedAt(chain, have, c.self.Name) {
		to, reads, err := c.owner(name)
		if err == nil && keys.ReadsUsed(reads) {
			c.begin(&c.telling, 0, func() { // where there is too much to do it is not told
				ctx, cancel := context.WithTimeout(c.ctx, c.options.FindTimeout)
				defer cancel()
				_ = c.peers.Tell(ctx, to, keys.AppendMessage(nil, 0, &keys.Used{Units: units}))
			})
		}
	}
}

// serve answers an ask of another agent, or says that there is too much to do.
func (c *Cache) serve(from kv.Member, request uint64, busy keys.Message, do func() keys.Message) {
	if !c.doFor(from, func() { c.answer(from, request, do()) }) {
		c.refuse(from, request, busy)
	}
}

// doFor does what another agent wants, or returns false: there is too much to do, for all of
// them or for this one, which takes no other's place.
func (c *Cache) doFor(from kv.Member, do func()) bool {
	c.mu.Lock()
	room := c.asks[from] < maxOfPeer
	if room {
		c.asks[from]++
	}
	c.mu.Unlock()
	if !room {
		return false
	}
	begun := c.begin(&c.granting, 0, func() {
		defer c.served(from)
		do()
	})
	if !begun {
		c.served(from)
	}
	return begun
}

func (c *Cache) served(from kv.Member) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.asks[from]--; c.asks[from] == 0 {
		delete(c.asks, from)
	}
}

func (c *Cache) answer(to kv.Member, request uint64, m keys.Message) {
	ctx, cancel := context.WithTimeout(c.ctx, c.options.KeepTimeout)
	defer cancel()
	if err := c.peers.Tell(ctx, to, keys.AppendMessage(nil, request, m)); err != nil {
		c.giveBack(m)
		c.options.Logger.Debug("an answer about kept caches was not delivered", "peer", to.Name, "error", err)
	}
}

// refuse says at once, or not at all, that there is too much to do.
func (c *Cache) refuse(to kv.Member, request uint64, m keys.Message) {
	c.count(func(m *Metrics) { m.TurnedAway++ })
	_ = c.peers.Announce(to, keys.AppendMessage(nil, request, m), c.options.FindTimeout, func(error) {}) // else its asker waits in vain
}
