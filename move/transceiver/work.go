package transceiver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"meridian/kv"
	"meridian/move/agent"
	"meridian/move/fabric"
	"meridian/move/reshard"
	"meridian/move/transceiver/handoff"
)

// work is what this agent does for one session. Everything in it ends when its
// context does, and Quiesce is answered after that.
type work struct {
	ctx  context.Context
	stop context.CancelFunc
	// running is what runs. Nothing is added once closed is set.
	running sync.WaitGroup
	// The rest is under the transceiver's mu.
	closed  bool
	grants  []kv.ID
	regions []uint64 // that they open some of
}

// ownGrant is a grant of this agent's memory. An agent may touch its own memory
// without asking its guard, so what it moves here by itself, because both sides
// of a hand-off live on it, is kept by this instead.
type ownGrant struct {
	ctx    context.Context
	revoke context.CancelFunc
	users  sync.WaitGroup
}

// workOf finds or makes a session's. mu is held.
func (t *Transceiver) workOf(s handoff.SessionID) *work {
	l := t.sessions[s]
	if l == nil {
		l = &work{}
		l.ctx, l.stop = context.WithCancel(t.ctx)
		t.sessions[s] = l
	}
	return l
}

// beginGrant opens what an order names. mu is held.
func (t *Transceiver) beginGrant(e handoff.Grant) (do func()) {
	l := t.workOf(e.Session)
	if l.closed {
		return nil
	}
	own, err := t.ownMemory(e.Order)
	l.running.Add(1)
	return t.begin(func() {
		var flowGrants []handoff.FlowGrant
		if err == nil {
			flowGrants, err = t.grantFlows(l, e.Order, own)
		}
		l.running.Done()
		t.step(func(now handoff.Instant) []handoff.Effect { return t.follower.Granted(now, e.Session, flowGrants, err) })
	})
}

// ownMemory is the memory of this agent's ranks, as they registered it: what a
// home says of it must be the same. mu is held.
func (t *Transceiver) ownMemory(o *handoff.Order) (map[int]handoff.Memory, error) {
	mine := t.engines[o.Engine]
	party := &o.Terms.Src
	if o.As == handoff.Destination {
		party = &o.Terms.Dst
	}
	if mine == nil || party.Engine.ID != o.Engine {
		return nil, fmt.Errorf("%w: engine %q has no ranks here", handoff.ErrMember, o.Engine)
	}
	own := make(map[int]handoff.Memory)
	for _, f := range o.Flows {
		rank := f.Src
		if o.As == handoff.Destination {
			rank = f.Dst
		}
		memory, here := mine.memory[rank]
		if !here || rank >= len(party.Engine.Ranks) || !slices.Equal(memory, party.Engine.Ranks[rank].Memory) {
			return nil, fmt.Errorf("%w: rank %d of engine %q is not here, or its memory is another by now", handoff.ErrMember, rank, o.Engine)
		}
		own[rank] = memory
	}
	return own, nil
}

// planOf is the plan of an order, if it is the one that its home means.
func (t *Transceiver) planOf(o *handoff.Order) (*reshard.Plan, error) {
	plan, err := t.planner.of(o.Terms)
	if err == nil && plan.Digest() != o.Digest {
		err = fmt.Errorf("%w: the home has %.8s, its follower on %s %.8s", handoff.ErrDigest, o.Digest, t.self.Name, plan.Digest())
	}
	return plan, err
}

func flowOf(plan *reshard.Plan, f handoff.Flow) (reshard.Flow, error) {
	for _, flow := range plan.From(f.Src) {
		if flow.Dst == f.Dst {
			return flow, nil
		}
	}
	return reshard.Flow{}, fmt.Errorf("%w: %v is not in the plan", handoff.ErrTerms, f)
}

// grantFlows writes the grants. Those it has written when something fails are
// revoked with the rest of the session.
func (t *Transceiver) grantFlows(l *work, o *handoff.Order, own map[int]handoff.Memory) ([]handoff.FlowGrant, error) {
	plan, err := t.planOf(o)
	if err != nil {
		return nil, err
	}
	if lies, err := t.planner.planGrants(o.Terms, o.As); err == nil {
		plan = lies
	}
	flowGrants := slices.Clone(o.Flows)
	for i := range flowGrants {
		if err := l.ctx.Err(); err != nil {
			return nil, err
		}
		if flowGrants[i].Grant, err = t.grantFlow(l, o, plan, flowGrants[i].Flow, own); err != nil {
			return nil, fmt.Errorf("%v: %w", flowGrants[i].Flow, err)
		}
	}
	return flowGrants, nil
}

