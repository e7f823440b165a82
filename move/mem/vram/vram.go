// Package vram makes sections of GPU memory: of our own, and of what another
// process lends by a handle of CUDA's.
//
//	Pool      the GPUs of this machine, each opened when it is first needed, and what
//	          moves bytes on them
//	Memory    the backing of such a section: which device, and where
//	Own       memory of this process that is pinned for them
//
// A section's bytes can be read and written like any other's, a few at a time; who
// moves many asks its Memory for the device and runs kernels there.
package vram

import (
	"errors"
	"fmt"
	"sync"

	"meridian/move/cuda"
	"meridian/move/mem"
)

// Pool opens GPUs by their UUID and keeps them open until Close: opening one takes
// half a second, and half a gigabyte of it.
type Pool struct {
	driver cuda.Driver

	mu      sync.Mutex // protects the rest, also while a device is opened
	devices map[cuda.UUID]*device
	own     map[*PinnedRange]struct{} // what is to be pinned
	closed  bool
}

// device is an open GPU.
type device struct {
	*cuda.Device
	used   bool // something of it was opened: it stays
	users  int  // who are about to
	movers []*Mover
	lent   int // movers that have not come back
}

// NewPool makes one; a nil driver is libcuda, which is loaded when it is needed.
func NewPool(driver cuda.Driver) *Pool {
	return &Pool{driver: driver, devices: make(map[cuda.UUID]*device), own: make(map[*PinnedRange]struct{})}
}

// Device opens a GPU, or returns the one that is open. It stays the pool's.
func (p *Pool) Device(uuid cuda.UUID) (*cuda.Device, error) {
	d, err := p.enter(uuid)
	if err != nil {
		return nil, err
	}
	return d.Device, p.leave(d, true)
}

// First is the first GPU that this process sees.
func (p *Pool) First() (cuda.UUID, error) {
	list, err := cuda.List(p.driver)
	switch {
	case err != nil:
		return cuda.UUID{}, err
	case len(list) == 0:
		return cuda.UUID{}, cuda.NoDevice
	}
	return list[0].UUID, nil
}

// enter finds a GPU for who is about to open something of it, which leave ends.
func (p *Pool) enter(uuid cuda.UUID) (*device, error) {
	if uuid == (cuda.UUID{}) {
		return nil, errors.New("vram: a GPU without a UUID")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, cuda.ErrClosed
	}
	d := p.devices[uuid]
	if d == nil {
		opened, err := cuda.Open(cuda.Options{Driver: p.driver, UUID: uuid})
		if err != nil {
			return nil, err
		}
		d = &device{Device: opened}
		p.devices[uuid] = d
	}
	d.users++
	return d, nil
}

// leave closes a GPU of which nothing was ever used: a loan of 64 bytes of nothing
// would else have every GPU opened.
func (p *Pool) leave(d *device, used bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	d.users--
	if d.used = d.used || used; d.used && !p.closed {
		for o := range p.own {
			o.start(d.Device)
		}
	}
	if d.used || d.users > 0 || p.closed {
		return nil
	}
	delete(p.devices, d.UUID)
	return d.Close()
}

// Counts is what all devices have open.
func (p *Pool) Counts() (c cuda.Counts) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, d := range p.devices {
		one := d.Counts()
		c.Allocations += one.Allocations
		c.Pinned += one.Pinned
		c.Imports += one.Imports
		c.Streams += one.Streams
		c.Events += one.Events
		c.Modules += one.Modules
	}
	return c
}

// Close closes the devices. All sections on them are closed before.
func (p *Pool) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	var problems []error
	for _, d := range p.devices {
		for _, m := range d.movers {
			problems = append(problems, m.Close())
		}
		problems = append(problems, d.Close())
	}
	clear(p.devices)
	return errors.Join(problems...)
}

// Lent describes memory that another process lends.
type Lent struct {
	UUID   cuda.UUID
	Handle cuda.IPCHandle
	// Offset and SizeBytes are the stretch within the allocation that the handle
	// names.
	Offset, SizeBytes uint64
	// Device keeps its addresses apart from those of other processes.
	Device uint32
	// On is the GPU from which it is to be reached; nil is the one that it lies on.
	On *cuda.Device
}

// Import makes a section of lent memory. All of it must lie within the allocation,
// by the driver's word. Sections of one allocation share one mapping, which ends
// with the last of them.
func (p *Pool) Import(l Lent) (*mem.Section, error) {
	if l.On != nil {
		l.UUID = l.On.UUID
	}
	d, err := p.enter(l.UUID)
	if err != nil {
		return nil, err
	}
	s, err := l.open(p, d.Device)
	return s, errors.Join(err, p.leave(d, err == nil))
}

func (l Lent) open(p *Pool, d *cuda.Device) (*mem.Section, error) {
	i, err := d.Import(l.Handle)
	if err != nil {
		return nil, err
	}
	if l.Offset > i.Bytes() || l.SizeBytes > i.Bytes()-l.Offset {
		err = fmt.Errorf("%w: [%d,+%d) of an allocation of %d bytes", mem.ErrBounds, l.Offset, l.SizeBytes, i.Bytes())
		return nil, errors.Join(err, i.Close())
	}
	m := &Memory{Pool: p, Device: d, At: i.At() + cuda.Pointer(l.Offset), Handle: l.Handle, Offset: l.Offset, free: i.Close}
	return m.open(l.Device, l.SizeBytes)
}

// Alloc makes a section of VRAM of our own.
func (p *Pool) Alloc(uuid cuda.UUID, sizeBytes uint64, device uint32) (*mem.Section, error) {
	d, err := p.Device(uuid)
	if err != nil {
		return nil, err
	}
	a, err := d.Alloc(sizeBytes)
	if err != nil {
		return nil, err
	}
	h, err := a.Export()
	if err != nil {
		return nil, errors.Join(err, a.Close())
	}
	m := &Memory{Pool: p, Device: d, At: a.At(), Handle: h, free: a.Close}
	return m.open(device, sizeBytes)
}

// Memory is the backing of a section of VRAM.
type Memory struct {
	// Pool has movers for the device.
	Pool   *Pool
	Device *cuda.Device
	// At is where this process sees the section's first byte.
	At cuda.Pointer
	// Handle names the allocation to other processes, in which the section begins at
	// Offset.
	Handle cuda.IPCHandle
	Offset uint64
	free   func() error
}

func (m *Memory) open(device uint32, sizeBytes uint64) (*mem.Section, error) {
	s, err := mem.OpenBacked(mem.BackedOptions{Kind: mem.VRAM, Device: device, Address: uint64(m.At), SizeBytes: sizeBytes, Backing: m})
	if err != nil {
		return nil, errors.Join(err, m.free())
	}
	return s, nil
}

// Of is the backing of a section of VRAM, and nil for any other. The caller holds a
// reference to the section while it uses it.
func Of(s *mem.Section) *Memory {
	m, _ := s.Backing().(*Memory)
	return m
}

// ReadAt copies out of it, and waits.
func (m *Memory) ReadAt(p []byte, offset uint64) error {
	return m.Device.Read(p, m.At+cuda.Pointer(offset))
}

// WriteAt copies into it, and waits.
func (m *Memory) WriteAt(p []byte, offset uint64) error {
	return m.Device.Write(m.At+cuda.Pointer(offset), p)
}

// Close lets it go.
func (m *Memory) Close() error { return m.free() }
