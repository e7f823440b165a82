package gateway

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"

	"meridian/serve/gateway/thought"
	"meridian/serve/openai"
)

// marked is a model that marks its thoughts.
func marked(change func(*thought.Markers)) func(*Options) {
	return func(o *Options) {
		m := thought.Markers{Starts: []string{"<think>"}, Ends: []string{"</think>"}, StartIDs: []uint32{900}, EndIDs: []uint32{901}}
		if change != nil {
			change(&m)
		}
		o.Thinking = func(string) thought.Markers { return m }
	}
}

const chatStream = `{"model":"m","messages":[{"role":"user","content":"x"}],"stream":true`

// told is what a client has of one answer.
type told struct{ Thought, Answer, Calls, Finish string }

// heard is what a client makes of a stream, or of a whole answer.
func heard(t *testing.T, body []byte, stream bool) map[int]told {
	t.Helper()
	answers := make(map[int]told)
	add := func(data []byte) {
		var chunk struct {
			Choices []struct {
				Index   int
				Delta   map[string]any
				Message map[string]any
				Finish  *string `json:"finish_reason"`
			}
		}
		if err := json.Unmarshal(data, &chunk); err != nil {
			t.Fatalf("%s: %v", data, err)
		}
		for _, c := range chunk.Choices {
			said := c.Delta
			if said == nil {
				said = c.Message
			}
			a := answers[c.Index]
			for name, into := range map[string]*string{"content": &a.Answer, "reasoning": &a.Thought, "reasoning_content": &a.Thought} {
				if text, isText := said[name].(string); isText {
					*into += text
				}
			}
			if calls := said["tool_calls"]; calls != nil {
				a.Calls += fmt.Sprint(calls)
			}
			if c.Finish != nil {
				a.Finish += *c.Finish
			}
			answers[c.Index] = a
		}
	}
	if !stream {
		add(body)
		return answers
	}
	events := openai.NewEventReader(strings.NewReader(string(body)), 0)
	for {
		data, err := events.Next()
		if err != nil {
			t.Fatalf("a stream without an end: %v in %s", err, body)
		}
		if string(data) == openai.Done {
			return answers
		}
		add(data)
	}
}

func inQuotes(text string) string { return string(openai.Quote(text)) }

// spoken is the stream of an answer, cut by size; more is the last chunk's delta.
func spoken(index int, text string, size func() int, more string) (events []string) {
	events = append(events, fmt.Sprintf(`{"id":"1","created":3,"model":"m","choices":[{"index":%d,"delta":{"role":"assistant","content":""},"finish_reason":null}]}`, index))
	for len(text) > 0 {
		n := min(size(), len(text))
		for !utf8.ValidString(text[:n]) {
			n++
		}
		events = append(events, fmt.Sprintf(`{"id":"1","created":3,"model":"m","choices":[{"index":%d,"delta":{"content":%s},"logprobs":null,"finish_reason":null}]}`, index, inQuotes(text[:n])))
		text = text[n:]
	}
	if more != "" {
		events = append(events, fmt.Sprintf(`{"id":"1","choices":[{"index":%d,"delta":{%s},"finish_reason":null}]}`, index, more))
	}
	return append(events, fmt.Sprintf(`{"id":"1","choices":[{"index":%d,"delta":{},"finish_reason":"stop"}]}`, index))
}

func streamOf(events ...string) string {
	return "data: " + strings.Join(append(events, openai.Done), "\n\ndata: ") + "\n\n"
}

