package gateway

import (
	"fmt"
	"strings"
	"testing"

	"meridian/see/ledger"
	"meridian/serve/openai"
)

// The end of an answer is said once, whatever becomes of its engine between the
// end and [DONE]: no other engine is asked, and nothing fails.
func TestEndIsSaidOnce(t *testing.T) {
	usage := `,"usage":{"prompt_tokens":5,"completion_tokens":12,"total_tokens":17}`
	for engine, test := range map[string]struct {
		vllm  bool
		more  string
		usage int // chunks that tell it
	}{
		"a reference engine": {more: `,"seed":5`, usage: 1},
		"vLLM, greedy":       {vllm: true, more: `,"temperature":0`, usage: 1},
		"vLLM, sampled":      {vllm: true, more: `,"seed":0`}, // it does not tell the prompt's tokens
	} {
		for _, end := range []string{"reset", "cut", "hang", "fault"} {
			for _, path := range []string{openai.PathCompletions, openai.PathChat} {
				t.Run(engine+", "+end+", "+path, func(t *testing.T) {
					t.Parallel()
					cell := newCell(t, 0, 2, func(o *Options) {
						if end == "hang" {
							o.StallTimeout = standstill
						}
					})
					if test.vllm {
						cell.vllm()
					}
					for _, s := range cell.decode {
						s.set(habits{afterEnd: end})
					}
					body := `{"model":"m","prompt":"short","max_tokens":12,"stream":true,"stream_options":{"include_usage":true}` + test.more + `}`
					if path == openai.PathChat {
						body = strings.Replace(body, `"prompt":"short"`, `"messages":[{"role":"user","content":"short"}]`, 1)
					}
					r := cell.post(path, body)
					r.whole(t, "short", cell.seedOf(body), 12)
					sent := string(r.body)
					if n := strings.Count(sent, `"finish_reason":"length"`); n != 1 || strings.Count(sent, openai.Done) != 1 || strings.Count(sent, usage) != test.usage {
						t.Errorf("the end is said %d times:\n%s", n, sent)
					}
					if record := cell.record(r); record.Outcome != ledger.Finished || len(record.Legs) != 1 || record.OutputTokens != 12 {
						t.Errorf("recorded %s", record)
					}
				})
			}
		}
	}
}

// One of two answers that has ended is not the end of both.
func TestOneEndOfTwo(t *testing.T) {
	c := newCell(t, 0, 1, nil)
	c.decode[0].set(habits{afterEnd: "cut"})
	r := c.post(openai.PathCompletions, completion("short", `,"stream":true,"n":2`))
	if _, _, problem, done := r.text(t); problem == "" || done {
		t.Errorf("problem %q, done %v: %s", problem, done, r.body)
	}
}

// An engine that is lost after the last token it was allowed, and before it said
// so, owes the end and the usage.
func TestEndOfAGreedyAnswerIsMade(t *testing.T) {
	for _, usage := range []bool{true, false} {
		c := newCell(t, 0, 2, nil).vllm()
		c.prefer("d0")
		c.decode[0].set(habits{afterEnd: "unsaid"})
		r := c.post(openai.PathCompletions, fmt.Sprintf(`{"model":"m","prompt":"short","max_tokens":12,"temperature":0,"stream":true,"stream_options":{"include_usage":%v}}`, usage))
		r.whole(t, "short", 0, 12)
		if sent := string(r.body); strings.Count(sent, `"finish_reason":"length"`) != 1 ||
			strings.Contains(sent, `"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":12,"total_tokens":17}`) != usage {
			t.Errorf("usage %v:\n%s", usage, sent)
		}
		if len(c.decode[1].seen()) > 0 {
			t.Error("another engine was asked for nothing")
		}
		c.close()
	}
	c := newCell(t, 0, 2, nil).vllm()
	c.prefer("d0")
	c.decode[0].set(habits{afterEnd: "unsaid", thinks: 4})
	r := c.post(openai.PathChat, `{"model":"m","messages":[{"role":"user","content":"short"}],"max_tokens":12,"temperature":0,"stream":true,"stream_options":{"include_usage":true}}`)
	if want := `"total_tokens":17,"completion_tokens_details":{"reasoning_tokens":4}}`; !strings.Contains(string(r.body), want) {
		t.Errorf("after a thought, no %s in\n%s", want, r.body)
	}
}
