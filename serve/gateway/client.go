package gateway

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"meridian/see/ledger"
	"meridian/serve/openai"
)

// errSlow: the client does not take what it asked for.
var errSlow = errors.New("the client did not read its answer in time")

// client is who asked. What is written to it must be taken within a time, piece
// by piece: one that reads slowly or not at all is left, and its engine freed.
type client struct {
	to      http.ResponseWriter
	control *http.ResponseController
	timeout time.Duration
	renewed time.Time // when the time was last given
	http2   bool
	started bool  // of a stream: its head is sent
	err     error // the first that came of writing
}

func newClient(w http.ResponseWriter, r *http.Request, timeout time.Duration) *client {
	c := &client{to: w, control: http.NewResponseController(w), timeout: timeout, http2: r.ProtoMajor == 2}
	c.rest()
	return c
}

// pieceBytes is what a client must take within its time.
const pieceBytes = 64 << 10

func (c *client) write(data []byte) {
	for len(data) > 0 && c.err == nil {
		c.renew()
		piece := data[:min(len(data), pieceBytes)]
		_, err := c.to.Write(piece)
		c.fail(err)
		data = data[len(piece):]
	}
}

// renew gives the client its time anew, not more often than that makes a
// difference.
func (c *client) renew() {
	if now := time.Now(); now.Sub(c.renewed) > c.timeout/8 {
		c.renewed = now
		c.fail(c.control.SetWriteDeadline(now.Add(c.timeout)))
	}
}

// flush sends what was written.
func (c *client) flush() {
	if c.err == nil {
		c.fail(c.control.Flush())
		c.rest()
	}
}

// rest takes the time back while nothing is written: over HTTP/2 a stream is ended
// when its time has passed, whether or not anything waits to be taken.
func (c *client) rest() {
	if c.http2 {
		c.renewed = time.Time{}
		c.fail(c.control.SetWriteDeadline(time.Time{}))
	}
}

func (c *client) fail(err error) {
	switch {
	case err == nil || c.err != nil:
	case errors.Is(err, os.ErrDeadlineExceeded):
		c.err = fmt.Errorf("%w: %v", errSlow, c.timeout)
	case errors.Is(err, http.ErrNotSupported): // a recorder in a test has no deadlines
	default:
		c.err = err
	}
}

// events writes a part of a stream, after its head.
func (c *client) events(data []byte, r *ledger.Record) {
	if !c.started {
		c.started = true
		openai.NewEventWriter(c.to) // its headers
		c.head(r)
		r.Status = http.StatusOK
		c.to.WriteHeader(http.StatusOK)
	}
	c.write(data)
	c.flush()
}

func (c *client) head(r *ledger.Record) {
	if r.Placement != "" {
		c.to.Header().Set(headerPlacement, r.Placement)
	}
}

// whole writes an answer that is no stream.
func (c *client) whole(data []byte, r *ledger.Record, l ledger.Latency) {
	header := c.to.Header()
	header.Set("Content-Type", "application/json")
	header.Set("Content-Length", fmt.Sprint(len(data)))
	header.Set("Server-Timing", serverTiming(l))
	if r.ForcedThinkEnd != "" {
		header.Set(headerForcedEnd, r.ForcedThinkEnd)
	}
	c.head(r)
	c.write(data)
	c.flush() // the client need not wait for what is left to be recorded
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

// fault tells of a problem: as a response, or as an event where one has begun.
func (c *client) fault(problem *openai.Error, r *ledger.Record) {
	if c.started {
		c.events(openai.AppendEvent(nil, problem.JSON()), r)
		return
	}
	c.renew()
	c.head(r)
	problem.Write(c.to)
}
