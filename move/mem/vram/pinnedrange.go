package vram

import (
	"context"
	"errors"
	"fmt"

	"meridian/move/cuda"
)

// PinnedRange is memory of this process that GPUs are to reach by themselves, from when one is
// in use until Release.
type PinnedRange struct {
	pool   *Pool
	memory []byte
	failed func(error)

	pinning chan struct{} // closed when it is pinned or cannot be; nil before a GPU is in use; the pool's mu protects it
	pinned  *cuda.Pinned  // nil if it cannot be; written before pinning is closed
}

// MaxPinned bounds what is pinned at once: pinned memory is resident, and pinning takes
// a second for some gigabytes.
const MaxPinned = 64 << 30

// Pin has memory that is not Go's pinned as soon as a GPU is in use, beside whatever
// goes on: a process that no engine lends GPU memory to touches no GPU. Memory that
// cannot be pinned is told to failed, and stays what it is. It must stay mapped until
// Release.
func (p *Pool) Pin(memory []byte, failed func(error)) *PinnedRange {
	o := &PinnedRange{pool: p, memory: memory, failed: failed}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.own[o] = struct{}{}
	for _, d := range p.devices {
		if d.used {
			o.start(d.Device)
			break
		}
	}
	return o
}

// start pins it, unless that is under way. The caller holds the pool's mu.
func (o *PinnedRange) start(d *cuda.Device) {
	if o.pinning != nil {
		return
	}
	o.pinning = make(chan struct{})
	go func() {
		defer close(o.pinning)
		var err error
		if len(o.memory) > MaxPinned {
			err = fmt.Errorf("vram: %d bytes are more than the %d that are pinned at once", len(o.memory), uint64(MaxPinned))
		} else {
			o.pinned, err = d.Register(o.memory, false)
		}
		if err != nil {
			o.failed(err)
		}
	}()
}

// ErrPinning means that memory is still being pinned, and must stay mapped.
var ErrPinning = errors.New("vram: a GPU still pins the memory")

// Release ends it: after that the memory may be unmapped. After an error it may be
// called again.
func (o *PinnedRange) Release(ctx context.Context) error {
	o.pool.mu.Lock()
	delete(o.pool.own, o) // the pool starts it no more
	pinning := o.pinning
	o.pool.mu.Unlock()
	if pinning == nil {
		return nil
	}
	select {
	case <-pinning:
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", ErrPinning, context.Cause(ctx))
	}
	pinned := o.pinned
	if pinned == nil {
		return nil
	}
	o.pinned = nil
	return pinned.Close()
}
