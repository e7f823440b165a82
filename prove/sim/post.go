package sim

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"meridian/move/agent"
	"meridian/move/fabric"
)

// side is one side of a request: a list of an agent's, and what the world knows
// of its pieces.
type side struct {
	list   *agent.List
	pieces []piece
	peer   *agent.Peer // nil: the client's own memory
}

// post makes a request of lists old and new, and posts it.
func (p *process) post() {
	w := p.world
	peer := p.somePeer()
	if peer == nil || p.someRegion() == nil {
		return
	}
	op := fabric.Read
	if w.work.IntN(2) == 0 {
		op = fabric.Write
	}
	to := w.processOf(peer.Incarnation)
	near, far := p.nearRegions(), farRegions(to, peer)
	if len(near) == 0 || len(far) == 0 {
		return
	}
	t := &transfer{op: op, from: p, to: to}
	bytes := 1 + w.work.Uint64N(1+w.work.Uint64N(700))
	kept := p.keptSource(op, peer)
	if kept != nil {
		t.source = slices.Clone(kept.pieces)
		bytes = total(t.source)
	}
	from, into := near, far
	if op == fabric.Read {
		from, into = far, near
	}
	if t.source == nil {
		t.source = drawSource(w.work, from, bytes)
	}
	if t.destination = t.drawDestination(into, bytes); t.destination == nil {
		return // no room
	}
	local, remote := side{pieces: t.source}, side{pieces: t.destination, peer: peer}
	if op == fabric.Read {
		local.pieces, remote.pieces = t.destination, t.source
	}
	switch {
	case kept == nil:
	case op == fabric.Read:
		remote.list = kept.list
	default:
		local.list = kept.list
	}
	if !p.prepare(t, &local, &remote) {
		t.giveBack()
		return
	}
	owner, opened := successor(to, remote.pieces)
	t.grant = p.grantFor(owner, op, opened, drawFlaw(w.work))
	p.launch(t)
}

// successor is whom the client would get a grant from: the process it means or, when
// that is dead, the one that lives under its name. It may well have a region of
// the same number and epoch; nothing but its incarnation tells the two apart.
func successor(to *process, pieces []piece) (owner *process, theirs []piece) {
	if owner = to.host.process; owner == to || owner == nil {
		return owner, pieces
	}
	theirs = slices.Clone(pieces)
	for i := range theirs {
		p := &theirs[i]
		at := slices.IndexFunc(owner.regions, func(r *region) bool { return r.id == p.region.id && r.epoch == p.epoch && r.registered })
		if at < 0 {
			return nil, nil
		}
		p.region = owner.regions[at]
	}
	return owner, theirs
}

// nearRegions are pieces' whereabouts in the client's own memory.
func (p *process) nearRegions() (all []piece) {
	for _, r := range p.regions {
		if r.registered {
			all = append(all, piece{region: r, epoch: r.epoch})
		}
	}
	return all
}

// farRegions are those of a peer, as far as the client knows them.
func farRegions(to *process, peer *agent.Peer) (all []piece) {
	for _, info := range peer.Regions() {
		for _, r := range to.regions {
			if r.id == info.ID {
				all = append(all, piece{region: r, epoch: info.Epoch})
			}
		}
	}
	return all
}

// keptSource is, now and then, a list from long ago.
func (p *process) keptSource(op fabric.Op, peer *agent.Peer) *side {
	if p.world.work.IntN(4) > 0 {
		return nil
	}
	for i := range p.kept {
		if k := &p.kept[i]; (op == fabric.Write) == (k.peer == nil) && (k.peer == nil || k.peer == peer) {
			return k
		}
	}
	return nil
}

// drawSource picks pieces anywhere in the first halves of some regions.
func drawSource(r *rand.Rand, regions []piece, bytes uint64) (pieces []piece) {
	for bytes > 0 {
		p := one(r, regions)
		p.length = min(bytes, 1+r.Uint64N(200))
		p.offset = r.Uint64N(sourceBytes - p.length + 1)
		bytes -= p.length
		pieces = append(pieces, p)
	}
	return pieces
}

// drawDestination picks pieces of units that no transfer has, and takes them.
// The memory of a dead process is named, but there is nothing to take.
func (t *transfer) drawDestination(regions []piece, bytes uint64) (pieces []piece) {
	w := t.world()
	free := 0
	for _, p := range regions {
		free += p.region.free()
	}
	if uint64(free)*unitBytes/4 < bytes {
		return nil
	}
	for bytes > 0 {
		p := one(w.work, regions)
		i := w.work.IntN(unitCount)
		if p.region.owners[i] != nil {
			continue
		}
		at := uint64(w.work.IntN(unitBytes / 2))
		if w.work.IntN(3) == 0 {
			at = 0
		}
		p.offset = sourceBytes + uint64(i)*unitBytes + at
		p.length = min(bytes, unitBytes-at)
		bytes -= p.length
		pieces = append(pieces, p)
		p.region.owners[i] = t
		if !p.region.process.dead {
			t.units = append(t.units, unit{region: p.region, index: i})
		}
	}
	return pieces
}

// giveBack frees the units of a transfer that was never posted.
func (t *transfer) giveBack() {
	for _, d := range t.destination {
		d.region.owners[(d.offset-sourceBytes)/unitBytes] = nil
	}
	t.units = nil
}

