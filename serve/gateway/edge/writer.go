package edge

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"meridian/see/ledger"
	"meridian/serve/openai"
)

// Headers of answers.
const (
	// HeaderPlacement is where a request was placed, and why.
	HeaderPlacement = "X-Meridian-Placement"
	// headerForcedEnd is why a thought was ended.
	headerForcedEnd = "X-Meridian-Forced-End"
)

// errSlow: the client does not take what it asked for.
var errSlow = errors.New("the client did not read its answer in time")

// Writer is who asked. What is written to it must be taken within a time, piece
// by piece: one that reads slowly or not at all is left, and its engine freed.
type Writer struct {
	To      http.ResponseWriter
	control *http.ResponseController
	timeout time.Duration
	renewed time.Time // when the time was last given
	http2   bool
	started bool  // of a stream: its head is sent
	Err     error // the first that came of writing
}

// NewWriter writes to who has sent r.
func NewWriter(w http.ResponseWriter, r *http.Request, timeout time.Duration) *Writer {
	c := &Writer{To: w, control: http.NewResponseController(w), timeout: timeout, http2: r.ProtoMajor == 2}
	c.Rest()
	return c
}

// pieceBytes is what a client must take within its time.
const pieceBytes = 64 << 10

// Write gives the client a part of its answer, piece by piece.
func (c *Writer) Write(data []byte) {
	for len(data) > 0 && c.Err == nil {
		c.Renew()
		piece := data[:min(len(data), pieceBytes)]
		_, err := c.To.Write(piece)
		c.fail(err)
		data = data[len(piece):]
	}
}

// Renew gives the client its time anew, not more often than that makes a
// difference.
func (c *Writer) Renew() {
	if now := time.Now(); now.Sub(c.renewed) > c.timeout/8 {
		c.renewed = now
		c.fail(c.control.SetWriteDeadline(now.Add(c.timeout)))
	}
}

// Flush sends what was written.
func (c *Writer) Flush() {
	if c.Err == nil {
		c.fail(c.control.Flush())
		c.Rest()
	}
}

// Rest takes the time back while nothing is written: over HTTP/2 a stream is ended
// when its time has passed, whether or not anything waits to be taken.
func (c *Writer) Rest() {
	if c.http2 {
		c.renewed = time.Time{}
		c.fail(c.control.SetWriteDeadline(time.Time{}))
	}
}

func (c *Writer) fail(err error) {
	switch {
	case err == nil || c.Err != nil:
	case errors.Is(err, os.ErrDeadlineExceeded):
		c.Err = fmt.Errorf("%w: %v", errSlow, c.timeout)
	case errors.Is(err, http.ErrNotSupported): // a recorder in a test has no deadlines
	default:
		c.Err = err
	}
}

// Events writes a part of a stream, after its head.
func (c *Writer) Events(data []byte, r *ledger.Record) {
	if !c.started {
		c.started = true
		openai.NewEventWriter(c.To) // its headers
		c.head(r)
		r.Status = http.StatusOK
		c.To.WriteHeader(http.StatusOK)
	}
	c.Write(data)
	c.Flush()
}

func (c *Writer) head(r *ledger.Record) {
	if r.Placement != "" {
		c.To.Header().Set(HeaderPlacement, r.Placement)
	}
}

// Whole writes an answer that is no stream.
func (c *Writer) Whole(data []byte, r *ledger.Record, l ledger.Latency) {
	header := c.To.Header()
	header.Set("Content-Type", "application/json")
	header.Set("Content-Length", fmt.Sprint(len(data)))
	header.Set("Server-Timing", serverTiming(l))
	if r.ForcedThinkEnd != "" {
		header.Set(headerForcedEnd, r.ForcedThinkEnd)
	}
	c.head(r)
	c.Write(data)
	c.Flush() // the client need not wait for what is left to be recorded
}

// serverTiming is latency in the form that browsers show.
func serverTiming(l ledger.Latency) string {
	var parts []string
	for _, part := range []struct {
		name string
		ms   float64
	}{{"queue", l.QueueMs}, {"prefill", l.PrefillMs}, {"handoff", l.HandoffMs}, {"total", l.TotalMs}} {
		if part.ms > 0 {
			parts = append(parts, fmt.Sprintf("%s;dur=%.3f", part.name, part.ms))
		}
	}
	return strings.Join(parts, ", ")
}

// Fault tells of a problem: as a response, or as an event where one has begun.
func (c *Writer) Fault(problem *openai.Error, r *ledger.Record) {
	if c.started {
		c.Events(openai.AppendEvent(nil, problem.JSON()), r)
		return
	}
	c.Renew()
	c.head(r)
	problem.Write(c.To)
}

// WriteJSON answers with a value, for people to read.
func WriteJSON(w http.ResponseWriter, status int, v any) {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		status, data = http.StatusInternalServerError, []byte(`{"error":"`+err.Error()+`"}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(data, '\n')) // the client may have gone
}
