package cuda

import "fmt"

// Import is an allocation that another process lends. CUDA maps one only once in
// a process, so all who import the same handle share one Import, which is closed
// with the last of them. The mapping is read-write, whichever process owns the memory: that
// only the owner's agent writes is kept by code, not by the mapping.
//
// The memory of a process that has ended is freed when its importers have closed
// it, and not before.
type Import struct {
	device *Device
	handle IPCHandle
	at     Pointer
	bytes  uint64
	uses   int           // protected by the device's mu
	ready  chan struct{} // closed when it is open, or has failed with err
	err    error
}

// Import maps what a handle names, which may be any 64 bytes: what is no handle is
// refused. Every Import that is returned is closed by its caller.
func (d *Device) Import(h IPCHandle) (*Import, error) {
	d.mu.Lock()
	if i := d.imports[h]; i != nil {
		i.uses++
		d.mu.Unlock()
		<-i.ready
		if i.err != nil {
			return nil, i.err // who opened it has taken it out of the table
		}
		return i, nil
	}
	if d.closed {
		d.mu.Unlock()
		return nil, ErrClosed
	}
	i := &Import{device: d, handle: h, uses: 1, ready: make(chan struct{})}
	d.imports[h] = i
	d.counts.Imports++
	d.mu.Unlock()

	i.err = i.open()
	if i.err != nil {
		d.mu.Lock()
		delete(d.imports, h)
		d.counts.Imports--
		d.mu.Unlock()
	}
	close(i.ready)
	if i.err != nil {
		return nil, i.err
	}
	return i, nil
}

func (i *Import) open() error {
	d := i.device
	at, err := d.driver.Import(d.context, i.handle)
	if err != nil {
		return failed(err, "open memory of another process")
	}
	base, bytes, err := d.driver.Range(d.context, at)
	if err == nil && base != at {
		err = fmt.Errorf("it begins at %#x and was mapped at %#x", uint64(base), uint64(at))
	}
	if err != nil {
		_ = d.driver.Unimport(d.context, at)
		return failed(err, "ask how long the memory of another process is")
	}
	i.at, i.bytes = at, bytes
	return nil
}

// At is where this process sees it, and Bytes how long it is, by the driver's
// word and not by the exporter's.
func (i *Import) At() Pointer   { return i.at }
func (i *Import) Bytes() uint64 { return i.bytes }

// Close gives one use of it back. The last one unmaps it: no work that was queued
// may touch it any more.
func (i *Import) Close() error {
	d := i.device
	d.mu.Lock()
	i.uses--
	last := i.uses == 0
	if !last {
		d.mu.Unlock()
		return nil
	}
	// It is unmapped under the lock: the importer that comes next must find it
	// unmapped, because CUDA refuses a second mapping.
	defer d.mu.Unlock()
	delete(d.imports, i.handle)
	d.counts.Imports--
	return failed(d.driver.Unimport(d.context, i.at), "close memory of another process")
}
