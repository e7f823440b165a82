package handoffsim

import (
	"errors"
	"fmt"
	"slices"

	"meridian/kv"
	"meridian/move/reshard"
	"meridian/move/transceiver/handoff"
)

// work is what a process does for a session.
type work struct {
	closed bool // Quiesce was asked for: nothing begins any more
	grants []kv.ID
	moves  []*transferInFlight
}

// grant is an opening of memory to one agent.
type grant struct {
	peer  kv.Member
	read  bool
	rank  int
	owner *engine
	runs  []span
}

type span struct{ from, to int64 }

func (g *grant) covers(from, to int64) bool {
	return slices.ContainsFunc(g.runs, func(s span) bool { return s.from <= from && to <= s.to })
}

// transferInFlight is a transfer on its way.
type transferInFlight struct{ stopped bool }

func (p *process) workOf(s handoff.SessionID) *work {
	if p.sessions[s] == nil {
		p.sessions[s] = &work{}
	}
	return p.sessions[s]
}

// makePlan plans, after a while. Another build plans otherwise.
func (p *process) makePlan(e handoff.MakePlan) {
	p.world.After(p.world.Span(0, 5*handoff.Millisecond), p, func() {
		plan, err := p.planOf(e.Terms, e.As)
		if e.As == handoff.Source {
			p.do(p.source.Planned(p.clock(), e.Terms.Transfer, e.Session, plan, err))
		} else {
			p.do(p.destination.Planned(p.clock(), e.Terms.Transfer, e.Session, plan, err))
		}
	})
}

// planOf plans by itself each time: plans do not travel. In a world with another
// build the last host has it: as a destination it takes its blocks in another
// order.
func (p *process) planOf(t *handoff.Terms, as handoff.Role) (*reshard.Plan, error) {
	shape, err := reshard.Prepare(t.Src.Engine.Side, t.Dst.Engine.Side)
	if err != nil {
		return nil, err
	}
	request := t.Request()
	if w := p.world; as == handoff.Destination && w.plan.otherBuild && p.host == w.hosts[len(w.hosts)-1] {
		table := slices.Clone(request.Dst.Tables[0])
		slices.Reverse(table)
		request.Dst.Tables = [][]uint32{table}
	}
	return shape.Plan(request)
}

// grant opens what an order names, after a while.
func (p *process) grant(e handoff.Grant) {
	l := p.workOf(e.Session)
	p.world.After(p.world.Span(0, 2*handoff.Millisecond), p, func() {
		if l.closed {
			return
		}
		plan, err := p.planOf(e.Order.Terms, e.Order.As)
		if err == nil && plan.Digest() != e.Order.Digest {
			err = handoff.ErrDigest
		}
		if err != nil {
			p.do(p.follower.Granted(p.clock(), e.Session, nil, err))
			return
		}
		flowGrants := slices.Clone(e.Order.Flows)
		for i := range flowGrants {
			flowGrants[i].Grant = p.world.ID()
			l.grants = append(l.grants, flowGrants[i].Grant)
			p.grants[flowGrants[i].Grant] = p.newGrant(e, plan, flowGrants[i].Flow)
		}
		p.do(p.follower.Granted(p.clock(), e.Session, flowGrants, nil))
	})
}

func (p *process) newGrant(e handoff.Grant, plan *reshard.Plan, flow handoff.Flow) *grant {
	own, other, rank, otherRank := &e.Order.Terms.Src, &e.Order.Terms.Dst, flow.Src, flow.Dst
	if e.Order.As == handoff.Destination {
		own, other, rank, otherRank = other, own, otherRank, rank
	}
	g := &grant{
		peer: other.Engine.Ranks[otherRank].Agent, read: e.Order.As == handoff.Source, rank: rank,
		owner: p.world.engine(own.Engine.ID),
	}
	for _, f := range plan.Flows() {
		if f.Src != flow.Src || f.Dst != flow.Dst {
			continue
		}
		for run := range f.Runs() {
			for i := range run.Count {
				at := run.Src + i*run.SrcStride
				if e.Order.As == handoff.Destination {
					at = run.Dst + i*run.DstStride
				}
				g.runs = append(g.runs, span{at, at + run.Length})
			}
		}
	}
	return g
}

var (
	errLink   = errors.New("the link broke")
	errRefuse = errors.New("refused by the other agent")
)

// move copies what a flow has of something that is computed, piece by piece.
func (p *process) move(e handoff.Move) {
	l, w := p.workOf(e.Session), p.world
	j := &transferInFlight{}
	l.moves = append(l.moves, j)
	end := func(bytes int64, err error) {
		if l.closed {
			return
		}
		p.do(p.follower.Moved(p.clock(), e.Session, handoff.Movement{
			Flow: e.FlowGrant.Flow, Bytes: uint64(bytes), Err: err, Again: errors.Is(err, errLink), Fabric: "sim",
		}))
	}
	if l.closed {
		return
	}
	plan, err := p.planOf(e.Order.Terms, e.Order.As)
	if err == nil && plan.Digest() != e.Order.Digest {
		err = handoff.ErrDigest
	}
	if err != nil {
		w.After(0, p, func() { end(0, err) })
		return
	}
	var pieces []piece
	for _, f := range plan.Flows() {
		if f.Src == e.FlowGrant.Src && f.Dst == e.FlowGrant.Dst {
			if pieces, err = piecesOf(&e, f); err != nil {
				w.Violate("a plan can be cut into chunks", "%v: %v", e.To, err)
			}
		}
	}
	if e.To.Tokens > 0 || e.To.Whole > 0 {
		w.tally.Chunks++
	}
	w.After(w.Span(0, 20*handoff.Millisecond), p, func() { p.carry(e, j, pieces, 0, end) })
}

