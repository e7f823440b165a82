package store

import "meridian/kv"

// FillOutbox has as much on its way to an agent as may be, until it is called off.
func (s *Store) FillOutbox(to kv.Member) (end func()) {
	o := s.outbox
	o.mu.Lock()
	defer o.mu.Unlock()
	l := o.lanes[to]
	o.bytes += maxLane
	o.lanes[to] = peerQueue{l.messages + 1, l.bytes + maxLane}
	return func() { o.over(to, maxLane) }
}