// However an engine that leaves thoughts in its text cuts it, streamed or not, with one answer
// or two, the client has the same thought and the same answer.
func TestThoughtsAreSplit(t *testing.T) {
	d := newFakeVLLM(t)
	cell := beforeVLLM(t, nil, []*fakeVLLM{d}, marked(nil))
	random := rand.New(rand.NewPCG(1, 2))
	call := `"tool_calls":[{"index":0,"id":"c","type":"function","function":{"name":"f","arguments":"{\"a\": \"<think>\"}"}}]`
	for name, c := range map[string]struct {
		text, more string
		want       told
	}{
		"a thought":         {"<think>\nis \"it\" < 5?\n</think>\n\nYes & no: é€", "", told{"\nis \"it\" < 5?\n", "\n\nYes & no: é€", "", "stop"}},
		"no thought":        {"plain </think> text", "", told{"", "plain </think> text", "", "stop"}},
		"nothing but one":   {"<think>on and on</th", "", told{"on and on</th", "", "", "stop"}},
		"a call after it":   {"<think>call</think>\n", call, told{"call", "\n", fmt.Sprint(callsOf(t, call)), "stop"}},
		"a call within it":  {"<think>call<", call, told{"call<", "", fmt.Sprint(callsOf(t, call)), "stop"}},
		"half a marker":     {" <thi", "", told{"", " <thi", "", "stop"}},
		"nothing":           {"", "", told{"", "", "", "stop"}},
		"a marker and more": {"<think></think><think>x</think>", "", told{"", "<think>x</think>", "", "stop"}},
	} {
		more := ""
		if c.more != "" {
			more = "," + c.more
		}
		d.whole = fmt.Sprintf(`{"id":"1","choices":[{"index":0,"message":{"role":"assistant","content":%s,"reasoning":null%s},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":2}}`, inQuotes(c.text), more)
		if got := heard(t, cell.post(openai.PathChat, chatStream[:len(chatStream)-len(`,"stream":true`)]+`}`).body, false)[0]; got != c.want {
			t.Errorf("%s, at once: %+v, want %+v", name, got, c.want)
		}
		for _, size := range []func() int{func() int { return 1 }, func() int { return 1000 }, func() int { return 1 + random.IntN(7) }} {
			first, second := spoken(0, c.text, size, c.more), spoken(1, "<think>other</think>two", size, "")
			d.stream = streamOf(first...)
			if got := heard(t, cell.post(openai.PathChat, chatStream+`}`).body, true)[0]; got != c.want {
				t.Errorf("%s, streamed: %+v, want %+v", name, got, c.want)
			}
			d.stream = streamOf(shuffled(random, first, second)...)
			got := heard(t, cell.post(openai.PathChat, chatStream+`,"n":2}`).body, true)
			if other := (told{"other", "two", "", "stop"}); got[0] != c.want || got[1] != other {
				t.Errorf("%s, of two: %+v, want %+v and %+v", name, got, c.want, other)
			}
		}
	}
}

func callsOf(t *testing.T, member string) any {
	t.Helper()
	var said map[string]any
	if err := json.Unmarshal([]byte("{"+member+"}"), &said); err != nil {
		t.Fatal(err)
	}
	return said["tool_calls"]
}

// shuffled is two streams in one, each in its order.
func shuffled(random *rand.Rand, a, b []string) (both []string) {
	for len(a) > 0 || len(b) > 0 {
		if len(b) == 0 || len(a) > 0 && random.IntN(2) == 0 {
			both, a = append(both, a[0]), a[1:]
		} else {
			both, b = append(both, b[0]), b[1:]
		}
	}
	return both
}

// A template that begins the thought leaves only its end in the text. Where the client has
// turned thinking off, or an answer has no room for a thought, there is none.
func TestOpenedThoughts(t *testing.T) {
	d := newFakeVLLM(t)
	cell := beforeVLLM(t, nil, []*fakeVLLM{d}, marked(func(m *thought.Markers) { m.Opened = true }))
	d.stream = streamOf(spoken(0, "hm\n</think>\n\nyes", func() int { return 3 }, "")...)
	for more, thinks := range map[string]bool{
		``:                                           true,
		`,"chat_template_kwargs":{}`:                 true,
		`,"reasoning_effort":"low"`:                  true,
		`,"tool_choice":"auto"`:                      true,
		`,"response_format":{"type":"text"}`:         true,
		`,"response_format":null`:                    true,
		`,"reasoning_effort":"none"`:                 false,
		`,"chat_template_kwargs":{"thinking":false}`: false,
		`,"chat_template_kwargs":{"enable_thinking": false},"reasoning_effort":"high"`: false,
		`,"chat_template_kwargs":{"enable_thinking":true},"reasoning_effort":"none"`:   true,
		`,"chat_template":"x"`:                             false,
		`,"continue_final_message":true`:                   false,
		`,"add_generation_prompt":false`:                   false,
		`,"response_format":{"type":"json_object"}`:        false,
		`,"guided_json":{}`:                                false,
		`,"tool_choice":{"type":"function","function":{}}`: false,
	} {
		want := told{"", "hm\n</think>\n\nyes", "", "stop"}
		if thinks {
			want = told{"hm\n", "\n\nyes", "", "stop"}
		}
		if got := heard(t, cell.post(openai.PathChat, chatStream+more+`}`).body, true)[0]; got != want {
			t.Errorf("%s: %+v, want %+v", more, got, want)
		}
	}
}

