package request

import (
	"cmp"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"

	"meridian/decide/placement"
	"meridian/serve/gateway/thought"
	"meridian/serve/openai"
)

// How long a client lets a model think comes in many members: a number of tokens, an effort,
// or a switch. The gateway makes one number of them, and says it to engines in the member
// that each kind knows. What a client wrote into such a member stays.
const (
	memberMaxThink = "max_think_tokens"
	memberBudget   = "thinking_token_budget"
	memberEffort   = "reasoning_effort"
	memberXArgs    = "vllm_xargs"
	// xargsMaxThink stands within vllm_xargs.
	xargsMaxThink = "meridian_max_think_tokens"
	// memberTemplate has what templates read: an effort by the name that it has outside, and a
	// number of tokens.
	memberTemplate = "chat_template_kwargs"
	templateBudget = "thinking_budget"
)

// efforts are OpenAI's, and max, which vLLM has besides.
var efforts = []string{"none", "minimal", "low", "medium", "high", "xhigh", "max"}

// thinkWish is what a client says of how long a thought may be.
type thinkWish struct {
	tokens    *int // the least that it says in tokens
	unlimited bool // it says that there is no limit
	effort    string
	// ofTemplate is an effort that the client gives the template alone.
	ofTemplate string
}

// readThinkWish reads the members, and refuses what no engine would understand.
func (r *Request) readThinkWish(body *openai.Body) (w thinkWish, fault *openai.Error) {
	least := func(name string, n *int, lowest int) *openai.Error {
		switch {
		case n == nil:
		case *n < lowest || *n > openai.MaxUsage:
			return openai.Invalid(name, "%s is %d, and must be a number of tokens from %d to %d", name, *n, lowest, openai.MaxUsage)
		case *n < 0:
			w.unlimited = true
		case w.tokens == nil || *n < *w.tokens:
			w.tokens = n
		}
		return nil
	}
	for name, lowest := range map[string]int{memberMaxThink: 0, memberBudget: -1} {
		var n *int
		if fault := body.Read(name, &n); fault != nil {
			return w, fault
		}
		if fault := least(name, n, lowest); fault != nil {
			return w, fault
		}
	}
	for name, raw := range openai.Members(body.Get(memberXArgs)) {
		if name != xargsMaxThink {
			continue
		}
		n, err := strconv.Atoi(string(raw))
		if err != nil {
			return w, openai.Invalid(memberXArgs, "%s in %s must be a number of tokens", xargsMaxThink, memberXArgs)
		}
		if fault := least(xargsMaxThink, &n, 0); fault != nil {
			return w, fault
		}
	}
	if !r.IsChat() {
		return w, nil
	}
	if fault := body.Read(memberEffort, &w.effort); fault != nil {
		return w, fault
	}
	if w.effort != "" && !slices.Contains(efforts, w.effort) {
		return w, openai.Invalid(memberEffort, "%s is %.64q; there are %s", memberEffort, w.effort, strings.Join(efforts, ", "))
	}
	budget, fault := w.readTemplate(body)
	if fault == nil {
		fault = least(templateBudget, budget, -1)
	}
	return w, fault
}

// readTemplate reads what the client gives the chat template. What is no whole number there, or no
// word, the template may understand, and says nothing here. A member that comes twice is refused,
// as engines would not agree on which one counts.
func (w *thinkWish) readTemplate(body *openai.Body) (budget *int, fault *openai.Error) {
	seen := make(map[string]bool)
	for name, raw := range openai.Members(body.Get(memberTemplate)) {
		if name != memberEffort && name != templateBudget {
			continue
		}
		if seen[name] {
			return nil, openai.Invalid(memberTemplate, "%s stands twice in %s", name, memberTemplate)
		}
		seen[name] = true
		if name == templateBudget {
			// One beyond all numbers is read as the last of them, and is too large.
			if n, err := strconv.Atoi(string(raw)); err == nil || errors.Is(err, strconv.ErrRange) {
				budget = &n
			}
			continue
		}
		var effort string
		if json.Unmarshal(raw, &effort) == nil {
			w.ofTemplate = effort
		}
	}
	return budget, nil
}

// limit is how many tokens a thought may have; nil: the client leaves it to the engine. A
// number counts for more than a switch, and that for more than an effort.
func (w *thinkWish) limit(off bool, ofEffort map[string]int) *int {
	effort := cmp.Or(w.effort, w.ofTemplate) // vLLM gives its template the first
	switch tokens, known := ofEffort[effort]; {
	case w.tokens != nil:
		return w.tokens
	case w.unlimited:
		return nil
	case off || effort == "none":
		return new(int)
	case known:
		return &tokens
	}
	return nil
}

// thinksNot: the client has turned thinking off, by what templates call it or by an effort of
// none, of which vLLM makes the same.
func (r *Request) thinksNot() bool {
	asked := false
	for name, value := range openai.Members(r.Body.Get(memberTemplate)) {
		if name == "enable_thinking" || name == "thinking" {
			if asked = true; string(value) == "false" {
				return true
			}
		}
	}
	return !asked && r.wish.effort == "none"
}

// LimitThought notes how long the thought of the request may be, and how vLLM is told.
func (r *Request) LimitThought(efforts map[string]int, known thought.Markers) {
	r.MaxThink = r.wish.limit(r.IsChat() && r.thinksNot(), efforts)
	r.TellLimit = known.Limit
	switch {
	case !r.IsChat():
	case r.MaxThink != nil && *r.MaxThink == 0:
		r.Phase = placement.Answer
	case len(known.Ends) > 0:
		r.Phase = placement.Think
	}
}

// LimitEdits tell an engine how long a thought may be, where the client has not.
func (r *Request) LimitEdits(kind openai.EngineKind) []openai.Edit {
	if r.MaxThink == nil {
		return nil
	}
	limit := strconv.AppendInt(nil, int64(*r.MaxThink), 10)
	name := ""
	switch {
	case kind == openai.KindMeridian:
		name = memberMaxThink
	case kind == openai.KindVLLM && r.TellLimit == thought.LimitBudget:
		name = memberBudget
	case kind == openai.KindVLLM && r.TellLimit == thought.LimitXArgs:
		return r.limitInXArgs(limit)
	}
	if name == "" || r.Body.Has(name) {
		return nil
	}
	return []openai.Edit{{Name: name, Value: limit}}
}

func (r *Request) limitInXArgs(limit json.RawMessage) []openai.Edit {
	raw := r.Body.Get(memberXArgs)
	if raw == nil || string(raw) == "null" {
		raw = json.RawMessage("{}")
	}
	view, isObject := openai.ViewBody(raw)
	if !isObject || view.Has(xargsMaxThink) {
		return nil // the engine says what is wrong with it, or the client has said how long
	}
	return []openai.Edit{{Name: memberXArgs, Value: view.With(openai.Edit{Name: xargsMaxThink, Value: limit})}}
}
