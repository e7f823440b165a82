package upstream

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"meridian/kv"
	"meridian/member/trust"
	"meridian/serve/gateway/lifecycle"
	"meridian/serve/gateway/request"
	"meridian/serve/gateway/roster"
	"meridian/serve/openai"
)

func parsedRequest(t *testing.T, path, body string) *request.Request {
	t.Helper()
	r, fault := request.Parse(path, []byte(body))
	if fault != nil {
		t.Fatal(fault)
	}
	return r
}

// A prefill leg asks for one token, and for nothing else that costs.
func TestLegs(t *testing.T) {
	a := parsedRequest(t, openai.PathChat, `{"model":"m","messages":[],"max_tokens":50,"min_tokens":5,"stream":true,"stream_options":{},"n":1,"tools":[{"x":1}],"resume_token_ids":[3]}`)
	l := Legs{Request: a, Key: &[32]byte{1}, Seed: 77}
	var prefill map[string]any
	if err := json.Unmarshal(l.Prefill(kv.ID{1}, trust.Trace{}, &roster.About{ID: "p0"}, false), &prefill); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]any{"max_tokens": 1.0, "max_completion_tokens": 1.0, "stream": false} {
		if prefill[name] != want {
			t.Errorf("%s is %v", name, prefill[name])
		}
	}
	for _, name := range []string{"stream_options", "min_tokens", "n", "resume_token_ids"} {
		if _, has := prefill[name]; has {
			t.Errorf("%s is there", name)
		}
	}
	if prefill["tools"] == nil {
		t.Error("tools are lost: the prompt would be another")
	}
	if params, _ := prefill["kv_transfer_params"].(map[string]any); params["meridian_leg"] == nil {
		t.Errorf("the gateway's word is not in %v", params)
	}
	l.ID = kv.ID{9}
	for version, want := range map[int]kv.ID{0: {}, 2: {}, trust.RequestLegVersion: l.ID, trust.LegVersion: l.ID} {
		opened, err := trust.OpenLeg(l.seal(trust.LegPrefill, kv.ID{1}, trust.Trace{}, &roster.About{ID: "p0", Legs: version}), *l.Key)
		if err != nil || kv.ID(opened.Request) != want {
			t.Errorf("for an agent that reads version %d: request %x, %v", version, opened.Request, err)
		}
	}
	if body := l.Prefill(kv.ID{1}, trust.Trace{}, &roster.About{ID: "10.0.0.3:8000", Nameless: true}, true); bytes.Contains(body, []byte("meridian_leg")) {
		t.Errorf("a word for an engine of unknown name, which its agent would refuse: %s", body)
	}
	var resumed map[string]any
	leg := DecodeLeg{Mode: lifecycle.ResumeExact, Tells: true, Sofar: []uint32{4, 5}}
	if err := json.Unmarshal(l.Decode(leg, &roster.About{ID: "d0", Kind: openai.KindMeridian}), &resumed); err != nil {
		t.Fatal(err)
	}
	if got, _ := json.Marshal(resumed["resume_token_ids"]); string(got) != "[3,4,5]" || resumed["seed"] != 77.0 || resumed["return_token_ids"] != true {
		t.Errorf("a leg that goes on: %v", resumed)
	}
	if body, left := l.Greedy(DecodeLeg{Prompt: []uint32{1}, Sofar: make([]uint32, 50)}, &roster.About{}); left {
		t.Errorf("nothing is left to generate, and the body is %s", body)
	}
}

