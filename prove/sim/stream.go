package sim

import (
	"slices"
	"time"

	"meridian/kv"
	"meridian/move/checksum"
	"meridian/move/fabric/link"
	"meridian/move/mrdn"
)

// stream is one end of one stream of a connection. It carries the frames of a
// lender, or behaves as a TCP stream of move/fabric/tcp does: frames first, then a chunk of each part in turn; a chunk that
// has begun is finished, from a private copy once its part is to be quiet.
type stream struct {
	world      *world
	process    *process
	rail       *rail
	connection *connection
	end        link.End
	lending    *link.Lending // nil where bytes travel
	out        *pipe
	closed     bool

	queue   []packet // frames, and small parts, in order
	parts   []*sending
	active  *sending
	left    uint64 // bytes of the active chunk that have not left
	private []byte // the rest of the chunk, once its part is to be quiet
	sent    *checksum.Digest
	pumping bool
	pump    func()

	inbounds []*link.Inbound
	arriving *link.Inbound // nil: no transfer wants the chunk
	awaited  uint64        // bytes of the arriving chunk that are due
	chunk    uint32
	received *checksum.Digest
	heard    time.Duration
}

var _ link.Stream = (*stream)(nil)

// sending is a part whose bytes leave.
type sending struct {
	*link.Outbound
	started, stopped bool
}

func newStream(c *connection, r *rail) *stream {
	s := &stream{world: r.process.world, process: r.process, rail: r, connection: c, heard: r.process.world.now}
	s.pump = s.sendNext
	return s
}

// Send queues frames.
func (s *stream) Send(frames []byte) {
	for frames = slices.Clone(frames); len(frames) > 0; {
		_, length, err := mrdn.ParsePrefix(frames)
		if err != nil {
			s.world.violate("only what was posted moves", nil, "%v sends no frame: %v", s.process, err)
			return
		}
		size := mrdn.PrefixSize + int(length)
		s.queue = append(s.queue, packet{kind: framePacket, bytes: frames[:size:size]})
		frames = frames[size:]
	}
	s.wake()
}

// Post queues a part, or takes a small one's bytes at once.
func (s *stream) Post(p *link.Outbound) (link.Progress, error) {
	w := s.world
	if s.closed {
		p.Release()
		return link.Queued, nil // the end learns of it through Lost
	}
	if left := p.Walk.Left(); left == 0 || left <= w.swarm.chunk && w.road.IntN(3) == 0 {
		s.postSmall(p)
		p.Release()
		return link.Sent, nil
	}
	s.parts = append(s.parts, &sending{Outbound: p})
	s.wake()
	return link.Queued, nil
}

func (s *stream) postSmall(p *link.Outbound) {
	if len(p.Begin) > 0 {
		s.queue = append(s.queue, packet{kind: framePacket, bytes: p.Begin})
	}
	if size := p.Walk.Left(); size > 0 {
		payload := make([]byte, size)
		s.take(p, payload)
		sum := checksum.Of(payload)
		s.corrupt(p.ID, payload)
		s.queue = append(s.queue, packet{kind: chunkPacket, handle: p.Handle, length: uint32(size)},
			packet{kind: piecePacket, bytes: payload}, packet{kind: sumPacket, sum: sum})
	}
	s.wake()
}

// wake has the next packet sent soon, if there is one that may be.
func (s *stream) wake() {
	if s.pumping || !s.ready() {
		return
	}
	s.pumping = true
	s.world.after(time.Duration(s.world.road.Int64N(int64(20*time.Microsecond))), s.process, s.pump)
}

// ready reports whether there is a packet that may leave.
func (s *stream) ready() bool {
	switch {
	case s.closed:
		return false
	case s.left > 0:
		return s.out.room()
	case len(s.queue) > 0:
		return true
	}
	return len(s.parts) > 0 && s.out.room()
}

// sendNext sends one piece of a payload, or all frames, or begins a chunk.
func (s *stream) sendNext() {
	s.pumping = false
	switch {
	case !s.ready():
		return
	case s.left > 0:
		s.sendPiece()
	case len(s.queue) > 0:
		for _, k := range s.queue {
			s.out.send(k)
		}
		s.queue = s.queue[:0]
	case len(s.parts) > 0:
		s.beginChunk()
	}
	s.wake()
}

