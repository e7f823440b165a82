package link

import (
	"time"

	"meridian/move/mrdn"
)

// receipts are what tells a peer that its notices were taken, where a room attends to
// them: its answer is what the peer waits for. One by one they would cost a system call
// here and a wake-up there for each notice, so they wait for one another; a refusal
// does not.
type receipts struct {
	frames []byte
	on     Stream      // that of the last
	stop   func() bool // takes the timer back that sends them; nil when none runs
}

const (
	// receiptPause is how long a receipt waits for others at most. What is waited for
	// by its poster meanwhile is a place in a queue of thousands.
	receiptPause = time.Millisecond
	// maxReceipts is how many bytes of them wait at most.
	maxReceipts = 4 << 10
)

// answerNotice answers the notice that is being heard. mu is held.
func (e *Server) answerNotice(ack mrdn.Ack) {
	if e.attending.to == nil || ack.Code != mrdn.OK {
		e.hearing.Send(ack.Append(nil))
		return
	}
	r := &e.receipts
	r.frames, r.on = ack.Append(r.frames), e.hearing
	switch {
	case len(r.frames) >= maxReceipts:
		r.send()
	case r.stop == nil:
		r.stop = e.options.Clock.AfterFunc(receiptPause, e.sendReceipts)
	}
}

// Owes reports whether receipts wait to be sent.
func (e *Server) Owes() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.receipts.frames) > 0
}

// sendReceipts sends those that have waited.
func (e *Server) sendReceipts() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.receipts.stop = nil
	if len(e.receipts.frames) > 0 {
		e.receipts.send()
	}
}

func (r *receipts) send() {
	r.on.Send(r.frames)
	r.frames = r.frames[:0]
}

// drop forgets them: the link is gone.
func (r *receipts) drop() {
	if r.stop != nil {
		r.stop()
	}
	*r = receipts{}
}