func (t *Transceiver) grantFlow(l *work, o *handoff.Order, plan *reshard.Plan, f handoff.Flow, own map[int]handoff.Memory) (kv.ID, error) {
	flow, err := flowOf(plan, f)
	if err != nil {
		return kv.ID{}, err
	}
	list, op := fabric.List(nil), fabric.Read
	if o.As == handoff.Source {
		list, err = oneSide(flow, own[f.Src], o.As)
	} else {
		op = fabric.Write
		list, err = oneSide(flow, own[f.Dst], o.As)
	}
	if err != nil {
		return kv.ID{}, err
	}
	memory, err := t.options.Agent.LocalSpans(list)
	if err != nil {
		return kv.ID{}, err
	}
	peer := o.Other(f).Agent
	id, err := t.options.Agent.Grant(agent.GrantOptions{
		Peer: peer.Name, Incarnation: peer.Incarnation, Op: op, Side: agent.Side{List: memory},
		For: duration(handoff.Span(o.RemainingMs)) + grantSlack,
	})
	if err != nil {
		return kv.ID{}, err
	}
	g := &ownGrant{}
	g.ctx, g.revoke = context.WithCancel(t.ctx)
	t.mu.Lock()
	defer t.mu.Unlock()
	l.grants = append(l.grants, id)
	for i := range list {
		if !slices.Contains(l.regions, list[i].Region) {
			l.regions = append(l.regions, list[i].Region)
		}
	}
	t.grants[id] = g
	return id, nil
}

// grantSlack is how much longer a grant holds than the hand-off may take. It
// is the fence that ends what runs, not the grant's own end.
const grantSlack = time.Second

// beginMove moves some layers of a flow. mu is held.
func (t *Transceiver) beginMove(e handoff.Move) (do func()) {
	l := t.workOf(e.Session)
	if l.closed {
		return nil
	}
	own, err := t.ownMemory(e.Order)
	var g *ownGrant
	if err == nil && e.Order.Other(e.FlowGrant.Flow).Agent == t.self {
		if g = t.grants[e.FlowGrant.Grant]; g == nil {
			err = fabric.ErrGrantRevoked
		} else {
			g.users.Add(1)
		}
	}
	l.running.Add(1)
	return t.begin(func() {
		m := handoff.Movement{Flow: e.FlowGrant.Flow, Err: err}
		if err == nil {
			m = t.move(l, g, e, own)
		}
		if g != nil {
			g.users.Done()
		}
		l.running.Done()
		t.step(func(now handoff.Instant) []handoff.Effect { return t.follower.Moved(now, e.Session, m) })
	})
}

// beginQuiesce ends a session's work. mu is held.
func (t *Transceiver) beginQuiesce(e handoff.Quiesce) (do func()) {
	l := t.workOf(e.Session)
	l.closed = true
	l.stop()
	return t.begin(func() {
		l.running.Wait()
		t.mu.Lock()
		grants := l.grants
		var own []*ownGrant
		for _, id := range grants {
			own = append(own, t.grants[id])
			delete(t.grants, id)
		}
		delete(t.sessions, e.Session)
		t.mu.Unlock()
		for i, id := range grants {
			own[i].revoke()
			own[i].users.Wait()
			t.revoke(id, l.regions)
		}
		t.step(func(now handoff.Instant) []handoff.Effect { return t.follower.Quiesced(now, e.Session) })
	})
}

// revoke returns when nothing under a grant touches memory here. That takes local
// work only; where it fails all the same, the regions are fenced: their engine
// must register them anew, but its blocks are safe.
func (t *Transceiver) revoke(id kv.ID, regions []uint64) {
	ctx, cancel := context.WithTimeout(context.Background(), revokeTimeout)
	defer cancel()
	err := t.options.Agent.Revoke(ctx, id)
	if err == nil || errors.Is(err, fabric.ErrClosed) {
		return
	}
	t.options.Logger.Error("a grant could not be revoked: its regions are fenced", "regions", regions, "error", err)
	for _, region := range regions {
		for pause := time.Millisecond; ; pause = min(2*pause, time.Second) {
			_, err := t.options.Agent.Fence(context.Background(), region)
			if err == nil || errors.Is(err, fabric.ErrUnknownRegion) || errors.Is(err, fabric.ErrClosed) {
				break
			}
			time.Sleep(pause)
		}
	}
}

const revokeTimeout = 10 * time.Second
