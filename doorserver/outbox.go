package doorserver

import (
	"sync"

	"meridian/door"
	"meridian/door/doorpb"
)

// outbox is what waits to be written to one engine. The server's goroutines,
// which add to it, never wait; events that wait together become one frame.
type outbox struct {
	limit int

	mu         sync.Mutex // protects the rest
	frames     []byte
	events     *doorpb.Event // after frames
	eventBytes int           // about what they take on the wire, and not less
	closed     bool          // nothing more comes
	waiting    *sync.Cond
}

func newOutbox(limit int) *outbox {
	o := &outbox{limit: limit}
	o.waiting = sync.NewCond(&o.mu)
	return o
}

// addFrame adds a frame, or reports that too much waits already.
func (o *outbox) addFrame(frame []byte) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return true // the writer has ended, or will
	}
	o.flushEvents()
	if len(o.frames)+len(frame) > o.limit {
		return false
	}
	o.frames = append(o.frames, frame...)
	o.waiting.Signal()
	return true
}

// eventBytes is what an event takes on the wire besides its texts, and not less.
const eventBytes = 40

// addEvent adds an event.
func (o *outbox) addEvent(e door.Event) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return true
	}
	if o.events == nil {
		o.events = &doorpb.Event{}
	}
	p := door.ProblemMessage(e.Problem)
	o.events.Kinds = append(o.events.Kinds, doorpb.EventKind(e.Kind))
	o.events.Transfers = append(o.events.Transfers, e.Transfer[:]...)
	o.events.Accepted = append(o.events.Accepted, e.Accepted)
	o.events.Problems = append(o.events.Problems, p)
	o.eventBytes += eventBytes + len(p.Code) + len(p.Message) + len(p.Hint)
	o.waiting.Signal()
	return len(o.frames)+o.eventBytes <= o.limit
}

// flushEvents makes a frame of the events that wait. mu is held.
func (o *outbox) flushEvents() {
	if o.events == nil {
		return
	}
	frames, err := door.AppendFrame(o.frames, doorpb.FrameType_FRAME_TYPE_EVENT, o.events)
	if err != nil {
		panic(err) // the limit is below a frame's, and every text can be written
	}
	o.frames, o.events, o.eventBytes = frames, nil, 0
}

// take waits for something to write; nothing means that there will be no more.
func (o *outbox) take() []byte {
	o.mu.Lock()
	defer o.mu.Unlock()
	for len(o.frames) == 0 && o.events == nil && !o.closed {
		o.waiting.Wait()
	}
	o.flushEvents()
	frames := o.frames
	o.frames = nil
	return frames
}

// close lets take end when everything is written.
func (o *outbox) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	o.waiting.Signal()
}