func (s *stream) beginChunk() {
	p := s.parts[0]
	s.parts = s.parts[1:]
	s.active = p
	if !p.started {
		p.started = true
		if !s.end.Leaving(p.Outbound) || p.stopped {
			s.active = nil
			p.Release()
			return
		}
		if len(p.Begin) > 0 {
			s.out.send(packet{kind: framePacket, bytes: p.Begin})
		}
	}
	s.left = min(s.world.swarm.chunk, p.Walk.Left())
	s.sent = s.world.stage.digests.take()
	s.out.send(packet{kind: chunkPacket, handle: p.Handle, length: uint32(s.left)})
}

func (s *stream) sendPiece() {
	p := s.active
	piece := make([]byte, min(s.world.swarm.piece, s.left))
	if s.private != nil {
		copy(piece, s.private)
		s.private = s.private[len(piece):]
	} else {
		s.take(p.Outbound, piece)
	}
	s.sent.Add(piece)
	s.corrupt(p.ID, piece)
	s.out.send(packet{kind: piecePacket, bytes: piece})
	if s.left -= uint64(len(piece)); s.left > 0 {
		return
	}
	s.out.send(packet{kind: sumPacket, sum: s.sent.Sum()})
	s.world.stage.digests.give(s.sent)
	s.active, s.private, s.sent = nil, nil, nil
	switch {
	case p.stopped:
	case p.Walk.Left() > 0:
		s.parts = append(s.parts, p)
	default:
		p.Release()
		s.end.Left(p.Outbound, nil)
	}
}

// take copies the next bytes of a part out of its memory.
func (s *stream) take(p *link.Outbound, b []byte) {
	for len(b) > 0 {
		cut := p.Walk.Next(uint64(len(b)))
		section := p.Bound.Section(cut.Part)
		s.world.taken(s.process, p.ID, section, cut)
		if err := section.ReadAt(b[:cut.Length], cut.Offset); err != nil {
			s.world.violate("memory in use stays", nil, "reading part %d of transfer %v: %v", p.Index, p.ID, err)
		}
		b = b[cut.Length:]
	}
}

// corrupt may change a byte that is about to travel.
func (s *stream) corrupt(id kv.ID, b []byte) {
	if w := s.world; w.swarm.faults[Corrupt] && !w.calm && chance(w.mischief, 0.01) {
		b[w.mischief.IntN(len(b))] ^= 1 << w.mischief.IntN(8)
		w.tally.Faults[Corrupt]++
		w.transfers[id].corrupted = true
		w.note(s.process, nil, "sends a piece of %d bytes that changes on the way", len(b))
	}
}

// Quiet stops every part that match selects, in both directions.
func (s *stream) Quiet(match func(link.Part) bool) {
	kept := s.parts[:0]
	for _, p := range s.parts {
		if match(p.Part) {
			p.stopped = true
			p.Release()
		} else {
			kept = append(kept, p)
		}
	}
	s.parts = kept
	if p := s.active; p != nil && !p.stopped && match(p.Part) {
		p.stopped = true
		if s.left > 0 {
			s.private = make([]byte, s.left)
			s.take(p.Outbound, s.private)
		}
		p.Release()
	}
	expected := s.inbounds[:0]
	for _, p := range s.inbounds {
		if match(p.Part) {
			p.Discard = true // bytes that still come are not expected any more
			p.Release()
		} else {
			expected = append(expected, p)
		}
	}
	s.inbounds = expected
}

// Close breaks the stream. What is on its way still arrives, or is lost with it.
func (s *stream) Close() {
	if s.closed {
		return
	}
	s.closed = true
	for _, p := range s.parts {
		p.Release()
	}
	if s.active != nil {
		s.active.Release()
	}
	for _, p := range s.inbounds {
		p.Discard = true
		p.Release()
	}
	s.parts, s.active, s.inbounds, s.queue = nil, nil, nil, nil
	if s.world.road.IntN(2) == 0 {
		s.out.drop()
	}
	s.out.send(packet{kind: finishPacket})
}

// idle reports whether no part waits on this end; a ping may.
func (s *stream) idle() bool {
	return s.closed || len(s.parts) == 0 && s.active == nil && len(s.inbounds) == 0
}

// keepAlive asks a silent stream whether it lives, and says when it does not.
func (s *stream) keepAlive() (dead bool) {
	switch silent := s.world.now - s.heard; {
	case silent > 3*s.world.swarm.keepAlive:
		return true
	case silent > s.world.swarm.keepAlive:
		s.Send(mrdn.AppendPing(nil))
	}
	return false
}
