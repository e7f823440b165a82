package storm

import (
	"errors"
	"testing"

	"meridian/run/cell/openaiclient"
	"meridian/serve/openai"
)

// The judge must see what a cell must not do.
func TestJudge(t *testing.T) {
	q := &Question{Answer: &openaiclient.Answer{Tokens: []uint32{1, 2, 3}, Text: "abc", Finish: "length"}}
	answer := func(change func(*openaiclient.Answer)) *openaiclient.Answer {
		a := &openaiclient.Answer{Tokens: []uint32{1, 2, 3}, Text: "abc", Finish: "length"}
		change(a)
		return a
	}
	clear := openai.Invalid("", "the engine is gone")
	for name, test := range map[string]struct {
		answer *openaiclient.Answer
		err    error
		wrong  bool
	}{
		"right":                     {answer: answer(func(*openaiclient.Answer) {})},
		"refused":                   {err: clear},
		"failed on the way":         {answer: answer(func(a *openaiclient.Answer) { a.Tokens, a.Text, a.Finish = a.Tokens[:1], "a", "" }), err: clear},
		"lost token":                {answer: answer(func(a *openaiclient.Answer) { a.Tokens = []uint32{1, 3} }), wrong: true},
		"token twice":               {answer: answer(func(a *openaiclient.Answer) { a.Tokens = []uint32{1, 2, 2, 3} }), wrong: true},
		"lost at the end":           {answer: answer(func(a *openaiclient.Answer) { a.Tokens = a.Tokens[:2] }), wrong: true},
		"other text":                {answer: answer(func(a *openaiclient.Answer) { a.Text = "abd" }), wrong: true},
		"less text":                 {answer: answer(func(a *openaiclient.Answer) { a.Text = "ab" }), wrong: true},
		"other end":                 {answer: answer(func(a *openaiclient.Answer) { a.Finish = "stop" }), wrong: true},
		"wrong before it failed":    {answer: answer(func(a *openaiclient.Answer) { a.Tokens = []uint32{9} }), err: clear, wrong: true},
		"cut without a word":        {answer: answer(func(a *openaiclient.Answer) { a.Tokens = a.Tokens[:1] }), err: openaiclient.ErrCut, wrong: true},
		"silence":                   {err: errors.New("deadline exceeded"), wrong: true},
		"nothing but an unclear no": {err: errors.New("EOF"), wrong: true},
	} {
		if said := q.judge(test.answer, test.err); (said != "") != test.wrong {
			t.Errorf("%s: judged %q", name, said)
		}
	}
}
