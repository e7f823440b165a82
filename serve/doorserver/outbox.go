package doorserver

import (
	"os"
	"sync"

	"meridian/serve/door"
	"meridian/serve/door/doorpb"
)

// outbox is what waits to be written to one engine. The server's goroutines,
// which add to it, never wait; events that wait together become one frame.
type outbox struct {
	limit int

	mu         sync.Mutex // protects the rest
	pieces     []piece
	bytes      int           // of all pieces
	events     *doorpb.Event // after the pieces
	eventBytes int           // about what they take on the wire, and not less
	closed     bool          // nothing more comes
	waiting    *sync.Cond
}

// piece is frames that are written together. A descriptor goes with the first byte of
// the first of them; who writes it closes it.
type piece struct {
	frames []byte
	file   *os.File
}

func newOutbox(limit int) *outbox {
	o := &outbox{limit: limit}
	o.waiting = sync.NewCond(&o.mu)
	return o
}

// addFrame adds a frame, and takes over the descriptor that goes with it if there is
// one; or it reports that too much waits already.
func (o *outbox) addFrame(frame []byte, file *os.File) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.closed {
		o.flushEvents()
	}
	if fits := o.bytes+len(frame) <= o.limit; o.closed || !fits {
		closeFile(file)
		return o.closed // then the writer has ended, or will
	}
	o.add(frame, file)
	o.waiting.Signal()
	return true
}

// add adds a frame to the last piece, or begins another. mu is held.
func (o *outbox) add(frame []byte, file *os.File) {
	if len(o.pieces) == 0 || file != nil {
		o.pieces = append(o.pieces, piece{file: file})
	}
	last := &o.pieces[len(o.pieces)-1]
	last.frames = append(last.frames, frame...)
	o.bytes += len(frame)
}

func closeFile(file *os.File) {
	if file != nil {
		_ = file.Close()
	}
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
	return o.bytes+o.eventBytes <= o.limit
}

// flushEvents makes a frame of the events that wait. mu is held.
func (o *outbox) flushEvents() {
	if o.events == nil {
		return
	}
	frame, err := door.AppendFrame(nil, doorpb.FrameType_FRAME_TYPE_EVENT, o.events)
	if err != nil {
		panic(err) // the limit is below a frame's, and every text can be written
	}
	o.add(frame, nil)
	o.events, o.eventBytes = nil, 0
}

// take waits for something to write; nothing means that there will be no more.
func (o *outbox) take() piece {
	o.mu.Lock()
	defer o.mu.Unlock()
	for len(o.pieces) == 0 && o.events == nil && !o.closed {
		o.waiting.Wait()
	}
	o.flushEvents()
	if len(o.pieces) == 0 {
		return piece{}
	}
	first := o.pieces[0]
	o.pieces = o.pieces[1:]
	o.bytes -= len(first.frames)
	return first
}

// drop lets go of what will not be written.
func (o *outbox) drop() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, p := range o.pieces {
		closeFile(p.file)
	}
	o.pieces, o.bytes = nil, 0
}

// close lets take end when everything is written.
func (o *outbox) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	o.waiting.Signal()
}
