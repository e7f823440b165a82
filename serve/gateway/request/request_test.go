package request

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"meridian/serve/openai"
)

func parsedRequest(t *testing.T, path, body string) *Request {
	t.Helper()
	r, fault := Parse(path, []byte(body))
	if fault != nil {
		t.Fatal(fault)
	}
	return r
}

func TestWhatIsSeenOfARequest(t *testing.T) {
	for body, want := range map[string]func(c *Request) bool{
		`{"prompt":"x","n":2}`:                                    func(c *Request) bool { return c.Whole },
		`{"prompt":"x","n":1}`:                                    func(c *Request) bool { return !c.Whole },
		`{"prompt":["x","y"]}`:                                    func(c *Request) bool { return c.Whole },
		`{"prompt":["x"]}`:                                        func(c *Request) bool { return !c.Whole && c.Tokens == 1 },
		`{"prompt":[1,2,3]}`:                                      func(c *Request) bool { return !c.Whole && c.Tokens == 3 },
		`{"prompt":"x","echo":true}`:                              func(c *Request) bool { return c.Whole },
		`{"prompt":"x","echo":false}`:                             func(c *Request) bool { return !c.Whole },
		`{"prompt":"x","temperature":0}`:                          func(c *Request) bool { return c.Greedy && !c.Unseeded && c.Plain },
		`{"prompt":"x","temperature":0.0,"stop":null}`:            func(c *Request) bool { return c.Greedy && c.Plain },
		`{"prompt":"x"}`:                                          func(c *Request) bool { return !c.Greedy && c.Unseeded },
		`{"prompt":"x","seed":0}`:                                 func(c *Request) bool { return !c.Unseeded },
		`{"prompt":"x","tools":[]}`:                               func(c *Request) bool { return !c.Plain },
		`{"prompt":"x","max_tokens":7,"max_completion_tokens":9}`: func(c *Request) bool { return *c.MaxTokens == 7 },
		`{"prompt":"x","stream":true,"return_token_ids":true}`:    func(c *Request) bool { return c.Stream && c.WantsIDs },
		`{"prompt":"` + strings.Repeat("x", 1022) + `","resume_token_ids":[4]}`: func(c *Request) bool {
			return c.Tokens == 256 && len(c.Prefix.Hashes) == 4 && len(c.Resumed) == 1
		},
	} {
		if c := parsedRequest(t, openai.PathCompletions, body); !want(c) {
			t.Errorf("%s: %+v", body, c)
		}
	}
	if c := parsedRequest(t, openai.PathChat, `{"messages":[],"max_tokens":7,"max_completion_tokens":9}`); *c.MaxTokens != 9 {
		t.Errorf("max tokens %d", *c.MaxTokens)
	}
}

// Engines take 1 and "yes" for true, so that the gateway, which would not, lets no such thing pass.
func TestSwitchesAreTrueOrFalse(t *testing.T) {
	for _, body := range []string{`{"prompt":"x","echo":1}`, `{"prompt":"x","echo":"yes"}`, `{"prompt":"x","use_beam_search":1}`, `{"prompt":"x","stream":1}`} {
		if _, fault := Parse(openai.PathCompletions, []byte(body)); fault == nil || fault.Status != http.StatusBadRequest {
			t.Errorf("%s: %v", body, fault)
		}
	}
}

// The next turn of a chat begins as the one before it.
func TestTurnsShareTheirPrefix(t *testing.T) {
	first := `{"role":"system","content":"` + strings.Repeat("be kind. ", 100) + `"},{"role":"user","content":"hello"}`
	one := parsedRequest(t, openai.PathChat, `{"model":"m","messages":[`+first+`]}`)
	two := parsedRequest(t, openai.PathChat, `{"messages":[ `+first+`, {"role":"assistant","content":"hi"}, {"role":"user","content":"more"}],"model":"m","temperature":1}`)
	for i, hash := range one.Prefix.Hashes {
		if two.Prefix.Hashes[i] != hash {
			t.Fatalf("hash %d differs", i)
		}
	}
	for name, body := range map[string]string{
		"another model": `{"model":"n","messages":[` + first + `]}`,
		"another salt":  `{"model":"m","cache_salt":"s","messages":[` + first + `]}`,
		"tools":         `{"model":"m","tools":[{"type":"function"}],"messages":[` + first + `]}`,
	} {
		if other := parsedRequest(t, openai.PathChat, body); other.Prefix.Hashes[0] == one.Prefix.Hashes[0] {
			t.Errorf("%s: the prefix is shared", name)
		}
	}
}

// What a client sends is looked at once, however many members it has.
func TestManyMembersAreRefused(t *testing.T) {
	var members strings.Builder
	for i := range 20_000 {
		fmt.Fprintf(&members, `,"k%06d":null`, i)
	}
	_, fault := Parse(openai.PathCompletions, []byte(`{"prompt":"x"`+members.String()+`}`))
	if fault == nil || fault.Status != 400 || !strings.Contains(fault.Message, "more than 512 members") {
		t.Errorf("got %v", fault)
	}
	_, fault = Parse(openai.PathCompletions, []byte(`{"prompt":"x","vllm_xargs":{"a":1`+members.String()+`,"KV_transfer_params":{}}}`))
	if fault == nil || !strings.Contains(fault.Message, "not taken from clients") {
		t.Errorf("a transfer behind many others: %v", fault)
	}
}
