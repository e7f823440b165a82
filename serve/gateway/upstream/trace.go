package upstream

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"math"
	"net/http"
	"strings"

	"meridian/kv"
	"meridian/member/trust"
	"meridian/see/ledger"
)

// Headers of W3C's trace context.
const (
	headerTraceparent = "Traceparent"
	headerTracestate  = "Tracestate"
	maxTracestate     = 512 // what the standard wants passed on at least
)

// Trace is what becomes of a request's trace.
type Trace struct {
	Record *ledger.Trace // nil: there is none
	own    bool          // spans of this gateway are part of it
	client [2]string     // the headers that came, to be passed on where own is false
}

// TraceOf says which trace a request belongs to: the client's, or else one of its
// own, whose id is the request's. The client says whether it is sampled; a trace of
// our own is by its id, so that every gateway would say the same.
func TraceOf(id kv.ID, r *http.Request, own bool, fraction float64) Trace {
	t := Trace{own: own}
	var came bool
	if t.Record, came = parseTraceparent(r); came {
		if state := strings.Join(r.Header.Values(headerTracestate), ","); len(state) <= maxTracestate {
			t.client[1] = state
		}
		t.client[0] = r.Header.Get(headerTraceparent)
	}
	if !t.own {
		return t
	}
	if !came {
		share := float64(binary.BigEndian.Uint64(id[8:])) / math.MaxUint64
		t.Record = &ledger.Trace{ID: id.String(), Sampled: share < fraction}
	}
	span := newSpan()
	t.Record.Span = hex.EncodeToString(span[:])
	return t
}

// parseTraceparent reads where a client's request stands in a trace. What does not
// keep to the standard is as if it had not come.
func parseTraceparent(r *http.Request) (*ledger.Trace, bool) {
	values := r.Header.Values(headerTraceparent)
	if len(values) != 1 {
		return nil, false
	}
	parts := strings.Split(strings.TrimSpace(values[0]), "-")
	// Later versions may add to the end; none is ff, and this one adds nothing.
	if len(parts) < 4 || !isHex(parts[0], 2) || parts[0] == "ff" || parts[0] == "00" && len(parts) > 4 || len(values[0]) > maxTracestate {
		return nil, false
	}
	id, span, flags := parts[1], parts[2], parts[3]
	if !isHex(id, 32) || !isHex(span, 16) || !isHex(flags, 2) || strings.Trim(id, "0") == "" || strings.Trim(span, "0") == "" {
		return nil, false
	}
	bits, err := hex.DecodeString(flags)
	return &ledger.Trace{ID: id, Parent: span, Sampled: err == nil && bits[0]&1 == 1}, true
}

// isHex tells whether text has that many digits, none in capitals.
func isHex(text string, digits int) bool {
	return len(text) == digits && strings.Trim(text, "0123456789abcdef") == ""
}

func newSpan() (span [8]byte) {
	for span == [8]byte{} {
		rand.Read(span[:])
	}
	return span
}

// Leg is where one leg of the request stands; zero where this gateway has no part in
// its trace, or it is not sampled.
func (t *Trace) Leg() trust.Trace {
	if !t.own || !t.Record.Sampled {
		return trust.Trace{}
	}
	id, err := hex.DecodeString(t.Record.ID)
	if err != nil {
		panic(err) // it was checked, or is our own
	}
	return trust.Trace{ID: [16]byte(id), Span: newSpan(), Sampled: true}
}

// SpanOf is a leg's span as records have it.
func SpanOf(t trust.Trace) string {
	if t == (trust.Trace{}) {
		return ""
	}
	return hex.EncodeToString(t.Span[:])
}

// onTo puts the trace into a request to an engine, whose spans then join those of the
// leg; where this gateway has none, those of the client.
func (t *Trace) onTo(h http.Header, leg trust.Trace) {
	switch {
	case leg != (trust.Trace{}):
		h.Set(headerTraceparent, "00-"+t.Record.ID+"-"+SpanOf(leg)+"-01")
	case t.client[0] != "" && !t.own:
		h.Set(headerTraceparent, t.client[0])
	case t.Record != nil: // not sampled: so are the engine's
		h.Set(headerTraceparent, "00-"+t.Record.ID+"-"+t.Record.Span+"-00")
	}
	if t.client[1] != "" {
		h.Set(headerTracestate, t.client[1])
	}
}
