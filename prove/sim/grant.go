package sim

import (
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"meridian/kv"
	"meridian/move/agent"
	"meridian/move/fabric"
)

// grant is what the world knows of a grant.
type grant struct {
	id      kv.ID
	owner   *process
	flaw    error // why it never opens all of what it is used for
	opens   []piece
	until   time.Duration // by the world's clock
	revoked bool          // Revoke has returned
}

// flaws are the ways in which a grant may not be the right one, by the error that
// each must be refused with. Most grants are right.
var flaws = []error{
	fabric.ErrNoGrant, fabric.ErrGrantPeer, fabric.ErrGrantOp, fabric.ErrGrantSpans, fabric.ErrGrantExpired, fabric.ErrGrantRevoked,
}

var grantErrors = flaws

func drawFlaw(r *rand.Rand) error {
	if r.IntN(6) > 0 {
		return nil
	}
	return one(r, flaws)
}

// mayFailBy reports whether a refusal is a true one.
func (t *transfer) mayFailBy(refusal error) bool {
	g := t.grant
	switch {
	case errors.Is(t.forbidden, refusal), errors.Is(g.flaw, refusal):
		return true
	case g.owner == nil:
		return false
	case errors.Is(refusal, fabric.ErrGrantExpired):
		return t.world().now > g.until
	}
	return errors.Is(refusal, fabric.ErrGrantRevoked) && g.revoked
}

// grantFor has the owner of some memory open it to a transfer of p's, rightly or
// with a flaw. Without an owner there is no grant.
func (p *process) grantFor(owner *process, op fabric.Op, pieces []piece, flaw error) *grant {
	w := p.world
	none := &grant{id: drawID(w.work), flaw: fabric.ErrNoGrant}
	if owner == p { // a process needs no grant for its own memory
		return &grant{owner: p, opens: pieces, until: w.now + time.Hour}
	}
	if owner == nil || errors.Is(flaw, fabric.ErrNoGrant) {
		if w.work.IntN(2) == 0 {
			none.id = kv.ID{}
		}
		return none
	}
	g := &grant{owner: owner, flaw: flaw, until: w.now + time.Hour}
	o := agent.GrantOptions{Peer: p.host.name, Incarnation: p.incarnation(), Op: op, For: time.Hour}
	switch {
	case errors.Is(flaw, fabric.ErrGrantPeer) && w.work.IntN(2) == 0:
		o.Incarnation = drawID(w.work)
	case errors.Is(flaw, fabric.ErrGrantPeer):
		o.Peer = "a-third-agent"
	case errors.Is(flaw, fabric.ErrGrantOp):
		o.Op = fabric.Read + fabric.Write - op
	case errors.Is(flaw, fabric.ErrGrantSpans):
		all := pieces
		if pieces = narrower(w.work, all); covers(pieces, all) {
			flaw, g.flaw = nil, nil // another piece holds that byte as well
		}
	case errors.Is(flaw, fabric.ErrGrantExpired):
		o.For = 1
	case flaw == nil && w.work.IntN(5) == 0:
		o.For = between(w.work, time.Millisecond, time.Second) // it may run out on the way
		g.until = w.now + o.For
	}
	if flaw == nil && w.work.IntN(2) == 0 {
		o.Incarnation = kv.ID{}
	}
	list, err := owner.agent.Local(describeLocally(pieces))
	if err != nil {
		return none // the memory is not there any more
	}
	o.Side = agent.Side{List: list}
	if g.id, err = owner.agent.Grant(o); err != nil {
		w.violate("grants are given", nil, "%v: %v", owner, err)
		return none
	}
	w.tally.Grants++
	if flaw == nil || errors.Is(flaw, fabric.ErrGrantSpans) {
		g.opens = pieces
	}
	owner.grants = append(owner.grants, g)
	w.note(owner, nil, "grants %v to %s, for %v, flaw: %v", o.Op, o.Peer, o.For, flaw)
	if errors.Is(flaw, fabric.ErrGrantRevoked) {
		g.revoke()
	}
	return g
}

// refusal is why the grant opens nothing now; nil when it does.
func (g *grant) refusal() error {
	switch {
	case g.flaw != nil:
		return g.flaw
	case g.revoked:
		return fabric.ErrGrantRevoked
	case g.owner.world.now > g.until:
		return fabric.ErrGrantExpired
	}
	return nil
}

// narrower leaves out one byte.
func narrower(r *rand.Rand, pieces []piece) []piece {
	less := append([]piece(nil), pieces...)
	p := &less[r.IntN(len(less))]
	p.length--
	if r.IntN(2) == 0 {
		p.offset++
	}
	return less
}

// covers reports whether some pieces hold all bytes of others.
func covers(some, others []piece) bool {
	return !slices.ContainsFunc(others, func(p piece) bool {
		return find(some, p.region, fabric.Cut{Offset: p.offset, Length: p.length}) == nil
	})
}

// revoke takes a grant back.
func (g *grant) revoke() {
	w := g.owner.world
	w.note(g.owner, nil, "revokes a grant")
	if err := g.owner.agent.Revoke(atOnce, g.id); err != nil {
		w.violate("grants are revoked", nil, "%v: %v", g.owner, err)
	}
	g.revoked = true
	w.tally.Revoked++
}
