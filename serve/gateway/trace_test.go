package gateway

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"meridian/kv"
	"meridian/member/trust"
	"meridian/see/ledger"
)

const (
	standardTrace = "0af7651916cd43dd8448eb211c80319c"
	standardSpan  = "b7ad6b7169203331"
)

func TestParseTraceparent(t *testing.T) {
	for text, want := range map[string]*ledger.Trace{
		"00-" + standardTrace + "-" + standardSpan + "-01":       {ID: standardTrace, Parent: standardSpan, Sampled: true},
		"00-" + standardTrace + "-" + standardSpan + "-00":       {ID: standardTrace, Parent: standardSpan},
		"00-" + standardTrace + "-" + standardSpan + "-03":       {ID: standardTrace, Parent: standardSpan, Sampled: true},
		"cc-" + standardTrace + "-" + standardSpan + "-01-later": {ID: standardTrace, Parent: standardSpan, Sampled: true},
		"": nil,
		"00-" + standardTrace + "-" + standardSpan:                                      nil,
		"00-" + standardTrace + "-" + standardSpan + "-01-later":                        nil,
		"ff-" + standardTrace + "-" + standardSpan + "-01":                              nil,
		"00-" + strings.ToUpper(standardTrace) + "-" + standardSpan:                     nil,
		"00-" + strings.Repeat("0", 32) + "-" + standardSpan + "-01":                    nil,
		"00-" + standardTrace + "-" + strings.Repeat("0", 16) + "-01":                   nil,
		"00-" + standardTrace[1:] + "-" + standardSpan + "-01":                          nil,
		"00-" + standardTrace + "-" + standardSpan + "-zz":                              nil,
		"cc-" + standardTrace + "-" + standardSpan + "-01-" + strings.Repeat("x", 1000): nil,
	} {
		got, came := parseTraceparent(&http.Request{Header: http.Header{headerTraceparent: {text}}})
		if came != (want != nil) || came && *got != *want {
			t.Errorf("%q is %+v, %v", text, got, came)
		}
	}
	valid := "00-" + standardTrace + "-" + standardSpan + "-01"
	if _, came := parseTraceparent(&http.Request{Header: http.Header{headerTraceparent: {valid, valid}}}); came {
		t.Error("two of them are taken for one")
	}
}

// Who exports no spans passes on what came; who does puts the leg's own in its place.
func TestTraceGoesOnToEngines(t *testing.T) {
	came := http.Header{headerTraceparent: {"00-" + standardTrace + "-" + standardSpan + "-01"}, headerTracestate: {"a=1", "b=2"}}
	id := kv.ID{15: 1}
	sent := func(o Options, h http.Header) (http.Header, trust.Trace) {
		g := &Gateway{options: o}
		trace := g.traceOf(id, &http.Request{Header: h})
		leg, out := trace.leg(), http.Header{}
		trace.onTo(out, leg)
		return out, leg
	}
	out, leg := sent(Options{}, came)
	if out.Get(headerTraceparent) != came.Get(headerTraceparent) || out.Get(headerTracestate) != "a=1,b=2" || leg != (trust.Trace{}) {
		t.Errorf("without spans of its own: %v, %v", out, leg)
	}
	if out, leg := sent(Options{}, http.Header{}); len(out) > 0 || leg != (trust.Trace{}) {
		t.Errorf("of nothing came %v, %v", out, leg)
	}
	out, leg = sent(Options{Traces: true}, came)
	if want := "00-" + standardTrace + "-" + spanOf(leg) + "-01"; out.Get(headerTraceparent) != want || !leg.Sampled || spanOf(leg) == standardSpan {
		t.Errorf("%v, want %s", out, want)
	}
	if out, leg := sent(Options{Traces: true}, http.Header{}); leg.Sampled || !strings.HasPrefix(out.Get(headerTraceparent), "00-"+id.String()+"-") || !strings.HasSuffix(out.Get(headerTraceparent), "-00") {
		t.Errorf("what is not sampled: %v, %v", out, leg)
	}
	if _, leg := sent(Options{Traces: true, TraceFraction: 1}, http.Header{}); !leg.Sampled || leg.ID != id {
		t.Errorf("where all are: %v", leg)
	}
}

// Latencies of sampled requests show their trace, each in its bucket.
func TestExemplars(t *testing.T) {
	var c counters
	for trace, ms := range map[string]float64{"fast": 1.5, "slow": 1500, "never": 1e9} {
		c.observe(&ledger.Record{Trace: &ledger.Trace{ID: trace, Sampled: true}, Latency: ledger.Latency{TotalMs: ms}})
	}
	c.observe(&ledger.Record{Trace: &ledger.Trace{ID: "unseen"}, Latency: ledger.Latency{TotalMs: 1500}})
	c.observe(&ledger.Record{Latency: ledger.Latency{TotalMs: 1500}})
	d := c.phases[len(Phases)-1].snapshot()
	if d.Count != 5 || len(d.Exemplars) != 3 || d.Exemplars[0].Trace != "fast" || d.Exemplars[1].Trace != "slow" || d.Exemplars[1].Seconds != 1.5 || time.Since(d.Exemplars[2].At) > time.Hour {
		t.Errorf("%d samples, shown by %+v", d.Count, d.Exemplars)
	}
}