// null is no limit, where saying nothing is one of 16 tokens.
func TestGreedyLimits(t *testing.T) {
	for _, test := range []struct {
		path, body string
		left       int // 0: it cannot go on
	}{
		{openai.PathCompletions, `{"prompt":"x"}`, 16 - 2},
		{openai.PathCompletions, `{"prompt":"x","max_tokens":null}`, 4096 - 3 - 2},
		{openai.PathCompletions, `{"prompt":"x","max_tokens":7}`, 7 - 2},
		{openai.PathChat, `{"messages":[]}`, 4096 - 3 - 2},
		{openai.PathChat, `{"messages":[],"max_tokens":9,"max_completion_tokens":null}`, 9 - 2},
		{openai.PathChat, `{"messages":[],"max_tokens":2}`, 0},
	} {
		l := Legs{Request: parsedRequest(t, test.path, test.body)}
		body, ok := l.Greedy(DecodeLeg{Prompt: []uint32{1, 2, 3}, Sofar: []uint32{4, 5}}, &roster.About{MaxContext: 4096})
		var leg struct {
			Max int `json:"max_tokens"`
		}
		if ok {
			if err := json.Unmarshal(body, &leg); err != nil {
				t.Fatal(err)
			}
		}
		if leg.Max != test.left {
			t.Errorf("%s: %d tokens are left, want %d", test.body, leg.Max, test.left)
		}
	}
	a := parsedRequest(t, openai.PathCompletions, `{"prompt":"x","max_tokens":null,"temperature":0,"stream":true}`)
	if mode, why := lifecycle.Resumable(a, openai.KindVLLM, 0); mode != lifecycle.ResumeNever || !strings.Contains(why, "how long its context is") {
		t.Errorf("without a limit and a context: %v, %q", mode, why)
	}
}

// Whatever a client sends is refused with a 4xx, or makes legs that are JSON and
// ask for what a leg is for.
func FuzzClientRequest(f *testing.F) {
	for _, body := range []string{
		`{"model":"m","prompt":"x","max_tokens":null,"stream":true,"temperature":0}`, `{"prompt":[1,2,3],"n":2,"resume_token_ids":[4]}`,
		`{"prompt":["a","b"],"stream_options":{"include_usage":true}}`, `{"prompt":[[1],[2]],"best_of":3}`, `{"prompt_embeds":"AAAA"}`,
		`{"messages":[{"role":"user","content":"x","tool_calls":[]},5,{}],"tools":[],"cache_salt":"s","vllm_xargs":{"a":1}}`, `{"messages":[],"seed":1e9}`,
		`{"ſtream":true,"stream":false,"prompt":""}`, `[]`, `{"prompt":`,
	} {
		f.Add(body, false)
		f.Add(body, true)
	}
	f.Fuzz(func(t *testing.T, body string, chat bool) {
		path := openai.PathCompletions
		if chat {
			path = openai.PathChat
		}
		c, fault := request.Parse(path, []byte(body))
		if fault != nil {
			if fault.Status < 400 || fault.Status > 499 || len(fault.Message) > 4<<10 {
				t.Errorf("status %d, %q", fault.Status, fault.Message)
			}
			return
		}
		if c.Answers < 1 || c.Tokens < 0 {
			t.Errorf("%d answers to %d tokens", c.Answers, c.Tokens)
		}
		l := Legs{Request: c, Key: &[32]byte{1}, Seed: 7}
		to := &roster.About{ID: "e0", Kind: openai.KindMeridian, MaxContext: 4096}
		legs := [][]byte{
			l.Prefill(kv.ID{1}, trust.Trace{}, to, false),
			l.Decode(DecodeLeg{Transfer: kv.ID{1}, Params: json.RawMessage(`{"do_remote_prefill":true}`), Tells: true, Mode: lifecycle.ResumeExact, Sofar: []uint32{1}}, to),
		}
		if greedy, left := l.Greedy(DecodeLeg{Prompt: []uint32{1}, Sofar: []uint32{2}}, to); left {
			legs = append(legs, greedy)
		}
		for _, leg := range legs {
			if !json.Valid(leg) {
				t.Errorf("a leg that is no JSON: %s", leg)
			}
		}
		var prefill struct {
			Max    any             `json:"max_tokens"`
			Stream any             `json:"stream"`
			Params json.RawMessage `json:"kv_transfer_params"`
		}
		if err := json.Unmarshal(legs[0], &prefill); err != nil || prefill.Max != 1.0 || prefill.Stream != false || len(prefill.Params) < 10 {
			t.Errorf("a prefill leg: %v: %s", err, legs[0])
		}
	})
}
