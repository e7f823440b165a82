package payload

import (
	"context"
	"errors"
	"sync"

	"meridian/kv"
)

// Batch collects payloads of one tier and pushes them together: they share the time
// that each would wait for its owner. Finished thoughts wait until Options.BatchBlocks
// have come; what is needed sooner does not wait.
type Batch struct {
	fabric  *Fabric
	tier    kv.Tier
	least   int
	waiting [][]byte
	bytes   int
}

const (
	// maxBatchBytes is more than waits, whatever the configuration says.
	maxBatchBytes = 64 << 20
	// maxPushes of a batch are under way at a time.
	maxPushes = 16
)

// Batch returns an empty one.
func (f *Fabric) Batch(tier kv.Tier) *Batch {
	b := &Batch{fabric: f, tier: tier, least: 1}
	if tier == kv.ThinkComplete {
		b.least = max(1, f.options.BatchBlocks)
	}
	return b
}

// Add takes a payload, which it keeps. When a batch is full it is pushed, and the
// handles of all that is in it are returned, in the order in which it came; 0 where a
// push failed, for a reason that is in the error. Else there are none yet.
func (b *Batch) Add(ctx context.Context, body []byte) ([]Handle, error) {
	b.waiting = append(b.waiting, body)
	b.bytes += len(body)
	if len(b.waiting) < b.least && b.bytes < maxBatchBytes {
		return nil, nil
	}
	return b.Flush(ctx)
}

// Flush pushes what waits.
func (b *Batch) Flush(ctx context.Context) ([]Handle, error) {
	bodies := b.waiting
	b.waiting, b.bytes = nil, 0
	handles, errs := make([]Handle, len(bodies)), make([]error, len(bodies))
	var pushes sync.WaitGroup
	places := make(chan struct{}, maxPushes)
	for i, body := range bodies {
		places <- struct{}{}
		pushes.Go(func() {
			handles[i], errs[i] = b.fabric.Push(ctx, b.tier, body)
			<-places
		})
	}
	pushes.Wait()
	return handles, errors.Join(errs...)
}