// What an engine has split itself, what is no chat, and what is not to be split goes byte for
// byte, whatever it looks like.
func TestWhatIsNotSplit(t *testing.T) {
	splitting := streamOf(
		`{"id":"1","choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}`,
		`{"id":"1","choices":[{"index":0,"delta":{"reasoning":"h<think>m"}}]}`,
		`{"id":"1","choices":[{"index":0,"delta":{"reasoning":"!","content":"\u00e9 </think> "}}]}`,
		`{"id":"1","choices":[{"index":0,"delta":{ "content": "yes"},"finish_reason":"stop"}]}`,
		`{"id":"1","choices":[],"usage":{"prompt_tokens":1,"completion_tokens":2}}`)
	unthinking := streamOf(
		`{"id":"1","choices":[{"index":0,"delta":{"role":"assistant","content":"\n"}}]}`,
		`{"id":"1","choices":[{"index":0,"delta":{"content":"<"}}]}`,
		`{"id":"1","choices":[{"index":0,"delta":{"content":"b>"},"finish_reason":"stop"}]}`)
	text := streamOf(`{"id":"1","choices":[{"index":0,"text":"<think>h"}]}`, `{"id":"1","choices":[{"index":0,"text":"m</think>","finish_reason":"stop"}]}`)
	raw := streamOf(spoken(0, "<think>hm</think>yes", func() int { return 4 }, "")...)
	for name, c := range map[string]struct {
		path, body string
		change     func(*thought.Markers)
		streams    []string // one after the other, of one engine
	}{
		"an engine that splits":  {openai.PathChat, chatStream + `}`, nil, []string{splitting, unthinking, splitting}},
		"and opened":             {openai.PathChat, chatStream + `}`, func(m *thought.Markers) { m.Opened = true }, []string{splitting, unthinking}},
		"a completion":           {openai.PathCompletions, `{"model":"m","prompt":"x","stream":true}`, nil, []string{text}},
		"turned off":             {openai.PathChat, chatStream + `}`, func(m *thought.Markers) { m.Whole = true }, []string{raw}},
		"a model without a mark": {openai.PathChat, chatStream + `}`, func(m *thought.Markers) { *m = thought.Markers{} }, []string{raw}},
	} {
		d := newFakeVLLM(t)
		cell := beforeVLLM(t, nil, []*fakeVLLM{d}, marked(c.change))
		for i, stream := range c.streams {
			d.stream = stream
			if r := cell.post(c.path, c.body); string(r.body) != stream {
				t.Errorf("%s, %d: the client got\n%s\nof\n%s", name, i, r.body, stream)
			}
		}
	}
}

// The first token that a user sees is the first of the answer that is more than white space,
// whichever side splits.
func TestLatencyOfSplitThoughts(t *testing.T) {
	for name, stream := range map[string]string{
		"split here": streamOf(spoken(0, "<think>hm</think>\n\nyes", func() int { return 3 }, "")...),
		"by its engine": streamOf(`{"id":"1","choices":[{"index":0,"delta":{"reasoning":"hm"}}]}`, `{"id":"1","choices":[{"index":0,"delta":{"content":"\n\n"}}]}`,
			`{"id":"1","choices":[{"index":0,"delta":{"content":"yes"},"finish_reason":"stop"}]}`),
	} {
		d := newFakeVLLM(t)
		cell := beforeVLLM(t, nil, []*fakeVLLM{d}, marked(nil))
		d.stream = stream
		l := cell.record(cell.post(openai.PathChat, chatStream+`}`)).Latency
		if l.TTFTMs == 0 || l.TTFVTMs <= l.TTFTMs || l.TTOTMs == 0 || l.TTOTMs > l.TTFVTMs {
			t.Errorf("%s: %+v", name, l)
		}
	}
}

// A marker is a token, though nothing is shown of it.
func TestFirstTokenIsAMarker(t *testing.T) {
	d := newFakeVLLM(t)
	cell := beforeVLLM(t, nil, []*fakeVLLM{d}, marked(nil))
	d.stream = streamOf(spoken(0, "<think>", func() int { return 7 }, "")...)
	if l := cell.record(cell.post(openai.PathChat, chatStream+`}`)).Latency; l.TTFTMs == 0 || l.TTFVTMs != 0 {
		t.Errorf("%+v", l)
	}
}

