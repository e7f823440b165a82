package cuda

import "unsafe"

// Memory is VRAM of our own.
type Memory struct {
	device *Device
	at     Pointer
	bytes  uint64
}

// Alloc takes VRAM, which holds whatever it held. The caller closes it, when no
// work that was queued touches it any more.
func (d *Device) Alloc(bytes uint64) (*Memory, error) {
	m := &Memory{device: d, bytes: bytes}
	err := d.opened(&d.counts.Allocations, func() (err error) {
		m.at, err = d.driver.MemAlloc(d.context, bytes)
		return failed(err, "allocate %d bytes", bytes)
	})
	if err != nil {
		return nil, err
	}
	return m, nil
}

// At is where it begins.
func (m *Memory) At() Pointer { return m.at }

// Export returns the name by which another process imports it.
func (m *Memory) Export() (IPCHandle, error) {
	h, err := m.device.driver.Export(m.device.context, m.at)
	return h, failed(err, "export %d bytes", m.bytes)
}

// Close frees it.
func (m *Memory) Close() error {
	m.device.gone(&m.device.counts.Allocations)
	return failed(m.device.driver.MemFree(m.device.context, m.at), "free %d bytes", m.bytes)
}

// Pinned is host memory that the device reaches by itself, at the bus's speed.
type Pinned struct {
	device *Device
	bytes  []byte
	shared *registration // nil for memory that Pin took
}

// Pin takes host memory that is pinned. The caller closes it, when no work that was
// queued touches it any more.
func (d *Device) Pin(bytes uint64) (*Pinned, error) {
	p := &Pinned{device: d}
	err := d.opened(&d.counts.Pinned, func() error {
		at, err := d.driver.HostAlloc(d.context, bytes)
		if err != nil {
			return failed(err, "pin %d bytes", bytes)
		}
		p.bytes = unsafe.Slice((*byte)(hostPointer(at)), bytes)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return p, nil
}

// Bytes are the memory itself.
func (p *Pinned) Bytes() []byte { return p.bytes }

// At is where the device sees it.
func (p *Pinned) At() Pointer { return Pointer(p.address()) }

func (p *Pinned) address() uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(p.bytes))) }

// Close frees it, or unpins it if no other has registered it.
func (p *Pinned) Close() error {
	if p.shared != nil {
		return p.unregister()
	}
	p.device.gone(&p.device.counts.Pinned)
	return failed(p.device.driver.HostFree(p.device.context, p.address()), "free %d pinned bytes", len(p.bytes))
}

// hostPointer is for memory that CUDA's driver has mapped, of which Go's collector
// knows nothing. The detour over a variable's address is what vet asks for.
func hostPointer(at uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&at)) }
