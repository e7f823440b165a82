package request

import (
	"net/http"
	"strings"
	"testing"

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
		`"thinking_token_budget":-1,"reasoning_effort":"low"`:                                                               none,
		`"thinking_token_budget":9,"max_think_tokens":7`:                                                                    7,
		`"vllm_xargs":{"meridian_max_think_tokens":5,"a":"b"}`:                                                              5,
		`"reasoning_effort":"none"`:                                                                                         0,
		`"reasoning_effort":"minimal"`:                                                                                      10,
		`"reasoning_effort":"low"`:                                                                                          20,
		`"reasoning_effort":"medium"`:                                                                                       50,
		`"reasoning_effort":"high"`:                                                                                         80,
		`"reasoning_effort":"xhigh"`:                                                                                        100,
		`"reasoning_effort":"max"`:                                                                                          100,
		`"reasoning_effort":null`:                                                                                           none,
		`"reasoning_effort":"high","max_think_tokens":7`:                                                                    7,
		`"chat_template_kwargs":{"enable_thinking":false}`:                                                                  0,
		`"chat_template_kwargs":{"thinking": false}`:                                                                        0,
		`"chat_template_kwargs":{"enable_thinking":true,"x":1}`:                                                             none,
		`"chat_template_kwargs":{"enable_thinking":false},"max_think_tokens":7`:                                             7,
		`"chat_template_kwargs":{"reasoning_effort":"low"}`:                                                                 20,
		`"chat_template_kwargs":{"reasoning_effort":"none"}`:                                                                0,
		`"chat_template_kwargs":{"reasoning_effort":"low"},"reasoning_effort":"high"`:                                       80,
		`"chat_template_kwargs":{"reasoning_effort":"low"},"reasoning_effort":null`:                                         20,
		`"chat_template_kwargs":{"reasoning_effort":"no_think"}`:                                                            none,
		`"chat_template_kwargs":{"reasoning_effort":0.5}`:                                                                   none,
		`"chat_template_kwargs":{"reasoning_effort":null,"thinking_budget":null}`:                                           none,
		`"chat_template_kwargs":{"thinking_budget":"512"}`:                                                                  none,
		`"chat_template_kwargs":{"thinking_budget":512.0}`:                                                                  none,
		`"chat_template_kwargs":{"thinking_budget":1.5}`:                                                                    none,
		`"chat_template_kwargs":{"thinking_budget":true}`:                                                                   none,
		`"chat_template_kwargs":{"thinking_budget":[6]}`:                                                                    none,
		`"chat_template_kwargs":{"thinking_budget":"512","reasoning_effort":"low"}`:                                         20,
		`"chat_template_kwargs":{"reasoning_effort":true}`:                                                                  none,
		`"chat_template_kwargs":{"reasoning_effort":["low"]}`:                                                               none,
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
		if _, fault := Parse(openai.PathChat, []byte(`{"messages":[],`+members+`}`)); fault == nil || fault.Status != http.StatusBadRequest || !strings.Contains(fault.Message, want) {
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
