package history

import (
	"encoding/hex"
	"fmt"
	"sync"
	"time"

	"meridian/kv"
	"meridian/member/trust"
	"meridian/move/transceiver/handoff"
	"meridian/see/ledger"
	"meridian/see/telemetry"
)

// Spans of one request, each made of a record when what it tells of is over:
//
//	meridian.request                     the gateway: Served
//	├─ meridian.queue                    waiting in the gateway
//	├─ meridian.prefill                  a leg to an engine: Asked
//	│   └─ meridian.offer                the agent of the prefill engine
//	└─ meridian.decode, meridian.resume
//	    └─ meridian.handoff              the agent of the decode engine
//	        ├─ meridian.handoff.data …   its stages
//	        └─ meridian.flow             what moved between two ranks

// RequestSpans tells of a request and of its legs; none where it is not sampled.
func RequestSpans(r *ledger.Record) []telemetry.Span {
	if r.Trace == nil || !r.Trace.Sampled || r.Trace.Span == "" {
		return nil
	}
	trace, own, parent := traceID(r.Trace.ID), spanID(r.Trace.Span), spanID(r.Trace.Parent)
	after := func(milliseconds float64) time.Time {
		return r.Began.Add(time.Duration(milliseconds * float64(time.Millisecond)))
	}
	l := r.Latency
	root := telemetry.Span{
		Trace: trace, ID: own, Parent: parent, Name: "meridian.request", Kind: telemetry.Served, Start: r.Began, End: after(l.TotalMs),
		Attributes: map[string]any{
			"meridian.request.id": r.ID, "meridian.outcome": r.Outcome, "url.path": r.Endpoint, "http.response.status_code": r.Status,
			"gen_ai.request.model": r.Model, "gen_ai.usage.input_tokens": r.PromptTokens, "gen_ai.usage.output_tokens": r.OutputTokens,
			"meridian.think_tokens": r.ThinkTokens, "meridian.placement": r.Placement, "meridian.resumed": r.Resumed, "meridian.stream": r.Stream,
		},
		Problem: r.Problem,
	}
	event := func(kind string, at float64) {
		if at > 0 {
			root.Events = append(root.Events, telemetry.SpanEvent{Name: "meridian.phase_event", At: after(at), Attributes: map[string]any{"kind": kind}})
		}
	}
	event("first_token", l.TTFTMs)
	if l.TTOTMs > 0 {
		event("exit_think", l.TTFVTMs-l.TTOTMs)
	}
	event("first_visible_token", l.TTFVTMs)
	event("complete", l.TotalMs)
	spans := []telemetry.Span{root}
	if l.QueueMs > 0 {
		spans = append(spans, telemetry.Span{Trace: trace, ID: telemetry.NewSpanID(), Parent: own, Name: "meridian.queue", Start: r.Began, End: after(l.QueueMs)})
	}
	for _, leg := range r.Legs {
		if leg.Span == "" {
			continue
		}
		spans = append(spans, telemetry.Span{
			Trace: trace, ID: spanID(leg.Span), Parent: own, Name: "meridian." + leg.Kind, Kind: telemetry.Asked, Start: after(leg.StartMs), End: after(leg.StartMs + leg.Ms),
			Attributes: map[string]any{
				"meridian.engine": leg.Engine, "meridian.transfer.id": leg.Transfer, "http.response.status_code": leg.Status, "meridian.kv": leg.KV,
				"meridian.kv_reason": leg.KVReason, "gen_ai.usage.output_tokens": leg.Tokens,
			},
			Problem: leg.Problem,
		})
	}
	return spans
}

// maxFlowSpans bounds how many pairs of ranks a trace tells of: the largest engines
// have thousands, and the record has them all.
const maxFlowSpans = 256

