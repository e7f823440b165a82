package gateway

import (
	"bytes"
	"encoding/json"
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
	a, fault := request.Parse(path, []byte(body))
	if fault != nil {
		t.Fatal(fault)
	}
	return a
}

// A prefill leg asks for one token, and for nothing else that costs.
func TestLegs(t *testing.T) {
	a := parsedRequest(t, openai.PathChat, `{"model":"m","messages":[],"max_tokens":50,"min_tokens":5,"stream":true,"stream_options":{},"n":1,"tools":[{"x":1}],"resume_token_ids":[3]}`)
	l := legs{request: a, key: &[32]byte{1}, seed: 77}
	var prefill map[string]any
	if err := json.Unmarshal(l.prefill(kv.ID{1}, trust.Trace{}, &roster.About{ID: "p0"}, false), &prefill); err != nil {
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
	l.id = kv.ID{9}
	for version, want := range map[int]kv.ID{0: {}, 2: {}, trust.LegVersion: l.id} {
		opened, err := trust.OpenLeg(l.seal(trust.LegPrefill, kv.ID{1}, trust.Trace{}, &roster.About{ID: "p0", Legs: version}), *l.key)
		if err != nil || kv.ID(opened.Request) != want {
			t.Errorf("for an agent that reads version %d: request %x, %v", version, opened.Request, err)
		}
	}
	if body := l.prefill(kv.ID{1}, trust.Trace{}, &roster.About{ID: "10.0.0.3:8000", Nameless: true}, true); bytes.Contains(body, []byte("meridian_leg")) {
		t.Errorf("a word for an engine of unknown name, which its agent would refuse: %s", body)
	}
	var resumed map[string]any
	leg := decodeLeg{mode: lifecycle.ResumeExact, tells: true, sofar: []uint32{4, 5}}
	if err := json.Unmarshal(l.decode(leg, &roster.About{ID: "d0", Kind: openai.KindMeridian}), &resumed); err != nil {
		t.Fatal(err)
	}
	if got, _ := json.Marshal(resumed["resume_token_ids"]); string(got) != "[3,4,5]" || resumed["seed"] != 77.0 || resumed["return_token_ids"] != true {
		t.Errorf("a leg that goes on: %v", resumed)
	}
	if body, left := l.greedy(decodeLeg{prompt: []uint32{1}, sofar: make([]uint32, 50)}, &roster.About{}); left {
		t.Errorf("nothing is left to generate, and the body is %s", body)
	}
}
