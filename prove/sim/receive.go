package sim

import (
	"fmt"
	"io"

	"meridian/move/checksum"
	"meridian/move/fabric/link"
	"meridian/move/mrdn"
)

// Expect makes the stream ready for the bytes of a part.
func (s *stream) Expect(p *link.Inbound) error {
	if s.closed {
		p.Release()
		return nil
	}
	s.inbounds = append(s.inbounds, p)
	return nil
}

// receive takes what comes out of the pipe.
func (s *stream) receive(k packet) {
	if s.closed {
		return
	}
	s.heard = s.world.now
	var err error
	switch k.kind {
	case framePacket:
		err = s.receiveFrame(k.bytes)
	case chunkPacket:
		err = s.receiveChunk(k)
	case piecePacket:
		s.place(k.bytes)
	case sumPacket:
		s.endChunk(k.sum)
	case finishPacket:
		err = io.EOF
	}
	if err != nil {
		s.end.Lost(err)
	}
}

func (s *stream) receiveFrame(frame []byte) error {
	kind, length, err := mrdn.ParsePrefix(frame)
	if err != nil {
		return err
	}
	body := frame[mrdn.PrefixSize:][:length]
	switch kind {
	case mrdn.PingFrame:
		s.Send(mrdn.AppendPong(nil))
		return nil
	case mrdn.PongFrame:
		return nil
	}
	s.world.noteFrame(s.process, kind, body)
	if s.lending != nil {
		return s.lending.Frame(kind, body)
	}
	return s.end.Frame(s, kind, body)
}

func (s *stream) receiveChunk(k packet) error {
	s.arriving, s.awaited, s.chunk = nil, uint64(k.length), k.length
	for _, p := range s.inbounds {
		if p.Handle == k.handle && !p.Discard {
			s.arriving = p
		}
	}
	if p := s.arriving; p != nil && p.Walk.Left() < s.awaited {
		return fmt.Errorf("%w: a chunk of %d bytes where %d are due", mrdn.ErrLinkFrame, s.awaited, p.Walk.Left())
	}
	s.received = s.world.stage.digests.take()
	return nil
}

// place copies b to the next bytes of the part that arrives, if a transfer wants
// them.
func (s *stream) place(b []byte) {
	s.awaited -= uint64(len(b))
	p := s.arriving
	if p == nil || p.Discard {
		return
	}
	s.received.Add(b)
	for len(b) > 0 {
		cut := p.Walk.Next(uint64(len(b)))
		section := p.Bound.Section(cut.Part)
		s.world.placed(s.process, p.ID, section, cut)
		if err := section.WriteAt(b[:cut.Length], cut.Offset); err != nil {
			s.world.violate("memory in use stays", nil, "writing part %d of transfer %v: %v", p.Index, p.ID, err)
		}
		b = b[cut.Length:]
	}
}

// endChunk compares the checksum and reports a part that is complete or broken.
func (s *stream) endChunk(sum uint64) {
	p := s.arriving
	received := s.received.Sum()
	s.world.stage.digests.give(s.received)
	s.arriving, s.received = nil, nil
	if p == nil || p.Discard {
		return
	}
	err := p.Verify(sum, received, s.chunk)
	if err == nil && p.Walk.Left() > 0 {
		return
	}
	p.Discard = true
	for i, q := range s.inbounds {
		if q == p {
			s.inbounds = append(s.inbounds[:i], s.inbounds[i+1:]...)
			break
		}
	}
	p.Release()
	s.end.Arrived(p, err)
}

// digests keeps checksums in the making, which are large, for the next chunk.
type digests []*checksum.Digest

func (d *digests) take() *checksum.Digest {
	n := len(*d)
	if n == 0 {
		return new(checksum.Digest)
	}
	first := (*d)[n-1]
	*d = (*d)[:n-1]
	first.Reset()
	return first
}

func (d *digests) give(digest *checksum.Digest) { *d = append(*d, digest) }
