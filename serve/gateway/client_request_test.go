package gateway

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"meridian/kv"
	"meridian/member/trust"
	"meridian/serve/openai"
)

func parsedRequest(t *testing.T, path, body string) *clientRequest {
	t.Helper()
	a, fault := parseClientRequest(path, []byte(body))
	if fault != nil {
		t.Fatal(fault)
	}
	return a
}

func TestWhatIsSeenOfARequest(t *testing.T) {
	for body, want := range map[string]func(c *clientRequest) bool{
		`{"prompt":"x","n":2}`:                                    func(c *clientRequest) bool { return c.whole },
		`{"prompt":"x","n":1}`:                                    func(c *clientRequest) bool { return !c.whole },
		`{"prompt":["x","y"]}`:                                    func(c *clientRequest) bool { return c.whole },
		`{"prompt":["x"]}`:                                        func(c *clientRequest) bool { return !c.whole && c.tokens == 1 },
		`{"prompt":[1,2,3]}`:                                      func(c *clientRequest) bool { return !c.whole && c.tokens == 3 },
		`{"prompt":"x","echo":true}`:                              func(c *clientRequest) bool { return c.whole },
		`{"prompt":"x","echo":false}`:                             func(c *clientRequest) bool { return !c.whole },
		`{"prompt":"x","temperature":0}`:                          func(c *clientRequest) bool { return c.greedy && !c.unseeded && c.plain },
		`{"prompt":"x","temperature":0.0,"stop":null}`:            func(c *clientRequest) bool { return c.greedy && c.plain },
		`{"prompt":"x"}`:                                          func(c *clientRequest) bool { return !c.greedy && c.unseeded },
		`{"prompt":"x","seed":0}`:                                 func(c *clientRequest) bool { return !c.unseeded },
		`{"prompt":"x","tools":[]}`:                               func(c *clientRequest) bool { return !c.plain },
		`{"prompt":"x","max_tokens":7,"max_completion_tokens":9}`: func(c *clientRequest) bool { return *c.maxTokens == 7 },
		`{"prompt":"x","stream":true,"return_token_ids":true}`:    func(c *clientRequest) bool { return c.stream && c.wantsIDs },
		`{"prompt":"` + strings.Repeat("x", 1022) + `","resume_token_ids":[4]}`: func(c *clientRequest) bool {
			return c.tokens == 256 && len(c.prefix.Hashes) == 4 && len(c.resumed) == 1
		},
	} {
		if c := parsedRequest(t, openai.PathCompletions, body); !want(c) {
			t.Errorf("%s: %+v", body, c)
		}
	}
	if c := parsedRequest(t, openai.PathChat, `{"messages":[],"max_tokens":7,"max_completion_tokens":9}`); *c.maxTokens != 9 {
		t.Errorf("max tokens %d", *c.maxTokens)
	}
}

// The next turn of a chat begins as the one before it.
func TestTurnsShareTheirPrefix(t *testing.T) {
	first := `{"role":"system","content":"` + strings.Repeat("be kind. ", 100) + `"},{"role":"user","content":"hello"}`
	one := parsedRequest(t, openai.PathChat, `{"model":"m","messages":[`+first+`]}`)
	two := parsedRequest(t, openai.PathChat, `{"messages":[ `+first+`, {"role":"assistant","content":"hi"}, {"role":"user","content":"more"}],"model":"m","temperature":1}`)
	for i, hash := range one.prefix.Hashes {
		if two.prefix.Hashes[i] != hash {
			t.Fatalf("hash %d differs", i)
		}
	}
	for name, body := range map[string]string{
		"another model": `{"model":"n","messages":[` + first + `]}`,
		"another salt":  `{"model":"m","cache_salt":"s","messages":[` + first + `]}`,
		"tools":         `{"model":"m","tools":[{"type":"function"}],"messages":[` + first + `]}`,
	} {
		if other := parsedRequest(t, openai.PathChat, body); other.prefix.Hashes[0] == one.prefix.Hashes[0] {
			t.Errorf("%s: the prefix is shared", name)
		}
	}
}

// A prefill leg asks for one token, and for nothing else that costs.
func TestLegs(t *testing.T) {
	a := parsedRequest(t, openai.PathChat, `{"model":"m","messages":[],"max_tokens":50,"min_tokens":5,"stream":true,"stream_options":{},"n":1,"tools":[{"x":1}],"resume_token_ids":[3]}`)
	l := legs{request: a, key: &[32]byte{1}, seed: 77}
	var prefill map[string]any
	if err := json.Unmarshal(l.prefill(kv.ID{1}, trust.Trace{}, &about{id: "p0"}, false), &prefill); err != nil {
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
		opened, err := trust.OpenLeg(l.seal(trust.LegPrefill, kv.ID{1}, trust.Trace{}, &about{id: "p0", legs: version}), *l.key)
		if err != nil || kv.ID(opened.Request) != want {
			t.Errorf("for an agent that reads version %d: request %x, %v", version, opened.Request, err)
		}
	}
	if body := l.prefill(kv.ID{1}, trust.Trace{}, &about{id: "10.0.0.3:8000", nameless: true}, true); bytes.Contains(body, []byte("meridian_leg")) {
		t.Errorf("a word for an engine of unknown name, which its agent would refuse: %s", body)
	}
	var resumed map[string]any
	leg := decodeLeg{mode: resumeExact, tells: true, sofar: []uint32{4, 5}}
	if err := json.Unmarshal(l.decode(leg, &about{id: "d0", kind: openai.KindMeridian}), &resumed); err != nil {
		t.Fatal(err)
	}
	if got, _ := json.Marshal(resumed["resume_token_ids"]); string(got) != "[3,4,5]" || resumed["seed"] != 77.0 || resumed["return_token_ids"] != true {
		t.Errorf("a leg that goes on: %v", resumed)
	}
	if body, left := l.greedy(decodeLeg{prompt: []uint32{1}, sofar: make([]uint32, 50)}, &about{}); left {
		t.Errorf("nothing is left to generate, and the body is %s", body)
	}
}

// What a client sends is looked at once, however many members it has.
func TestManyMembersAreRefused(t *testing.T) {
	var members strings.Builder
	for i := range 20_000 {
		fmt.Fprintf(&members, `,"k%06d":null`, i)
	}
	_, fault := parseClientRequest(openai.PathCompletions, []byte(`{"prompt":"x"`+members.String()+`}`))
	if fault == nil || fault.Status != 400 || !strings.Contains(fault.Message, "more than 512 members") {
		t.Errorf("got %v", fault)
	}
	_, fault = parseClientRequest(openai.PathCompletions, []byte(`{"prompt":"x","vllm_xargs":{"a":1`+members.String()+`,"KV_transfer_params":{}}}`))
	if fault == nil || !strings.Contains(fault.Message, "not taken from clients") {
		t.Errorf("a transfer behind many others: %v", fault)
	}
}
