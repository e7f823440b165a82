package thought

import (
	"encoding/json"
	"slices"
	"strconv"

	"meridian/serve/openai"
)

// count counts the tokens of a thought, where the engine tells ids and the model's markers
// are known by theirs.
func (t *Split) count(one *answerState, list json.RawMessage, says, thinks bool) {
	if t.uncounted {
		return
	}
	if len(list) == 0 || list[0] != '[' {
		if says {
			t.uncounted = true
		}
		return
	}
	for raw := range openai.Elements(list) {
		n, err := strconv.ParseUint(string(raw), 10, 32)
		id := uint32(n)
		switch {
		case err != nil:
			t.uncounted = true
			return
		case slices.Contains(t.options.Markers.EndIDs, id):
			one.within, one.ended = false, true
		case slices.Contains(t.options.Markers.StartIDs, id):
			one.within = true
		case one.within:
			one.tokens++
		}
	}
	if thinks && !one.within && !one.ended {
		t.uncounted = true // its template opens thoughts, and it was not told
	}
}

// usage is an engine's with how many tokens were thought; nil where the engine tells itself,
// or that is not known.
func (t *Split) usage(raw json.RawMessage) []byte {
	if raw == nil || t.uncounted || len(t.index) == 0 {
		return nil
	}
	total := 0
	for _, one := range t.index {
		total += one.tokens
	}
	return openai.WithDetail(raw, "reasoning_tokens", strconv.AppendInt(nil, int64(total), 10))
}
