package tcp

import (
	"meridian/fabric/link"
	"meridian/mrdn"
)

// A chunk for memory of a GPU is read into the stage, and placed from there when its
// checksum was right. Nothing is locked while the GPU works: a part that is stopped
// meanwhile has not ended before it is done.

// prepare opens the stage for a chunk. Without one its bytes go the slow way.
func (s *scatter) prepare() {
	if s.staged != nil && s.gpu.open(s.staged) != nil {
		s.staged = nil
	}
}

// readStaged reads once into the stage, at most left bytes.
func (s *scatter) readStaged(left int) (int, error) {
	s.mu.Lock()
	s.vector.reset()
	s.vector.add(s.gpu.buffer[s.held : s.held+left])
	s.mu.Unlock()
	n, err := s.readOnce()
	if err == nil {
		s.stagedSome(n)
	}
	return n, err
}

// stagedSome counts bytes that have come into the stage, and hashes them.
func (s *scatter) stagedSome(n int) {
	if !s.options.NoChecksums {
		s.sum.Add(s.gpu.buffer[s.held : s.held+n])
	}
	s.held += n
}

// land places a chunk that is in the stage. One whose checksum is wrong is not: finish
// says so.
func (s *scatter) land(p *link.Inbound, c mrdn.Chunk, sum uint64) error {
	s.mu.Lock()
	to := p.Walk
	p.Walk.Skip(uint64(c.Length))
	if p.Discard || !s.options.NoChecksums && sum != s.sum.Sum() {
		s.mu.Unlock()
		return nil
	}
	of, err := sections(p.Bound)
	if err == nil {
		s.options.holding.hold(p)
	}
	s.mu.Unlock()
	if err != nil {
		return err
	}
	err = s.gpu.place(to, of, s.held, !s.options.NoChecksums)
	release(of)
	s.options.holding.drop(p)
	return err
}
