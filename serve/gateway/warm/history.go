package warm

import (
	"bytes"
	"encoding/json"
	"slices"

	"meridian/decide/placement"
	"meridian/internal/budget"
	"meridian/serve/gateway/request"
	"meridian/serve/openai"
)

// Most chat templates strip thoughts of earlier turns. What an engine has cached of
// an answer that thought therefore does not come again: the next turn begins like
// this one, and goes on with the answer alone. A history is that beginning, as a
// request that computes it:
//
//	messages of the client, the answer without its thought, a user who says nothing yet
//
// The last message is there because templates look at it: some write the last answer
// of a chat otherwise than one that was answered to. What it comes to in tokens is
// not part of the next turn's prompt; all before it is.
//
// While it waits it is the request and the answer; write makes its body of them.
type history struct {
	model   string
	tenant  string
	request *request.Request // nil once it is written, as answer is
	answer  []byte           // the inside of a JSON string
	body    []byte
	// prefix is the request's; once it is written that of the messages and the answer,
	// as the next turn's is made.
	prefix placement.Prefix
	weight int64 // what it holds of the warmer's memory
	// template is what it is written with, if that is foreseen.
	template Template
	foreseen bool
}

// AnswerRecorder gathers an answer as the client gets it.
type AnswerRecorder struct {
	text    budget.Held // what a JSON string of it has between its quotes
	thought bool
	// unfit: its messages cannot be written as the next turn will have them, or it is
	// too long.
	unfit bool
}

// maxAnswerBytes is how long an answer may be that is put into a history.
const maxAnswerBytes = 1 << 20

// Add takes in a chunk, or a whole answer; rewritten means that the client gets
// another one in its place.
func (s *AnswerRecorder) Add(c *openai.Chunk, rewritten bool) {
	if s == nil {
		return
	}
	s.thought = s.thought || c.Thought
	s.unfit = s.unfit || c.Calls || rewritten
	if s.unfit || len(c.Text) < len(`""`) || c.Text[0] != '"' {
		return
	}
	piece := c.Text[1 : len(c.Text)-1]
	size := len(s.text.Data) + len(piece)
	if size > maxAnswerBytes {
		s.unfit = true
		return
	}
	if size > cap(s.text.Data) {
		if s.text.Grow(int64(min(max(size, 2*cap(s.text.Data), 1<<10), maxAnswerBytes))) != nil {
			s.unfit = true
			return
		}
	}
	s.text.Data = append(s.text.Data, piece...)
}

// Release gives back what was gathered.
func (s *AnswerRecorder) Release() {
	if s != nil {
		s.text.Release()
	}
}

// thinkEnd is where the thought of an answer ends whose engine does not tell the two
// apart.
var thinkEnd = []byte("</think>")

// thoughtful: the answer had a thought, which its template is likely to strip. What
// came without one is kept by its engine as the next turn will have it.
func (s *AnswerRecorder) thoughtful() bool { return s.thought || bytes.Contains(s.text.Data, thinkEnd) }

// historyOf is the history of a request and its answer, not yet written. It keeps of the
// request what write needs, and weighs as much memory as it keeps from being freed.
func historyOf(c *request.Request, answer []byte) *history {
	kept := &request.Request{Endpoint: c.Endpoint, Body: c.Body, Model: c.Model, Salt: c.Salt}
	weight := int64(cap(c.Body.With())+cap(answer)) + 1<<10
	h := &history{model: c.Model, tenant: c.Tenant, request: kept, answer: answer, prefix: c.Prefix, weight: weight}
	h.template, h.foreseen = TemplateOf(c)
	return h
}

// write makes the body, and returns false where there is nothing to append to. It takes
// tens of milliseconds for a MiB.
func (h *history) write() bool {
	c, answer := h.request, h.answer
	h.request, h.answer = nil, nil
	messages := bytes.TrimSpace(c.Body.Get("messages"))
	if !json.Valid(slices.Concat([]byte{'"'}, answer, []byte{'"'})) {
		return false // an engine wrote it, and another is to read it
	}
	if len(messages) < 2 || messages[len(messages)-1] != ']' {
		return false
	}
	front := bytes.TrimRight(messages[:len(messages)-1], " \t\r\n")
	if len(front) == 0 || front[len(front)-1] == '[' {
		return false // a chat that no user began
	}
	list := make([]byte, 0, len(front)+len(answer)+128)
	list = append(list, front...)
	list = append(list, `,{"role":"assistant","content":"`...)
	list = append(list, answer...)
	list = append(list, `"}`...)
	before := append(list, ']') // the user's message is written over the bracket
	view, isObject := openai.ViewBody(c.Body.With(openai.Edit{Name: "messages", Value: before}))
	if !isObject {
		return false
	}
	h.prefix, _ = placement.OfText(c.Scope(), view.Conversation())
	list = append(list, `,{"role":"user","content":""}]`...)
	h.body = c.Body.With(append(PromptOnly(true), openai.Edit{Name: "messages", Value: list}, openai.Edit{Name: "add_generation_prompt", Value: []byte("false")})...)
	return true
}

// PromptOnly are the edits that leave of a request what its prompt is made of: one
// token is generated, and nothing is told of it. What could end or forbid that token,
// or have more of it, goes.
func PromptOnly(chat bool) []openai.Edit {
	edits := []openai.Edit{
		{Name: "max_tokens", Value: json.RawMessage("1")},
		{Name: "stream", Value: []byte("false")},
	}
	if chat {
		edits = append(edits, openai.Edit{Name: "max_completion_tokens", Value: json.RawMessage("1")})
	}
	for _, name := range []string{
		"stream_options", "n", "best_of", "min_tokens", "stop", "stop_token_ids", "logprobs", "top_logprobs", "prompt_logprobs",
		"echo", "return_token_ids", "resume_token_ids", "think_tokens", "store",
	} {
		edits = append(edits, openai.Edit{Name: name})
	}
	return edits
}
