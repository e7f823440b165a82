package cuda

import (
	"sync"
	"unsafe"
)

// registration is memory that is pinned where it lies. CUDA pins it once, for all
// devices of a process, so all who register the same memory share one registration,
// which ends with the last of them.
type registration struct {
	key   registered
	uses  int           // protected by registrations.mu
	ready chan struct{} // closed when it is pinned, or has failed with err
	err   error
}

// registered names memory: a driver is a process, as CUDA sees it.
type registered struct {
	driver   Driver
	at       uintptr
	bytes    int
	readOnly bool
}

// registrations are those of this process: that CUDA keeps one table for all devices is
// no choice of ours.
var registrations = struct {
	mu  sync.Mutex // protects all, also while memory is unpinned
	all map[registered]*registration
}{all: make(map[registered]*registration)}

// Register pins memory that is there already and is not Go's: an arena. It must
// stay mapped until Close. Memory that is mapped to be read is registered so. Who
// registers the same memory again shares that; a part of it is refused.
func (d *Device) Register(memory []byte, readOnly bool) (*Pinned, error) {
	key := registered{driver: d.driver, at: uintptr(unsafe.Pointer(unsafe.SliceData(memory))), bytes: len(memory), readOnly: readOnly}
	p := &Pinned{device: d, bytes: memory}
	err := d.opened(&d.counts.Pinned, func() (err error) {
		p.shared, err = key.share(d)
		return err
	})
	if err != nil {
		return nil, err
	}
	return p, nil
}

// share finds a registration, or makes it.
func (k registered) share(d *Device) (*registration, error) {
	registrations.mu.Lock()
	if r := registrations.all[k]; r != nil {
		r.uses++
		registrations.mu.Unlock()
		<-r.ready
		if r.err != nil {
			return nil, r.err // who made it has taken it out of the table
		}
		return r, nil
	}
	r := &registration{key: k, uses: 1, ready: make(chan struct{})}
	registrations.all[k] = r
	registrations.mu.Unlock()
	defer close(r.ready)
	r.err = failed(d.driver.HostRegister(d.context, k.at, uint64(k.bytes), k.readOnly), "register %d bytes", k.bytes)
	if r.err != nil {
		registrations.mu.Lock()
		defer registrations.mu.Unlock()
		delete(registrations.all, k)
		return nil, r.err
	}
	return r, nil
}

// unregister ends one use of a registration. The last one unpins the memory under the
// lock: who registers it next must find it unpinned.
func (p *Pinned) unregister() error {
	d, r := p.device, p.shared
	d.gone(&d.counts.Pinned)
	registrations.mu.Lock()
	defer registrations.mu.Unlock()
	if r.uses--; r.uses > 0 {
		return nil
	}
	delete(registrations.all, r.key)
	return failed(d.driver.HostUnregister(d.context, r.key.at), "unregister %d bytes", r.key.bytes)
}