// handOffSpans tells of one side of a hand-off, below the leg that asked for it.
func handOffSpans(r *handoff.Record, leg trust.Trace, agent string) []telemetry.Span {
	ended := time.UnixMicro(r.EndedUnixUs)
	at := func(stage handoff.Instant) time.Time {
		return ended.Add(-time.Duration(r.Stages.Ended-stage) * time.Microsecond)
	}
	name := "meridian.handoff"
	if r.As == handoff.Source {
		name = "meridian.offer"
	}
	root := telemetry.Span{
		Trace: leg.ID, ID: telemetry.NewSpanID(), Parent: leg.Span, Name: name, Start: at(r.Stages.Begun), End: ended, Problem: r.Problem,
		Attributes: map[string]any{
			"meridian.transfer.id": r.Transfer.String(), "meridian.agent": agent, "meridian.engine": r.Engine, "meridian.peer": r.Peer, "meridian.peer.engine": r.PeerEngine,
			"meridian.tokens": r.Tokens, "meridian.bytes": r.Bytes, "meridian.source_ranks": r.SrcRanks, "meridian.destination_ranks": r.DstRanks,
			"meridian.retries": r.Retries, "meridian.push": r.Push, "meridian.promised": r.Promised,
		},
	}
	spans := []telemetry.Span{root}
	child := func(name string, from, to time.Time, attributes map[string]any) {
		spans = append(spans, telemetry.Span{Trace: leg.ID, ID: telemetry.NewSpanID(), Parent: root.ID, Name: name, Start: from, End: to, Attributes: attributes})
	}
	s := r.Stages
	for _, stage := range []struct {
		name     string
		from, to handoff.Instant
	}{{"handshake", s.Begun, s.Met}, {"plan", s.Met, s.Planned}, {"prepare", s.Planned, s.Moving}, {"data", s.Moving, s.Moved}, {"verify", s.Moved, s.Ended}} {
		if stage.from > 0 && stage.to >= stage.from {
			child(name+"."+stage.name, at(stage.from), at(stage.to), nil)
		}
	}
	flows := 0
	for _, f := range r.Flows {
		if f.Fabric == "" || s.Moving == 0 || flows == maxFlowSpans { // who was read from knows what was planned only
			continue
		}
		flows++
		// How long it took is recorded, and it began with the data.
		child("meridian.flow", at(s.Moving), at(s.Moving).Add(time.Duration(f.Micros)*time.Microsecond), map[string]any{
			"meridian.flow": fmt.Sprintf("%d → %d", f.Src, f.Dst), "meridian.source_rank": fmt.Sprint(f.Src), "meridian.destination_rank": fmt.Sprint(f.Dst),
			"meridian.bytes": f.Bytes, "meridian.fabric": f.Fabric, "meridian.transfers": f.Attempts,
		})
	}
	return spans
}

// traceID and spanID read what a gateway wrote; of what cannot be read, which is of
// a file that was changed by hand, they are zeros.
func traceID(text string) (id [16]byte) {
	if b, err := hex.DecodeString(text); err == nil && len(b) == len(id) {
		copy(id[:], b)
	}
	return id
}

func spanID(text string) (id [8]byte) {
	if b, err := hex.DecodeString(text); err == nil && len(b) == len(id) {
		copy(id[:], b)
	}
	return id
}

// askedLegs remembers which hand-offs of this agent's engines are of which request and
// part of which trace, until their records come. Its zero value is ready.
type askedLegs struct {
	mu   sync.Mutex // protects what follows
	legs map[askedLeg]trust.Leg
	ring []askedLeg // in the order in which they came, the oldest at next
	next int
}

type askedLeg struct {
	transfer kv.ID
	as       handoff.Role
}

// maxAskedLegs is more than an agent has at a time; of hand-offs that never end
// the oldest are forgotten.
const maxAskedLegs = 4096

func (t *askedLegs) add(leg trust.Leg) {
	key := askedLeg{transfer: leg.ID, as: handoff.Destination}
	if leg.Kind == trust.LegPrefill {
		key.as = handoff.Source
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.legs == nil {
		t.legs = make(map[askedLeg]trust.Leg)
	}
	if _, had := t.legs[key]; !had {
		if len(t.ring) < maxAskedLegs {
			t.ring = append(t.ring, key)
		} else {
			delete(t.legs, t.ring[t.next])
			t.ring[t.next] = key
			t.next = (t.next + 1) % maxAskedLegs
		}
	}
	t.legs[key] = leg
}

// take is the leg of a hand-off that has ended.
func (t *askedLegs) take(r *handoff.Record) (trust.Leg, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	key := askedLeg{r.Transfer, r.As}
	leg, found := t.legs[key]
	delete(t.legs, key)
	return leg, found
}
