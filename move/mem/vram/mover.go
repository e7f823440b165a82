package vram

import (
	"errors"
	"fmt"

	"meridian/move/cuda"
)

// Mover moves bytes of a device, for one goroutine at a time. With it goes pinned
// memory for bytes that the device cannot reach by itself.
type Mover struct {
	*cuda.Mover
	device *cuda.Device
	pinned *cuda.Pinned
}

// PinnedBytes is how much pinned memory goes with a mover.
const PinnedBytes = 8 << 20

// MaxMovers is how many of one device are lent at a time: peers decide how many streams
// there are, and each mover has pinned memory.
const MaxMovers = 64

// ErrBusy means that as many movers are lent as may be.
var ErrBusy = errors.New("vram: the GPU moves as much at a time as it may; try again")

// Mover lends one; GiveBack ends that.
func (p *Pool) Mover(on *cuda.Device) (*Mover, error) {
	p.mu.Lock()
	d := p.devices[on.UUID]
	if d == nil || d.Device != on {
		p.mu.Unlock()
		return nil, cuda.ErrClosed
	}
	if d.lent == MaxMovers {
		p.mu.Unlock()
		return nil, fmt.Errorf("%w: %d transfers move bytes of %s", ErrBusy, MaxMovers, on.UUID)
	}
	d.lent++
	if n := len(d.movers); n > 0 {
		m := d.movers[n-1]
		d.movers = d.movers[:n-1]
		p.mu.Unlock()
		return m, nil
	}
	p.mu.Unlock()
	m, err := on.Mover()
	if err != nil {
		p.mu.Lock()
		d.lent--
		p.mu.Unlock()
		return nil, err
	}
	return &Mover{Mover: m, device: on}, nil
}

// GiveBack returns a mover that does nothing any more.
func (p *Pool) GiveBack(m *Mover) {
	p.mu.Lock()
	d := p.devices[m.device.UUID]
	kept := d != nil && d.Device == m.device
	if kept {
		d.lent--
		d.movers = append(d.movers, m)
	}
	p.mu.Unlock()
	if !kept {
		_ = m.Close()
	}
}

// Pinned is the memory that goes with it.
func (m *Mover) Pinned() (*cuda.Pinned, error) {
	if m.pinned == nil {
		var err error
		if m.pinned, err = m.device.Pin(PinnedBytes); err != nil {
			return nil, err
		}
	}
	return m.pinned, nil
}

// Close gives back what it has.
func (m *Mover) Close() error {
	err := m.Mover.Close()
	if m.pinned != nil {
		err = errors.Join(err, m.pinned.Close())
	}
	return err
}