// prepare makes the lists and the request.
func (p *process) prepare(t *transfer, local, remote *side) bool {
	w := p.world
	var err error
	if local.list == nil {
		local.list, err = p.agent.Local(describeLocally(local.pieces))
	}
	if remote.list == nil && err == nil {
		remote.list, err = remote.peer.Remote(describeRemotely(remote.peer, remote.pieces))
	}
	if err == nil {
		t.request, err = p.agent.Prepare(t.op, agent.Side{List: local.list}, agent.Side{List: remote.list})
	}
	if err != nil {
		w.violate("what is known can be prepared", t, "%v: %v", p, err)
		return false
	}
	p.requests = append(p.requests, t.request)
	if kept := *local; w.work.IntN(3) == 0 && len(p.kept) < 8 {
		if t.op == fabric.Read {
			kept = *remote
		}
		kept.pieces = slices.Clone(kept.pieces)
		p.kept = append(p.kept, kept)
	}
	return true
}

// describeLocally names pieces as their owner does.
func describeLocally(pieces []piece) []agent.Descriptor {
	all := make([]agent.Descriptor, len(pieces))
	for i, p := range pieces {
		all[i] = agent.Descriptor{Address: p.region.arena.Base() + p.offset, Length: p.length}
	}
	return all
}

// describeRemotely names them as the peer's metadata does.
func describeRemotely(peer *agent.Peer, pieces []piece) []agent.Descriptor {
	all := make([]agent.Descriptor, len(pieces))
	infos := peer.Regions()
	for i, p := range pieces {
		for _, info := range infos {
			if info.ID == p.region.id {
				all[i] = agent.Descriptor{Address: info.Address + p.offset, Length: p.length}
			}
		}
	}
	return all
}

// stale says why a list is out of date, if it is.
func stale(t *transfer) error {
	if t.to == nil || t.to.dead {
		return fabric.ErrStalePeer
	}
	for _, p := range slices.Concat(t.source, t.destination) {
		if !p.region.registered || p.region.epoch != p.epoch {
			return fabric.ErrStaleEpoch
		}
	}
	return nil
}

func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// launch posts a transfer that is ready, under a new id.
func (p *process) launch(t *transfer) {
	w := p.world
	t.serial, t.id = len(w.posted), drawID(w.work)
	w.posted = append(w.posted, t)
	w.transfers[t.id] = t
	t.notify = w.work.IntN(2) == 0
	for i := range t.units {
		u := &t.units[i]
		u.before = make([]byte, unitBytes)
		fill(u.before, w.work.Uint64())
		copy(u.region.unit(u.index), u.before)
	}
	for i := range t.source {
		t.source[i].first = len(t.source[i].region.versions) - 1
	}
	t.forbidden = firstOf(stale(t), t.grant.refusal())
	w.note(p, t, "posts a %v of %d bytes with %v: %d pieces from, %d pieces to; notify: %t, forbidden: %v",
		t.op, total(t.source), t.to, len(t.source), len(t.destination), t.notify, t.forbidden)
	if err := t.start(); err != nil {
		t.end(fabric.NotSubmitted, err)
	} else if w.work.IntN(4) == 0 {
		w.after(between(w.work, 0, 20*time.Millisecond), p, t.cancel)
	}
}

// start posts, the first time or again.
func (t *transfer) start() error {
	p, w := t.from, t.world()
	ctx := context.Background()
	t.deadline = 0
	if w.work.IntN(5) < 2 {
		d := between(w.work, 50*time.Microsecond, 2*time.Second)
		t.deadline = w.now + d
		ctx = p.within(d)
		w.after(d+localWork, p, t.overdue)
	}
	running, err := t.request.Post(ctx, t.options())
	w.tally.Posted++
	if err != nil {
		return err
	}
	t.running, t.reached, t.attempts = running, fabric.Admitted, 0
	p.running = append(p.running, t)
	return nil
}

func (t *transfer) options() agent.PostOptions {
	o := agent.PostOptions{ID: t.id, Grant: t.grant.id}
	if t.notify {
		o.Notification = []byte(t.String())
	}
	return o
}

// overdue is called when a deadline has passed.
func (t *transfer) overdue() {
	w := t.world()
	limit := max(t.deadline, t.from.pausedUntil) + localWork
	switch {
	case t.over || t.deadline == 0:
	case w.now < limit:
		w.after(limit-w.now, t.from, t.overdue)
	default:
		w.violate("nothing waits past its deadline", t, "%v runs %v after its deadline", t, w.now-t.deadline)
	}
}

// cancel ends the transfer. Its memory is the caller's again at once, who may
// well write something else there.
func (t *transfer) cancel() {
	w := t.world()
	if t.over || t.from.dead {
		return
	}
	w.note(t.from, t, "is cancelled")
	w.tally.Cancelled[t.reached]++
	if err := t.running.Cancel(atOnce); err != nil {
		w.violate("a cancel takes local work only", t, "%v: %v", t, err)
	}
	t.cancelled = true
	t.from.look()
	if t.op == fabric.Write && w.work.IntN(2) == 0 {
		t.source[0].region.rewrite()
	}
}
