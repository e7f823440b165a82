// Package payload is the fabric of the Meridian book: whole payloads are pushed, and
// pulled by the handle that a push returned. They are kept in the object cache, each
// as one MRDN frame, which says its tier and has a checksum of its own.
//
//	Push(tier, body) ──frame──► object cache, key push/HANDLE ──frame, checked──► Pull(handle)
package payload

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"

	"meridian/keep/store"
	"meridian/kv"
	"meridian/move/mrdn"
)

var (
	// ErrDisabled means that payloads are not to leave this machine.
	ErrDisabled = errors.New("payload: nothing moves between machines while disagg.enabled is false")
	// ErrNoFabric means that no fabric is configured that this build has.
	ErrNoFabric = errors.New("payload: no fabric")
	// ErrHandle means that a text is no handle.
	ErrHandle = errors.New("payload: a handle has 16 hex digits")
)

// Cache is where payloads are kept.
type Cache interface {
	Put(ctx context.Context, key string, value []byte, o store.PutOptions) error
	GetBytes(ctx context.Context, key string, o store.GetOptions) ([]byte, error)
	Remove(ctx context.Context, key string, o store.RemoveOptions) error
}

// Label names the one fabric there is, as disagg.fabric does.
const Label = "meridian"

// Options are those of the table [disagg].
type Options struct {
	Enabled bool
	Fabric  string
	// BatchBlocks is disagg.offload_threshold_blocks: so many payloads of finished
	// thoughts a Batch waits for; 0 means 1.
	BatchBlocks int
}

// Fabric pushes and pulls.
type Fabric struct {
	cache   Cache
	options Options
}

// Open refuses what the configuration does not let.
func Open(cache Cache, o Options) (*Fabric, error) {
	switch {
	case !o.Enabled:
		return nil, ErrDisabled
	case o.Fabric != Label:
		return nil, fmt.Errorf("%w %q; disagg.fabric can be %q", ErrNoFabric, o.Fabric, Label)
	}
	return &Fabric{cache, o}, nil
}

// Label is what telemetry calls it.
func (f *Fabric) Label() string { return Label }

// Handle names a payload that was pushed.
type Handle uint64

func (h Handle) String() string { return fmt.Sprintf("%016x", uint64(h)) }

// ParseHandle reads what String writes.
func ParseHandle(text string) (Handle, error) {
	h, err := strconv.ParseUint(text, 16, 64)
	if err != nil || Handle(h).String() != text {
		return 0, fmt.Errorf("%w: %.40q", ErrHandle, text)
	}
	return Handle(h), nil
}

func (h Handle) key() string { return "push/" + h.String() }

// drawn is how often a handle is drawn that no payload has: twice is once in 2⁶⁴.
const drawn = 4

// Push keeps a payload. Where owners evict by priority, it leaves in the order of the
// tiers: finished thoughts first.
func (f *Fabric) Push(ctx context.Context, tier kv.Tier, body []byte) (Handle, error) {
	if len(body) > mrdn.DefaultMaxBody {
		return 0, fmt.Errorf("%w: %d bytes, and none is pulled of more than %d", mrdn.ErrTooLarge, len(body), mrdn.DefaultMaxBody)
	}
	frame, err := mrdn.AppendFrame(nil, tier, body)
	if err != nil {
		return 0, err
	}
	for range drawn {
		var bits [8]byte
		rand.Read(bits[:])
		h := Handle(binary.LittleEndian.Uint64(bits[:]))
		if err = f.cache.Put(ctx, h.key(), frame, store.PutOptions{Priority: uint8(tier)}); err == nil {
			return h, nil
		}
		if !errors.Is(err, store.ErrExists) {
			return 0, err
		}
	}
	return 0, err
}

// Pull returns a payload, which stays where it is. Its body was checked.
func (f *Fabric) Pull(ctx context.Context, h Handle) (mrdn.Frame, error) {
	kept, err := f.cache.GetBytes(ctx, h.key(), store.GetOptions{})
	if err != nil {
		return mrdn.Frame{}, err
	}
	frame, rest, err := mrdn.Parse(kept, mrdn.DefaultMaxBody)
	if err == nil && len(rest) > 0 {
		err = fmt.Errorf("payload: %d bytes behind the frame of %v", len(rest), h)
	}
	return frame, err
}

// Drop gives a payload up.
func (f *Fabric) Drop(ctx context.Context, h Handle) error {
	return f.cache.Remove(ctx, h.key(), store.RemoveOptions{})
}
