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
