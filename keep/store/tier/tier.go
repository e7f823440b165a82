// Package tier is what the object cache asks of the places that keep objects outside of
// memory. A tier is never in the way: what it has no room or no time for is a miss, or
// is not kept, and is counted.
//
//	Put ──► taken ──(by itself, together with others)──► kept: Has, Get ──► gone: room was needed, Drop, broken
//	 └─ busy, down: not kept
//
// What a tier keeps outlives its process, and may come back after its key was removed
// while the tier did not hear. So it is only given objects whose key says what they are:
// whichever agent put it, the value is the same.
package tier

import (
	"context"
	"errors"
)

// Why there is no object, or why one is not kept.
var (
	// ErrMissing means that a tier has no such object, or not any more.
	ErrMissing = errors.New("tier: no such object")
	// ErrBusy means that as much is under way as may be.
	ErrBusy = errors.New("tier: busy")
	// ErrSlow means that there was no answer in time.
	ErrSlow = errors.New("tier: no answer in time")
	// ErrDown means that a tier failed so often that it is left alone for a while.
	ErrDown = errors.New("tier: it failed, and is left alone for a while")
	// ErrClosed means that it is closed, or closing.
	ErrClosed = errors.New("tier: closed")
	// ErrTooLarge means that a tier takes no object of such a size.
	ErrTooLarge = errors.New("tier: too large an object")
)

// Object is what a tier keeps. The header is its owner's, and means nothing to the tier.
type Object struct {
	Key, Header, Payload []byte
}

// Tier keeps objects. Its methods may be called from several goroutines.
type Tier interface {
	// Name says which one it is, as metrics and people call it.
	Name() string
	// Takes says why an object of so many bytes would be refused now, for long; nil: it may
	// be taken. It costs next to nothing, unlike what a Put needs.
	Takes(bytes uint64) error
	// Put takes an object, or refuses it at once. Its bytes are the caller's again when it
	// returns. It can be got when it is kept, which takes a moment; an object that cannot
	// be kept then is counted. One that is kept already stays as it is.
	Put(Object) error
	// Get copies an object to where into says that one of this header and size goes, and
	// returns that memory. It ends with ctx, or earlier, if the tier has no more patience;
	// into is not called after that. An object whose bytes are broken is missing, and gone.
	Get(ctx context.Context, key []byte, into func(header []byte, size int) []byte) ([]byte, error)
	// Has reports which of the keys can probably be got. It does not wait.
	Has(keys [][]byte) []bool
	// Drop lets go of an object, as soon as the word is out: it is not found from now on.
	Drop(key []byte)
	// Flush returns when everything that was taken is kept or counted as failed.
	Flush(ctx context.Context) error
	Stats() Stats
	// Close flushes, and returns when nothing of the tier runs.
	Close(ctx context.Context) error
}

// Stats are counters and gauges of a tier.
type Stats struct {
	// Objects and Bytes are kept, with all that lies around them; so many Bytes may be.
	Objects     uint64 `metric:"meridian_store_tier_objects"`
	Bytes       uint64 `metric:"meridian_store_tier_bytes,used"`
	Limit       uint64 `metric:"meridian_store_tier_bytes,limit"`
	Waiting     uint64 `metric:"meridian_store_tier_bytes,waiting"`             // bytes that were taken and are not kept yet
	Puts        uint64 `metric:"meridian_store_tier_operations_total,put,done"` // that were kept
	PutBytes    uint64 `metric:"meridian_store_tier_moved_bytes_total,in"`
	PutsDropped uint64 `metric:"meridian_store_tier_operations_total,put,dropped"` // that were refused: too much was under way, or the tier was down
	PutsFailed  uint64 `metric:"meridian_store_tier_operations_total,put,failed"`  // that could not be written
	Hits        uint64 `metric:"meridian_store_tier_operations_total,get,hit"`
	HitBytes    uint64 `metric:"meridian_store_tier_moved_bytes_total,out"`
	Misses      uint64 `metric:"meridian_store_tier_operations_total,get,miss"`  // of objects it has not
	Slow        uint64 `metric:"meridian_store_tier_troubles_total,slow"`        // calls whose time was over
	Failed      uint64 `metric:"meridian_store_tier_troubles_total,failed"`      // reads, writes and requests that ended with an error
	Broken      uint64 `metric:"meridian_store_tier_troubles_total,broken"`      // objects whose bytes were not what they were
	Reclaimed   uint64 `metric:"meridian_store_tier_reclaimed_total"`            // segments that made room
	Requests    uint64 `metric:"meridian_store_tier_requests_total"`             // to a server, each try counted
	OverBudget  uint64 `metric:"meridian_store_tier_troubles_total,over_budget"` // requests that were not made, for their number or their bytes
	Down        bool   `metric:"meridian_store_tier_down"`                       // it is left alone for a while
	// OldestSeconds is how long ago the oldest segment was written, the next to make room.
	OldestSeconds uint64
}
