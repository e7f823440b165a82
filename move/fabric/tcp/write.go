package tcp

import "meridian/move/fabric/link"

// writeLoop writes whatever is queued, frames first, then a chunk of each part
// in turn, so that no transfer waits behind another.
func (s *sender) writeLoop() error {
	for range s.wake {
		for {
			s.mu.Lock()
			if s.closed {
				s.dropLocked()
				s.mu.Unlock()
				return nil
			}
			var control []byte
			var p *outbound
			switch {
			case len(s.control) > 0, len(s.parts) == 0 && s.gather.owesTrailer:
				control = s.takeControlLocked()
			case len(s.parts) > 0:
				p, s.parts = s.parts[0], s.parts[1:]
				s.active = p
			default:
				s.writing = false
			}
			idle := !s.writing
			s.mu.Unlock()
			if idle {
				break
			}
			if err := s.writeNext(control, p); err != nil {
				s.mu.Lock()
				s.closed = true
				s.dropLocked()
				s.mu.Unlock()
				return err
			}
		}
	}
	return nil
}

// writeNext writes a chunk of p or, without one, frames.
func (s *sender) writeNext(control []byte, p *outbound) error {
	if p != nil {
		return s.writePart(p)
	}
	err := s.gather.writeFrames(control)
	s.mu.Lock()
	s.keepLocked(control)
	s.mu.Unlock()
	s.noteDrained()
	return err
}

// dropLocked gives back what will never be sent.
func (s *sender) dropLocked() {
	for _, p := range s.parts {
		p.Release()
	}
	s.parts = nil
}

// writePart writes one chunk of p and queues the rest behind the others.
func (s *sender) writePart(p *outbound) error {
	first := !p.started
	p.started = true
	if first && !s.end.Leaving(p.Outbound) {
		s.retire(p, false)
		return nil
	}
	chunk, readErr := s.fetch(p)
	var err error
	if readErr == nil {
		readErr, err = s.gather.writeChunk(p, first, chunk)
	}
	more := err == nil && readErr == nil && p.Walk.Left() > 0
	// A broken socket is the end's to hear of through Lost, for all parts.
	if stopped := s.retire(p, more); !more && !stopped && err == nil {
		s.end.Left(p.Outbound, readErr)
	}
	return err
}

// retire ends p's turn: back into the queue when there is more of it, else its
// memory is given back. It reports whether p was stopped.
func (s *sender) retire(p *outbound, more bool) (stopped bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.active = nil
	stopped = p.stopped.Load()
	if more && !stopped && !s.closed {
		s.parts = append(s.parts, p)
		return false
	}
	p.Release()
	return stopped
}

// quietSending stops parts that match selects.
func (s *sender) quietSending(match func(link.Part) bool) {
	s.mu.Lock()
	kept := s.parts[:0]
	for _, p := range s.parts {
		if match(p.Part) {
			p.Release()
		} else {
			kept = append(kept, p)
		}
	}
	clear(s.parts[len(kept):])
	s.parts = kept
	// A part that writeLoop has in hand is stopped before the lock of gather is
	// taken: writeLoop either sees that, or is already sending and is detached.
	active := s.active
	if active != nil && match(active.Part) {
		active.stopped.Store(true)
	} else {
		active = nil
	}
	s.mu.Unlock()
	if active != nil {
		s.gather.detach(active)
	}
}
