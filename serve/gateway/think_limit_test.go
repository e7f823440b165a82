package gateway

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"meridian/see/ledger"
	"meridian/serve/gateway/thought"
	"meridian/serve/openai"
)

var testEfforts = map[string]int{"minimal": 10, "low": 20, "medium": 50, "high": 80, "xhigh": 100, "max": 100}

// All that clients say of how long a thought may be comes to one number.
func TestThinkLimit(t *testing.T) {
	const none = -1
	for members, want := range map[string]int{
		``:                           none,
		`"max_think_tokens":7`:       7,
		`"max_think_tokens":0`:       0,
		`"max_think_tokens":null`:    none,
		`"thinking_token_budget":9`:  9,
		`"thinking_token_budget":-1`: none,
		`"thinking_token_budget":-1,"reasoning_effort":"low"`:                         none,
		`"thinking_token_budget":9,"max_think_tokens":7`:                              7,
		`"vllm_xargs":{"meridian_max_think_tokens":5,"a":"b"}`:                        5,
		`"reasoning_effort":"none"`:                                                   0,
		`"reasoning_effort":"minimal"`:                                                10,
		`"reasoning_effort":"low"`:                                                    20,
		`"reasoning_effort":"medium"`:                                                 50,
		`"reasoning_effort":"high"`:                                                   80,
		`"reasoning_effort":"xhigh"`:                                                  100,
		`"reasoning_effort":"max"`:                                                    100,
		`"reasoning_effort":null`:                                                     none,
		`"reasoning_effort":"high","max_think_tokens":7`:                              7,
		`"chat_template_kwargs":{"enable_thinking":false}`:                            0,
		`"chat_template_kwargs":{"thinking": false}`:                                  0,
		`"chat_template_kwargs":{"enable_thinking":true,"x":1}`:                       none,
		`"chat_template_kwargs":{"enable_thinking":false},"max_think_tokens":7`:       7,
		`"chat_template_kwargs":{"reasoning_effort":"low"}`:                           20,
		`"chat_template_kwargs":{"reasoning_effort":"none"}`:                          0,
		`"chat_template_kwargs":{"reasoning_effort":"low"},"reasoning_effort":"high"`: 80,
		`"chat_template_kwargs":{"reasoning_effort":"low"},"reasoning_effort":null`:   20,
		`"chat_template_kwargs":{"reasoning_effort":"no_think"}`:                      none,
		`"chat_template_kwargs":{"reasoning_effort":0.5}`:                             none,
		`"chat_template_kwargs":{"reasoning_effort":null,"thinking_budget":null}`:     none,
		`"chat_template_kwargs":{"thinking_budget":"512"}`:                            none,
		`"chat_template_kwargs":{"thinking_budget":512.0}`:                            none,
		`"chat_template_kwargs":{"thinking_budget":1.5}`:                              none,
		`"chat_template_kwargs":{"thinking_budget":true}`:                             none,
		`"chat_template_kwargs":{"thinking_budget":[6]}`:                              none,
		`"chat_template_kwargs":{"thinking_budget":"512","reasoning_effort":"low"}`:   20,
		`"chat_template_kwargs":{"reasoning_effort":true}`:                            none,
		`"chat_template_kwargs":{"reasoning_effort":["low"]}`:                         none,
		`"chat_template_kwargs":{"reasoning_effort":"a word of the template's that is longer than all of those there are"}`: none,
		`"chat_template_kwargs":{"reasoning_effort":true,"thinking_budget":6}`:                                              6,
		`"chat_template_kwargs":{"thinking_budget":6}`:                                                                      6,
		`"chat_template_kwargs":{"thinking_budget":0}`:                                                                      0,
		`"chat_template_kwargs":{"thinking_budget":-1}`:                                                                     none,
		`"chat_template_kwargs":{"thinking_budget":-1,"reasoning_effort":"low"}`:                                            none,
		`"chat_template_kwargs":{"thinking_budget":6,"reasoning_effort":"low"}`:                                             6,
		`"chat_template_kwargs":{"thinking_budget":6},"max_think_tokens":7`:                                                 6,
		`"chat_template_kwargs":{"thinking_budget":6},"thinking_token_budget":5`:                                            5,
		`"chat_template_kwargs":{"thinking_budget":6,"enable_thinking":false}`:                                              6,
		`"chat_template_kwargs":{"reasoning_effort":"high","enable_thinking":false}`:                                        0,
		`"chat_template_kwargs":{"thinking_budget":6,"other":{"thinking_budget":1,"thinking_budget":2}}`:                    6,
	} {
		body := strings.TrimSuffix(`{"messages":[],`+members, ",") + `}`
		c := parsedRequest(t, openai.PathChat, body)
		got := none
		if limit := c.wish.limit(c.thinksNot(), testEfforts); limit != nil {
			got = *limit
		}
		if got != want {
			t.Errorf("%s: %d, want %d", members, got, want)
		}
	}
	for members, want := range map[string]string{
		`"max_think_tokens":-1`:                                            "max_think_tokens is -1",
		`"max_think_tokens":"x"`:                                           "max_think_tokens",
		`"max_think_tokens":1.5`:                                           "max_think_tokens",
		`"max_think_tokens":1e99`:                                          "max_think_tokens",
		`"max_think_tokens":99999999999`:                                   "max_think_tokens is 99999999999",
		`"thinking_token_budget":-2`:                                       "from -1 to",
		`"thinking_token_budget":true`:                                     "thinking_token_budget",
		`"reasoning_effort":"huge"`:                                        `there are none, minimal, low, medium, high, xhigh, max`,
		`"reasoning_effort":3`:                                             "reasoning_effort",
		`"Reasoning_Effort":"low"`:                                         `write "reasoning_effort"`,
		`"vllm_xargs":{"meridian_max_think_tokens":"5"}`:                   "meridian_max_think_tokens in vllm_xargs",
		`"vllm_xargs":{"meridian_max_think_tokens":-5}`:                    "meridian_max_think_tokens is -5",
		`"chat_template_kwargs":{"thinking_budget":-2}`:                    "thinking_budget is -2",
		`"chat_template_kwargs":{"thinking_budget":99999999999}`:           "thinking_budget is 99999999999",
		`"chat_template_kwargs":{"thinking_budget":99999999999999999999}`:  "thinking_budget is 9",
		`"chat_template_kwargs":{"thinking_budget":-99999999999999999999}`: "thinking_budget is -9",
		`"chat_template_kwargs":{"thinking_budget":6,"thinking_budget":7}`: "thinking_budget stands twice",
	} {
		if _, fault := parseClientRequest(openai.PathChat, []byte(`{"messages":[],`+members+`}`)); fault == nil || fault.Status != http.StatusBadRequest || !strings.Contains(fault.Message, want) {
			t.Errorf("%s: %v", members, fault)
		}
	}
	// A completion has no template.
	for _, members := range []string{`"thinking_budget":-2`, `"thinking_budget":6,"thinking_budget":7`, `"reasoning_effort":"low"`} {
		if c := parsedRequest(t, openai.PathCompletions, `{"prompt":"x","chat_template_kwargs":{`+members+`}}`); c.wish.limit(false, testEfforts) != nil {
			t.Errorf("%s limits a completion", members)
		}
	}
}

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
			if got := strings.Count(string(r.body), `"forced_end":"hard_cap"`); got != boolInt(isTold) {
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
