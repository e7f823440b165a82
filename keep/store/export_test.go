package store

import (
	"context"

	"meridian/kv"
)

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

// Item is one of several objects that are put or got together: Value is what is
// put, or where it is got into.
type Item struct {
	Key   string
	Value []byte
}

// PutMany puts several objects, and returns what came of each.
func (s *Store) PutMany(ctx context.Context, items []Item, o PutOptions) []error {
	errs := make([]error, len(items))
	each(len(items), func(i int) { errs[i] = s.Put(ctx, items[i].Key, items[i].Value, o) })
	return errs
}

// GetMany gets several objects, and returns the length of each, or what came of it.
func (s *Store) GetMany(ctx context.Context, items []Item, o GetOptions) (lengths []int, errs []error) {
	lengths, errs = make([]int, len(items)), make([]error, len(items))
	each(len(items), func(i int) { lengths[i], errs[i] = s.Get(ctx, items[i].Key, items[i].Value, o) })
	return lengths, errs
}