// Where ids of tokens are told, thoughts are counted; what the engine says itself stays, and
// nothing is made up.
func TestReasoningTokens(t *testing.T) {
	piece := func(text, ids string) string {
		return fmt.Sprintf(`{"id":"1","choices":[{"index":0,"delta":{"content":%s},"finish_reason":null%s}]}`, inQuotes(text), ids)
	}
	end := `{"id":"1","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`
	usage := func(details string) string {
		return `{"id":"1","choices":[],"usage":{"prompt_tokens":3,"completion_tokens":7` + details + `}}`
	}
	for name, c := range map[string]struct {
		change func(*thought.Markers)
		events []string
		want   string
	}{
		"told": {
			nil,
			[]string{piece("<think>a", `,"token_ids":[900,1]`), piece("b", `,"token_ids":[2]`), piece("c</think>", `,"token_ids":[3,901]`), piece("d", `,"token_ids":[4]`), end, usage("")},
			`"completion_tokens_details":{"reasoning_tokens":3}`,
		},
		"opened": {
			func(m *thought.Markers) { m.Opened = true },
			[]string{piece("a", `,"token_ids":[1]`), piece("</think>d", `,"token_ids":[901,4]`), end, usage(`,"completion_tokens_details":null`)},
			`"completion_tokens_details":{"reasoning_tokens":1}`,
		},
		"told by the engine": {
			nil,
			[]string{piece("<think>a</think>", `,"token_ids":[900,1,901]`), end, usage(`,"completion_tokens_details":{"reasoning_tokens":5}`)},
			`"completion_tokens_details":{"reasoning_tokens":5}`,
		},
		"split by the engine": {
			nil,
			[]string{`{"id":"1","choices":[{"index":0,"delta":{"reasoning":"a"},"token_ids":[900,1,2]}]}`, piece("b", `,"token_ids":[901,3]`), end, usage("")},
			`"completion_tokens_details":{"reasoning_tokens":2}`,
		},
		"opened, and it was not told": {
			nil,
			[]string{`{"id":"1","choices":[{"index":0,"delta":{"reasoning":"a"},"token_ids":[1,2]}]}`, piece("b", `,"token_ids":[901,3]`), end, usage("")},
			`"completion_tokens":7}`,
		},
		"no ids":      {nil, []string{piece("<think>a</think>", ""), end, usage("")}, `"completion_tokens":7}`},
		"no known id": {func(m *thought.Markers) { m.EndIDs = nil }, []string{piece("<think>a</think>", `,"token_ids":[900,1,901]`), end, usage("")}, `"completion_tokens":7}`},
	} {
		d := newFakeVLLM(t)
		cell := beforeVLLM(t, nil, []*fakeVLLM{d}, marked(c.change))
		d.stream = streamOf(c.events...)
		r := cell.post(openai.PathChat, chatStream+`,"return_token_ids":true,"stream_options":{"include_usage":true}}`)
		if !strings.Contains(string(r.body), c.want) {
			t.Errorf("%s: no %s in %s", name, c.want, r.body)
		}
	}
}

// Who wants no thoughts gets none, as of vLLM with a parser.
func TestThoughtsThatNobodyWants(t *testing.T) {
	d := newFakeVLLM(t)
	cell := beforeVLLM(t, nil, []*fakeVLLM{d}, marked(nil))
	d.stream = streamOf(spoken(0, "<think>hm</think>yes", func() int { return 2 }, "")...)
	r := cell.post(openai.PathChat, chatStream+`,"include_reasoning":false}`)
	if got := heard(t, r.body, true)[0]; got != (told{"", "yes", "", "stop"}) || strings.Count(string(r.body), `"delta":{}`) != 1 {
		t.Errorf("the client got %s", r.body)
	}
}

// An engine that ends its stream without ending its answer owes nothing that was held back.
func TestHeldBackAtTheEnd(t *testing.T) {
	d := newFakeVLLM(t)
	cell := beforeVLLM(t, nil, []*fakeVLLM{d}, marked(nil))
	events := spoken(0, "<think>hm</thi", func() int { return 5 }, "")
	d.stream = streamOf(events[:len(events)-1]...)
	if got := heard(t, cell.post(openai.PathChat, chatStream+`}`).body, true)[0]; got.Thought != "hm</thi" || got.Answer != "" {
		t.Errorf("the client has %+v", got)
	}
}
