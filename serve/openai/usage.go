package openai

import "encoding/json"

// WithDetail puts a member into a usage's completion_tokens_details, where it has none; nil
// where it has, or is no usage.
func WithDetail(usage json.RawMessage, name string, value []byte) []byte {
	view, isObject := ViewBody(usage)
	if !isObject {
		return nil
	}
	const details = "completion_tokens_details"
	inner, isObject := ViewBody(view.Get(details))
	if !isObject {
		inner, _ = ViewBody([]byte("{}"))
	}
	if inner.Has(name) {
		return nil
	}
	return view.With(Edit{Name: details, Value: inner.With(Edit{Name: name, Value: value})})
}

// MaxUsage is how many tokens are believed of what an engine tells.
const MaxUsage = 1 << 30

// Take reads what an engine counts, within bounds; what cannot be read is not told.
func (u *Usage) Take(data json.RawMessage) {
	if json.Unmarshal(data, u) != nil {
		u.PromptDetails = nil
	}
	for _, count := range []*int{&u.PromptTokens, &u.CompletionTokens, &u.TotalTokens} {
		*count = min(max(*count, 0), MaxUsage)
	}
	if d := u.OutputDetails; d != nil {
		d.ReasoningTokens = min(max(d.ReasoningTokens, 0), u.CompletionTokens)
	}
}
