package gateway

import (
	"encoding/json"
	"strings"
	"testing"

	"meridian/see/ledger"
	"meridian/serve/gateway/thought"
	"meridian/serve/openai"
)

var testEfforts = map[string]int{"minimal": 10, "low": 20, "medium": 50, "high": 80, "xhigh": 100, "max": 100}

// Each kind of engine is told in the member that it knows, and what the client wrote there
// stays.
func TestThinkLimitIsTold(t *testing.T) {
	for name, c := range map[string]struct {
		limit     thought.Limit
		reference bool
		members   string
		want      map[string]string // "" for none
	}{
		"a reference engine":  {thought.LimitNone, true, `,"reasoning_effort":"low"`, map[string]string{"max_think_tokens": "20", "thinking_token_budget": "", "reasoning_effort": `"low"`}},
		"in its own member":   {thought.LimitNone, true, `,"max_think_tokens":50,"thinking_token_budget":30`, map[string]string{"max_think_tokens": "50", "thinking_token_budget": "30"}},
		"who says nothing":    {thought.LimitBudget, true, ``, map[string]string{"max_think_tokens": "", "thinking_token_budget": ""}},
		"plain vLLM":          {thought.LimitNone, false, `,"max_think_tokens":5,"reasoning_effort":"low"`, map[string]string{"thinking_token_budget": "", "vllm_xargs": "", "max_think_tokens": "5"}},
		"vLLM with a parser":  {thought.LimitBudget, false, `,"reasoning_effort":"low"`, map[string]string{"thinking_token_budget": "20", "vllm_xargs": "", "max_think_tokens": ""}},
		"its own budget":      {thought.LimitBudget, false, `,"thinking_token_budget":3,"max_think_tokens":2`, map[string]string{"thinking_token_budget": "3"}},
		"vLLM with Meridian":  {thought.LimitXArgs, false, `,"max_think_tokens":5`, map[string]string{"vllm_xargs": `{"meridian_max_think_tokens":5}`, "thinking_token_budget": ""}},
		"beside others":       {thought.LimitXArgs, false, `,"max_think_tokens":5,"vllm_xargs":{"k":"v"}`, map[string]string{"vllm_xargs": `{"k":"v","meridian_max_think_tokens":5}`}},
		"and its own in them": {thought.LimitXArgs, false, `,"max_think_tokens":5,"vllm_xargs":{"meridian_max_think_tokens":9}`, map[string]string{"vllm_xargs": `{"meridian_max_think_tokens":9}`}},
	} {
		change := func(o *Options) {
			o.Efforts = testEfforts
			marked(func(m *thought.Markers) { m.Limit = c.limit })(o)
		}
		body := `{"model":"m","messages":[{"role":"user","content":"x"}],"max_tokens":2` + c.members + `}`
		got := make(map[string]json.RawMessage)
		if c.reference {
			cell := newCell(t, 0, 1, change)
			cell.post(openai.PathChat, body)
			for name, value := range cell.decode[0].seen()[0].body {
				got[name], _ = json.Marshal(value)
			}
		} else {
			d := newFakeVLLM(t)
			d.whole = `{"id":"1","choices":[]}`
			beforeVLLM(t, nil, []*fakeVLLM{d}, change).post(openai.PathChat, body)
			if err := json.Unmarshal([]byte(d.seen()[0]), &got); err != nil {
				t.Fatal(err)
			}
		}
		for member, want := range c.want {
			if string(got[member]) != want {
				t.Errorf("%s: %s is %q, want %q", name, member, got[member], want)
			}
		}
	}
}

