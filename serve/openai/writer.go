package openai

import "net/http"

// EventWriter writes a stream. Every event is flushed: people read along.
type EventWriter struct {
	to     http.ResponseWriter
	flush  *http.ResponseController
	buffer []byte
}

// NewEventWriter sets the headers of a stream on w. Nothing is sent before the
// first event, so that an error can still be one.
func NewEventWriter(w http.ResponseWriter) *EventWriter {
	header := w.Header()
	header.Set("Content-Type", EventStream)
	header.Set("Cache-Control", "no-cache")
	header.Set("X-Accel-Buffering", "no") // proxies that know it do not hold events back
	return &EventWriter{to: w, flush: http.NewResponseController(w)}
}

// SendData writes an event with data that is one line.
func (e *EventWriter) SendData(data []byte) error {
	e.buffer = AppendEvent(e.buffer[:0], data)
	return e.write()
}

// SendAll writes events that are already in the form of a stream.
func (e *EventWriter) SendAll(events []byte) error {
	if _, err := e.to.Write(events); err != nil {
		return err
	}
	return e.flush.Flush()
}

func (e *EventWriter) write() error { return e.SendAll(e.buffer) }

// Fault writes an error as an event, which is how a stream that has begun
// tells of one. It ends the stream: no Done follows.
func (e *EventWriter) Fault(problem *Error) error { return e.SendData(problem.JSON()) }
