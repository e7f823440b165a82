package openai

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestChunk(t *testing.T) {
	for name, c := range map[string]struct {
		data string
		want Chunk
	}{
		"text": {
			`{"id":"x","choices":[{"index":0,"text":"hi","finish_reason":null,"token_ids":[5, 6]}]}`,
			Chunk{Answered: true, Visible: true, Choices: 1, Tokens: []uint32{5, 6}, HasTokens: true, Text: json.RawMessage(`"hi"`)},
		},
		"held back":                {`{"choices":[{"text":"","token_ids":[]}]}`, Chunk{Choices: 1, HasTokens: true, Text: json.RawMessage(`""`)}},
		"role":                     {`{"choices":[{"delta":{"role":"assistant","content":""}}],"prompt_token_ids":[1,2]}`, Chunk{Choices: 1, PromptTokens: []uint32{1, 2}, Text: json.RawMessage(`""`)}},
		"thought":                  {`{"choices":[{"delta":{"reasoning_content":"hm","content":null}}]}`, Chunk{Choices: 1, Thought: true}},
		"answer":                   {`{"choices":[{"delta":{"reasoning_content":null,"content":"yes"}}]}`, Chunk{Choices: 1, Answered: true, Visible: true, Text: json.RawMessage(`"yes"`)}},
		"thought, as vLLM says it": {`{"choices":[{"delta":{"reasoning":"hm"}}]}`, Chunk{Choices: 1, Thought: true}},
		"whose caches":             {`{"choices":[],"kv_transfer_params":{"remote_host":"h"}}`, Chunk{Transfers: true}},
		"no caches":                {`{"choices":[],"kv_transfer_params":null}`, Chunk{}},
		"tool":                     {`{"choices":[{"delta":{"tool_calls":[{}]}}]}`, Chunk{Choices: 1, Answered: true, Visible: true, Calls: true}},
		"white space":              {`{"choices":[{"delta":{"content":" \n\t\r"}}]}`, Chunk{Choices: 1, Answered: true, Text: json.RawMessage(`" \n\t\r"`)}},
		"and more":                 {`{"choices":[{"delta":{"content":" \n\""}}]}`, Chunk{Choices: 1, Answered: true, Visible: true, Text: json.RawMessage(`" \n\""`)}},
		"no end":                   {`{"choices":[{"text":"","finish_reason":""},{"text":"","finish_reason":null}]}`, Chunk{Choices: 2, Text: json.RawMessage(`""`)}},
		"end":                      {`{"choices":[{"delta":{},"finish_reason":"stop"}]}`, Chunk{Choices: 1, Blank: true, Ends: 1, FinishReason: json.RawMessage(`"stop"`)}},
		"one moves":                {`{"choices":[{"text":"","finish_reason":"mo\u0076ed"},{"text":"","finish_reason":"stop"}]}`, Chunk{Choices: 2, Ends: 2, Moved: true, FinishReason: json.RawMessage(`"stop"`), Text: json.RawMessage(`""`)}},
		"a forced end":             {`{"choices":[{"delta":{},"finish_reason":"length","stop_reason":"meridian_forced_end:hard_cap:null"}]}`, Chunk{Choices: 1, Blank: true, Ends: 1, ForcedEnd: ForcedHardCap, FinishReason: json.RawMessage(`"length"`)}},
		"of an unknown kind":       {`{"choices":[{"text":"","stop_reason":"meridian_forced_end:mood:null"},{"stop_reason":"hard_cap"},{"stop_reason":7}]}`, Chunk{Choices: 3, Text: json.RawMessage(`""`)}},
		"report":                   {`{"choices":[],"usage":{"a":1},"meridian":{"kv":"local"}}`, Chunk{Usage: json.RawMessage(`{"a":1}`), Report: json.RawMessage(`{"kv":"local"}`)}},
		"fault":                    {`{"error":{"message":"no"}}`, Chunk{Fault: json.RawMessage(`{"message":"no"}`)}},
		"vllm":                     {`{"choices":[{"text":"a","prompt_token_ids":[7],"token_ids":[8]}]}`, Chunk{Choices: 1, Answered: true, Visible: true, Tokens: []uint32{8}, HasTokens: true, PromptTokens: []uint32{7}, Text: json.RawMessage(`"a"`)}},
	} {
		var got Chunk
		got.Parse([]byte(`{"choices":[{"text":"old","finish_reason":"x","token_ids":[1]}],"prompt_token_ids":[9],"usage":1,"meridian":1,"error":1,"kv_transfer_params":{}}`))
		if !got.Parse([]byte(c.data)) {
			t.Errorf("%s: not taken for an object", name)
		}
		for _, ids := range []*[]uint32{&got.Tokens, &got.PromptTokens} {
			if len(*ids) == 0 {
				*ids = nil
			}
		}
		if diff := cmp.Diff(c.want, got, cmp.FilterPath(func(p cmp.Path) bool {
			field, ok := p.Last().(cmp.StructField)
			return ok && field.Name()[0] >= 'a'
		}, cmp.Ignore())); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	if new(Chunk).Parse([]byte(Done)) {
		t.Error("the end was taken for an object")
	}
}

func TestChunkWithout(t *testing.T) {
	const data = `{"id":"a","choices":[{"index":0,"token_ids":[1],"delta":{"content":"x"}},{"prompt_token_ids":[2],"index":1}],"prompt_token_ids":[1],"meridian":{"engine":"d0"}}`
	var c Chunk
	c.Parse([]byte(data))
	for name, step := range map[string]struct {
		ids   bool
		edits []Edit
		want  string
	}{
		"ids":        {true, nil, `{"id":"a","choices":[{"index":0,"delta":{"content":"x"}},{"index":1}]}`},
		"report":     {false, nil, `{"id":"a","choices":[{"index":0,"token_ids":[1],"delta":{"content":"x"}},{"prompt_token_ids":[2],"index":1}],"prompt_token_ids":[1]}`},
		"another id": {true, []Edit{{"id", []byte(`"b"`)}}, `{"id":"b","choices":[{"index":0,"delta":{"content":"x"}},{"index":1}]}`},
	} {
		if got := string(c.Without(step.ids, step.edits...)); got != step.want {
			t.Errorf("%s: got %s, want %s", name, got, step.want)
		}
	}
}

// Engines may say the same twice, which parsers of JSON allow; the last counts, as for clients.
func TestChunkWithTwoListsOfChoices(t *testing.T) {
	long := `[{"text":"` + strings.Repeat("a", 100) + `","token_ids":[1]}]`
	for _, c := range []struct{ data, want string }{
		{`{"choices":` + long + `,"choices":[{"token_ids":[2]}]}`, `{"choices":[{}],"choices":[{}]}`},
		{`{"choices":[{"token_ids":[2]}],"choices":` + long + `}`, strings.ReplaceAll(`{"choices":LIST,"choices":LIST}`, "LIST", strings.Replace(long, `,"token_ids":[1]`, "", 1))},
		{`{"choices":` + long + `,"choices":null}`, `{"choices":` + long + `,"choices":null}`},
	} {
		var chunk Chunk
		if got := slices.Clip([]byte(c.data)); !chunk.Parse(got) {
			t.Fatalf("%s was not taken for an object", c.data)
		}
		if got := string(chunk.Without(true)); got != c.want {
			t.Errorf("%s: got %s, want %s", c.data, got, c.want)
		}
	}
}

func FuzzChunk(f *testing.F) {
	for _, seed := range []string{
		`{"choices":[{"text":"hi","token_ids":[5, 6]}],"choices":[]}`, `{"choices":[{"delta":{"content":"x"},"stop_reason":"meridian_forced_end:hard_cap:null"}],"meridian":{}}`,
		`{"usage":{},"choices":[{"delta":{},"delta":null}],"kv_transfer_params":{}`, `{"choices":{"a":[`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var chunk Chunk
		if !chunk.Parse(slices.Clip(data)) {
			return
		}
		for _, ids := range []bool{true, false} {
			if shown := chunk.Without(ids); json.Valid(data) && !json.Valid(shown) {
				t.Errorf("%s became %s", data, shown)
			}
		}
	})
}