// That an engine has ended a thought is in the usage, in the record, and in a header where
// that has not been sent.
func TestForcedEnds(t *testing.T) {
	cell := newCell(t, 0, 1, nil)
	ask := func(report, more string) (reply, *ledger.Record) {
		cell.decode[0].set(habits{spared: report})
		r := cell.post(openai.PathChat, chat("x", more+`,"max_think_tokens":4`))
		return r, cell.record(r)
	}
	const forced = `,"forced_think_end":"hard_cap"`
	for more, isStream := range map[string]bool{``: false, `,"stream":true,"stream_options":{"include_usage":true}`: true} {
		r, record := ask(forced, more)
		if strings.Count(string(r.body), `"forced_end":"hard_cap"`) != 1 || strings.Contains(string(r.body), "forced_think_end") {
			t.Errorf("%q: the client got %s", more, r.body)
		}
		if got := r.header.Get("X-Meridian-Forced-End"); (got == "hard_cap") == isStream {
			t.Errorf("%q: the header is %q", more, got)
		}
		if text := record.String(); record.ForcedThinkEnd != "hard_cap" || !strings.Contains(text, "thought: at most 4 tokens, ended by the engine: hard_cap") {
			t.Errorf("%q: the record is %s", more, text)
		}
		for _, other := range []string{``, `,"forced_think_end":"\u003cscript>"`} {
			r, record := ask(other, more)
			if strings.Contains(string(r.body), "forced") || record.ForcedThinkEnd != "" || r.header.Get("X-Meridian-Forced-End") != "" {
				t.Errorf("%q: a thought was not ended, and the client got %s", other, r.body)
			}
		}
	}
}

// vLLM is asked to tell of it only where Meridian ends its thoughts, tells it in its last chunk, and
// what it says there itself is the client's.
func TestForcedEndsOfVLLM(t *testing.T) {
	const usage = `"usage":{"prompt_tokens":1,"total_tokens":3,"completion_tokens":2}`
	for limit, isTold := range map[thought.Limit]bool{thought.LimitXArgs: true, thought.LimitBudget: false, thought.LimitNone: false} {
		d := newFakeVLLM(t)
		cell := beforeVLLM(t, nil, []*fakeVLLM{d}, marked(func(m *thought.Markers) { m.Limit = limit }))
		d.whole = `{"id":"1","choices":[{"index":0,"message":{"reasoning":"hm","content":"hi"},"finish_reason":"stop","stop_reason":"meridian_forced_end:hard_cap:17"}],` + usage + `}`
		d.stream = `data: {"id":"1","choices":[{"index":0,"delta":{"reasoning":"hm"}}]}` + "\n\n" +
			`data: {"id":"1","choices":[{"index":0,"delta":{"content":"hi"},"finish_reason":"stop","stop_reason":"meridian_forced_end:hard_cap:17"}]}` + "\n\n" +
			`data: {"id":"1","choices":[],` + usage + `}` + "\n\n" + "data: [DONE]\n\n"
		for more, isStream := range map[string]bool{``: false, `,"stream":true,"stream_options":{"include_usage":true}`: true} {
			r := cell.post(openai.PathChat, chat("x", more))
			if strings.Contains(string(r.body), "meridian_forced_end") || strings.Count(string(r.body), `"stop_reason":17`) != 1 {
				t.Errorf("%d%s: the client got %s", limit, more, r.body)
			}
			if got := strings.Count(string(r.body), `"forced_end":"hard_cap"`); got > 1 || (got == 1) != isTold {
				t.Errorf("%d%s: the usage tells it %d times: %s", limit, more, got, r.body)
			}
			if got := r.header.Get("X-Meridian-Forced-End"); (got == "hard_cap") != (isTold && !isStream) {
				t.Errorf("%d%s: the header is %q", limit, more, got)
			}
			record := cell.record(r)
			if (record.ForcedThinkEnd == "hard_cap") != isTold {
				t.Errorf("%d%s: the record is %s", limit, more, record)
			}
			bodies := d.seen()
			want := `"kv_transfer_params":{"meridian_request":"` + record.ID + `"}`
			if got := bodies[len(bodies)-1]; strings.Contains(got, want) != isTold {
				t.Errorf("%d%s: the engine got %s, want %s: %t", limit, more, got, want, isTold)
			}
		}
	}
}