// piecesOf is what a move has to copy.
func piecesOf(e *handoff.Move, f reshard.Flow) ([]piece, error) {
	parts, err := e.Flows(f)
	var pieces []piece
	for _, part := range parts {
		for run := range part.Runs() {
			for i := range run.Count {
				pieces = append(pieces, piece{run.Src + i*run.SrcStride, run.Dst + i*run.DstStride, run.Length})
			}
		}
	}
	return pieces, err
}

type piece struct{ src, dst, length int64 }

// carry copies some pieces now and the rest later.
func (p *process) carry(e handoff.Move, j *transferInFlight, pieces []piece, moved int64, end func(int64, error)) {
	w := p.world
	if j.stopped {
		return
	}
	some := 1 + w.Chance.IntN(1+len(pieces))
	for _, c := range pieces[:min(some, len(pieces))] {
		if err := p.copyPiece(e, c); err != nil {
			end(moved, err)
			return
		}
		moved += c.length
	}
	if pieces = pieces[min(some, len(pieces)):]; len(pieces) == 0 {
		end(moved, nil)
		return
	}
	pause := w.Span(10, 200*handoff.Millisecond)
	if w.plan.sluggish && w.Chance.IntN(8) == 0 {
		pause = w.Span(handoff.Second, 4*handoff.Second)
	}
	w.After(pause, p, func() { p.carry(e, j, pieces, moved, end) })
}

// copyPiece is what a fabric does: it reaches the other agent, whose guard looks
// at the grant, and then bytes move.
func (p *process) copyPiece(e handoff.Move, c piece) error {
	w, t := p.world, e.Order.Terms
	src, dst := w.engine(t.Src.Engine.ID), w.engine(t.Dst.Engine.ID)
	own, other, otherRank, at := dst, src, e.FlowGrant.Src, c.src
	if e.Order.As == handoff.Source {
		own, other, otherRank, at = src, dst, e.FlowGrant.Dst, c.dst
	}
	srcRank, dstRank := &t.Src.Engine.Ranks[e.FlowGrant.Src], &t.Dst.Engine.Ranks[e.FlowGrant.Dst]
	theirs := srcRank.Agent
	if e.Order.As == handoff.Source {
		theirs = dstRank.Agent
	}
	peer := w.host(theirs.Name)
	switch {
	case peer.process == nil || !p.host.reaches(peer), w.plan.linkFaults && !w.Calm && w.Chance.IntN(40) == 0:
		w.tally.LinkFaults++
		return errLink
	case peer.process.self != theirs:
		return errRefuse
	case !own.alive || srcRank.Memory[0].Epoch != src.epoch || dstRank.Memory[0].Epoch != dst.epoch:
		return errRefuse // stale epoch
	}
	g := peer.process.grants[e.FlowGrant.Grant]
	if g == nil || g.peer != p.self || g.read != (e.Order.As == handoff.Destination) || g.owner != other || g.rank != otherRank || !g.covers(at, at+c.length) {
		return errRefuse
	}
	if !src.touched(t.Transfer, handoff.Source, e.FlowGrant.Src, c.src, c.length) ||
		!dst.touched(t.Transfer, handoff.Destination, e.FlowGrant.Dst, c.dst, c.length) {
		return errRefuse
	}
	if slices.Contains(src.made[e.FlowGrant.Src][c.src:c.src+c.length], false) {
		w.Violate("no byte is read before it was computed", "transfer %.4s, rank %d of %s, %d bytes from %d on, as %v", t.Transfer, e.FlowGrant.Src, src.id, c.length, c.src, e.To)
		return errRefuse
	}
	for i := range c.length {
		dst.made[e.FlowGrant.Dst][c.dst+i] = true
	}
	w.tally.Bytes += uint64(c.length)
	copy(dst.memory[e.FlowGrant.Dst][c.dst:c.dst+c.length], src.memory[e.FlowGrant.Src][c.src:c.src+c.length])
	return nil
}

// quiet stops everything of a session. A fabric's cancel is local and quick.
func (p *process) quiet(e handoff.Quiesce) {
	l := p.workOf(e.Session)
	p.world.After(p.world.Span(0, 3*handoff.Millisecond), p, func() {
		l.closed = true
		for _, id := range l.grants {
			delete(p.grants, id)
		}
		for _, j := range l.moves {
			j.stopped = true
		}
		p.do(p.follower.Quiesced(p.clock(), e.Session))
	})
}

// passTo: ranks hear how it ended. They must not hear of success before, or
// without, their home.
func (p *process) passTo(e handoff.NotifyRanks) {
	r := p.world.request(e.Transfer)
	if e.As == handoff.Destination && e.Problem.None() && !slices.ContainsFunc(r.tries, func(t *attempt) bool { return t.ready }) {
		p.world.Violate("ranks agree with their home", "%v is told to ranks as ready", r)
	}
}

// keep looks at a record.
func (p *process) keep(r *handoff.Record) {
	var total uint64
	for _, f := range r.Flows {
		total += f.Bytes
	}
	if len(r.Flows) > 0 && total != r.Bytes {
		p.world.Violate("records add up", "%s", r)
	}
	if text := r.String(); len(text) == 0 {
		p.world.Violate("records can be read", "%s", text)
	}
}

func (w *world) engine(id string) *engine {
	for _, e := range w.engines {
		if e.id == id {
			return e
		}
	}
	panic(fmt.Sprintf("no engine %s", id))
}
