package gateway

import (
	"encoding/json"
	"testing"

	"meridian/kv"
	"meridian/member/trust"
	"meridian/serve/gateway/lifecycle"
	"meridian/serve/gateway/request"
	"meridian/serve/gateway/roster"
	"meridian/serve/openai"
)

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
		l := legs{request: c, key: &[32]byte{1}, seed: 7}
		to := &roster.About{ID: "e0", Kind: openai.KindMeridian, MaxContext: 4096}
		legs := [][]byte{
			l.prefill(kv.ID{1}, trust.Trace{}, to, false),
			l.decode(decodeLeg{transfer: kv.ID{1}, params: json.RawMessage(`{"do_remote_prefill":true}`), tells: true, mode: lifecycle.ResumeExact, sofar: []uint32{1}}, to),
		}
		if greedy, left := l.greedy(decodeLeg{prompt: []uint32{1}, sofar: []uint32{2}}, to); left {
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
