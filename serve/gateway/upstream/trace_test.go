package upstream

import (
	"net/http"
	"strings"
	"testing"

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
	sent := func(own bool, fraction float64, h http.Header) (http.Header, trust.Trace) {
		trace := TraceOf(id, &http.Request{Header: h}, own, fraction)
		leg, out := trace.Leg(), http.Header{}
		trace.onTo(out, leg)
		return out, leg
	}
	out, leg := sent(false, 0, came)
	if out.Get(headerTraceparent) != came.Get(headerTraceparent) || out.Get(headerTracestate) != "a=1,b=2" || leg != (trust.Trace{}) {
		t.Errorf("without spans of its own: %v, %v", out, leg)
	}
	if out, leg := sent(false, 0, http.Header{}); len(out) > 0 || leg != (trust.Trace{}) {
		t.Errorf("of nothing came %v, %v", out, leg)
	}
	out, leg = sent(true, 0, came)
	if want := "00-" + standardTrace + "-" + SpanOf(leg) + "-01"; out.Get(headerTraceparent) != want || !leg.Sampled || SpanOf(leg) == standardSpan {
		t.Errorf("%v, want %s", out, want)
	}
	if out, leg := sent(true, 0, http.Header{}); leg.Sampled || !strings.HasPrefix(out.Get(headerTraceparent), "00-"+id.String()+"-") || !strings.HasSuffix(out.Get(headerTraceparent), "-00") {
		t.Errorf("what is not sampled: %v, %v", out, leg)
	}
	if _, leg := sent(true, 1, http.Header{}); !leg.Sampled || leg.ID != id {
		t.Errorf("where all are: %v", leg)
	}
}