// What vLLM itself says of an end is there again for the client.
func TestChunkWithoutForcedEnd(t *testing.T) {
	for told, want := range map[string]string{
		`"meridian_forced_end:hard_cap:null"`:                                             `null`,
		`"meridian_forced_end:overthinking:17"`:                                           `17`,
		`"meridian_forced_end:converged:\"repetition_detected\""`:                         `"repetition_detected"`,
		`"meridian_forced_end:hard_cap"`:                                                  `null`,
		`"meridian_forced_end:hard_cap:}{"`:                                               `null`,
		`"meridian_forced_end:hard_cap:-1"`:                                               `-1`,
		`"meridian_forced_end:hard_cap:"`:                                                 `null`,
		`"meridian_forced_end:hard_cap:007"`:                                              `null`,
		`"meridian_forced_end:hard_cap:1.5"`:                                              `null`,
		`"meridian_forced_end:hard_cap:1e9"`:                                              `null`,
		`"meridian_forced_end:hard_cap:99999999999999999999"`:                             `null`,
		`"meridian_forced_end:hard_cap:true"`:                                             `null`,
		`"meridian_forced_end:hard_cap: 17"`:                                              `null`,
		`"meridian_forced_end:hard_cap:{\"content\":\"mine\"}"`:                           `null`,
		`"meridian_forced_end:hard_cap:[[1]]"`:                                            `null`,
		`"meridian_forced_end:hard_cap:\"` + strings.Repeat("a", maxStopReason-2) + `\""`: `"` + strings.Repeat("a", maxStopReason-2) + `"`,
		`"meridian_forced_end:hard_cap:\"` + strings.Repeat("a", maxStopReason-1) + `\""`: `null`,
	} {
		var c Chunk
		c.Parse([]byte(`{"choices":[{"index":0,"stop_reason":"\n\n"},{"token_ids":[1],"stop_reason":` + told + `}]}`))
		for ids, left := range map[bool]string{false: `"token_ids":[1],`, true: ""} {
			want := `{"choices":[{"index":0,"stop_reason":"\n\n"},{` + left + `"stop_reason":` + want + `}]}`
			if got := string(c.Without(ids)); got != want {
				t.Errorf("%s: got %s, want %s", told, got, want)
			}
		}
	}
}

func BenchmarkChunkWithout(b *testing.B) {
	data := []byte(`{"id":"cmpl-0123456789abcdef","object":"text_completion","created":1700000000,"model":"tiny","choices":[{"index":0,"text":"hello","logprobs":null,"finish_reason":null,"token_ids":[104]}]}`)
	var c Chunk
	b.ReportAllocs()
	for b.Loop() {
		c.Parse(data)
		c.Without(true)
	}
}
