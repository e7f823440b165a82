package serving

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"meridian/prove/bench"
)

func TestPoliciesOptions(t *testing.T) {
	good := PoliciesOptions{Model: "tiny", Policies: []string{"pascal"}, Requests: 4, Thought: 64, Load: 1, Blocks: 16, MaxRunning: 4, Rounds: 1}
	if err := good.validate(); err != nil {
		t.Error(err)
	}
	for name, change := range map[string]func(*PoliciesOptions){
		"no rounds": func(o *PoliciesOptions) { o.Rounds = 0 }, "one request": func(o *PoliciesOptions) { o.Requests = 1 }, "short": func(o *PoliciesOptions) { o.Thought = 2 },
		"ended early": func(o *PoliciesOptions) { o.Thought, o.Blocks = 512, 100 }, "no load": func(o *PoliciesOptions) { o.Load = 0 },
		"none runs": func(o *PoliciesOptions) { o.MaxRunning = 0 }, "no room": func(o *PoliciesOptions) { o.Blocks = 11 },
	} {
		o := good
		change(&o)
		if err := o.validate(); !errors.Is(err, bench.ErrOptions) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The same seed makes the same load and, round by round, the same arrivals.
func TestMixedLoad(t *testing.T) {
	one, again := mixedLoad(7, 40, 64), mixedLoad(7, 40, 64)
	for i, q := range one {
		if !slices.Equal(q.prompt, again[i].prompt) || q.think != again[i].think || q.answer != again[i].answer {
			t.Fatalf("request %d differs", i)
		}
		if q.long != (i%2 == 0) || q.long != (q.think >= 32) || q.think > 64 || len(q.prompt) < 16 || len(q.prompt)+q.tokens() > 64+128 {
			t.Errorf("request %d: %d of prompt, %d of thought, %d of answer", i, len(q.prompt), q.think, q.answer)
		}
	}
	due := arrivals(7, 1, 1000, time.Millisecond)
	if !slices.Equal(due, arrivals(7, 1, 1000, time.Millisecond)) || slices.Equal(due, arrivals(7, 2, 1000, time.Millisecond)) || !slices.IsSorted(due) {
		t.Error("arrivals are not those of their round")
	}
	if mean := due[999] / 1000; mean < 900*time.Microsecond || mean > 1100*time.Microsecond {
		t.Errorf("the mean gap is %v", mean)
	}
}

// What a client counts: from the end of the thought, and to the first token behind it.
func TestNoteMixed(t *testing.T) {
	q := &mixedRequest{think: 3, answer: 4} // <think> 1 2 3 </think> 5 6 7 8
	for name, c := range map[string]struct {
		chunks            []int
		ttfvt, ttot, took time.Duration
	}{
		"one by one": {[]int{1, 1, 1, 1, 1, 1, 1, 1, 1}, 6, 1, 9},
		"together":   {[]int{4, 2, 3}, 2, 0, 3},
		"at its end": {[]int{5, 0, 4}, 3, 2, 3},
	} {
		var a mixedAnswer
		for i, n := range c.chunks {
			a.note(q, make([]uint32, n), time.Duration(i+1))
		}
		if len(a.tokens) != q.tokens() || a.ttfvt != c.ttfvt || a.ttot != c.ttot || a.took != c.took {
			t.Errorf("%s: %+v", name, a)
		}
	}
}

func TestAskMixed(t *testing.T) {
	wrong := false
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var q struct {
			Most int `json:"max_tokens"`
		}
		if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
			t.Error(err)
		}
		if wrong {
			q.Most--
		}
		for i := range q.Most {
			fmt.Fprintf(w, "data: {\"choices\":[{\"index\":0,\"text\":\"x\",\"token_ids\":[%d]}]}\n\n", i)
			w.(http.Flusher).Flush()
		}
		fmt.Fprint(w, "data: [DONE]\n\n")
	}))
	defer server.Close()
	load := mixedLoad(3, 4, 16)
	due := arrivals(3, 1, 4, time.Millisecond)
	answers, err := sendMixed(context.Background(), server.Client(), server.URL, "salt", load, due)
	if err != nil {
		t.Fatal(err)
	}
	for i, a := range answers {
		if a.ttfvt < a.ttot || a.took < a.ttfvt || len(a.tokens) != load[i].tokens() {
			t.Errorf("%d: %+v", i, a)
		}
	}
	found := summed(load, answers, due)
	if len(found.latencies[policyAll][0]) != 4 || len(found.latencies[policyShort][1]) != 2 || len(found.latencies[policyLong][0]) != 2 || !(found.rate > 0) {
		t.Errorf("%+v", found)
	}
	if err := sameAnswers(answers, answers); err != nil {
		t.Error(err)
	}
	other := slices.Clone(answers)
	other[2].tokens = slices.Clone(other[2].tokens)
	other[2].tokens[5]++
	if err := sameAnswers(answers, other); err == nil || !strings.Contains(err.Error(), "request 2") {
		t.Error(err)
	}
	wrong = true
	if _, err := sendMixed(context.Background(), server.Client(), server.URL, "salt", load, due); err == nil || !strings.Contains(err.Error(), "tokens, not") {
		t.Error(err)
	}
}

func TestPolicyRows(t *testing.T) {
	round := func(ms int, rate float64, preempted uint64) policyRound {
		one := []time.Duration{time.Duration(ms) * time.Millisecond}
		both := [2][]time.Duration{one, one}
		return policyRound{latencies: map[string][2][]time.Duration{policyAll: both, policyShort: both, policyLong: both}, rate: rate, preempted: preempted}
	}
	rows := policyRows([]string{"stock", "pascal"}, []map[string]policyRound{
		{"stock": round(100, 1000, 3), "pascal": round(50, 900, 1)},
		{"stock": round(200, 500, 5), "pascal": round(120, 500, 0)},
		{"stock": round(100, 1000, 4), "pascal": round(80, 1000, 2)},
	})
	if len(rows) != 6 || rows[3].Policy != "pascal" || rows[3].Who != policyAll || rows[4].Rate != nil {
		t.Fatalf("%+v", rows)
	}
	// Nothing is divided by what is as good as nothing.
	together := []map[string]policyRound{{"stock": round(0, 1000, 0), "pascal": round(5, 1000, 0)}}
	if f := policyRows([]string{"stock", "pascal"}, together)[3].TTOT50; f.Ratio != nil || f.String() != "5.0" {
		t.Errorf("%v", f)
	}
	var text strings.Builder
	if err := (&PoliciesReport{Rows: rows}).WriteText(&text); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"pascal  all       80.0, × 0.60 [0.50–0.80]", "900, × 1.00 [0.90–1.00]", "4 [3–5]", "1 [0–2]"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("there is no %q in\n%s", want, text.String())
		}
	}
}
