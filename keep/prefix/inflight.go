package prefix

import (
	"context"
	"fmt"
	"sync/atomic"

	"golang.org/x/sync/semaphore"
)

// inFlight bounds the bytes that are on their way at a time. What is beyond waits for its turn.
type inFlight struct {
	room *semaphore.Weighted
	held atomic.Int64
}

func newInFlight(most uint64) *inFlight { return &inFlight{room: semaphore.NewWeighted(int64(most))} }

// errInFlight means that there was no room as long as it was waited for.
var errInFlight = fmt.Errorf("offload: as much as may be is on its way")

// enter waits until there is room for bytes, as long as ctx lasts; leave gives it back.
func (f *inFlight) enter(ctx context.Context, bytes uint64) error {
	if err := f.room.Acquire(ctx, int64(bytes)); err != nil {
		return fmt.Errorf("%w: %w", errInFlight, err)
	}
	f.held.Add(int64(bytes))
	return nil
}

func (f *inFlight) leave(bytes uint64) {
	f.held.Add(-int64(bytes))
	f.room.Release(int64(bytes))
}

func (f *inFlight) bytes() uint64 { return uint64(f.held.Load()) }
