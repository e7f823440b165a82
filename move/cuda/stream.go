package cuda

// Stream is work that the device does in the order in which it was queued, beside
// all other streams.
type Stream struct {
	device *Device
	handle StreamHandle
}

// Stream makes one. The caller closes it.
func (d *Device) Stream() (*Stream, error) {
	s := &Stream{device: d}
	err := d.opened(&d.counts.Streams, func() (err error) {
		s.handle, err = d.driver.StreamCreate(d.context)
		return failed(err, "make a stream")
	})
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Copy queues a copy between any two of VRAM and pinned memory.
func (s *Stream) Copy(to, from Pointer, bytes uint64) error {
	if bytes == 0 {
		return nil
	}
	return failed(s.device.driver.Copy(s.device.context, s.handle, to, from, bytes), "copy %d bytes", bytes)
}

// Fill queues the writing of one value.
func (s *Stream) Fill(to Pointer, value byte, bytes uint64) error {
	if bytes == 0 {
		return nil
	}
	return failed(s.device.driver.Fill(s.device.context, s.handle, to, value, bytes), "fill %d bytes", bytes)
}

// Wait makes what is queued from now on wait for what an event has recorded.
func (s *Stream) Wait(e *Event) error {
	return failed(s.device.driver.StreamWait(s.device.context, s.handle, e.handle), "wait for an event")
}

// Synchronize waits until all that was queued is done. It fails if some of it did.
func (s *Stream) Synchronize() error {
	return failed(s.device.driver.StreamSynchronize(s.device.context, s.handle), "await a stream")
}

// Close ends it, after what was queued.
func (s *Stream) Close() error {
	s.device.gone(&s.device.counts.Streams)
	return failed(s.device.driver.StreamDestroy(s.device.context, s.handle), "destroy a stream")
}

// Event is a point in a stream.
type Event struct {
	device *Device
	handle EventHandle
}

// Event makes one. The caller closes it.
func (d *Device) Event() (*Event, error) {
	e := &Event{device: d}
	err := d.opened(&d.counts.Events, func() (err error) {
		e.handle, err = d.driver.EventCreate(d.context)
		return failed(err, "make an event")
	})
	if err != nil {
		return nil, err
	}
	return e, nil
}

// Record makes the event stand for all that the stream has been given so far.
func (e *Event) Record(s *Stream) error {
	return failed(e.device.driver.EventRecord(e.device.context, e.handle, s.handle), "record an event")
}

// Done reports whether what was recorded is done.
func (e *Event) Done() (bool, error) {
	err := e.device.driver.EventQuery(e.device.context, e.handle)
	if err == error(NotReady) {
		return false, nil
	}
	return err == nil, failed(err, "ask an event")
}

// Synchronize waits until what was recorded is done; the thread sleeps.
func (e *Event) Synchronize() error {
	return failed(e.device.driver.EventSynchronize(e.device.context, e.handle), "await an event")
}

// Close destroys it.
func (e *Event) Close() error {
	e.device.gone(&e.device.counts.Events)
	return failed(e.device.driver.EventDestroy(e.device.context, e.handle), "destroy an event")
}
