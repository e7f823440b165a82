package gateway

import (
	"encoding/json"
	"slices"
	"strconv"

	"meridian/kv"
	"meridian/member/trust"
	"meridian/serve/gateway/lifecycle"
	"meridian/serve/gateway/request"
	"meridian/serve/gateway/roster"
	"meridian/serve/gateway/thought"
	"meridian/serve/openai"
)

// legs makes the requests that one client's request becomes.
type legs struct {
	request *request.Request
	key     *[32]byte // seals legs; nil where there is no cell
	id      kv.ID     // of the request
	seed    int64     // for a client that gave none
	// learns: the prompt's tokens are worth knowing.
	learns bool
}

// seal is the gateway's word for one leg, nil for an engine whose own name it
// does not know: a word for another one would be refused.
func (l *legs) seal(kind trust.LegKind, t kv.ID, traced trust.Trace, to *roster.About) []byte {
	if l.key == nil || to.Nameless || to.ID == "" || len(to.ID) > 255 {
		return nil
	}
	leg := trust.Leg{Kind: kind, ID: t, Engine: to.ID, Trace: traced}
	if to.Legs >= trust.LegVersion {
		leg.Request = l.id
	}
	return leg.Seal(*l.key)
}

var one = json.RawMessage("1")

// prefill asks an engine to compute the prompt, keep it and offer it under t, which
// may be promised to another.
func (l *legs) prefill(t kv.ID, traced trust.Trace, to *roster.About, promised bool) []byte {
	transfer := openai.RemoteDecode(t.String(), l.seal(trust.LegPrefill, t, traced, to))
	transfer.Promised = promised
	params, err := json.Marshal(transfer)
	if err != nil {
		panic(err) // texts and bytes
	}
	edits := []openai.Edit{
		{Name: "max_tokens", Value: one},
		{Name: "stream", Value: json.RawMessage("false")},
		{Name: "kv_transfer_params", Value: params},
		{Name: "stream_options"},
		{Name: "min_tokens"},
		{Name: "n"},
		{Name: "resume_token_ids"},
		{Name: "return_token_ids"},
	}
	if l.learns && to.Kind == openai.KindVLLM {
		edits[len(edits)-1].Value = []byte("true")
	}
	if l.request.IsChat() {
		edits = append(edits, openai.Edit{Name: "max_completion_tokens", Value: one})
	}
	return l.request.Body.With(edits...)
}

// promise is what a decode engine gets in the place of what a prefill engine has
// yet to send.
func (l *legs) promise(t kv.ID, from *roster.Home) json.RawMessage {
	sealed := trust.Promise{ID: t, Home: from.Name, Incarnation: from.Incarnation}.Seal(*l.key)
	params, err := json.Marshal(openai.KVTransfer{DoRemotePrefill: true, Ticket: sealed})
	if err != nil {
		panic(err) // bytes
	}
	return params
}

// decodeLeg is what a decode leg is made of.
type decodeLeg struct {
	transfer kv.ID
	traced   trust.Trace          // where it stands in the request's trace
	params   json.RawMessage      // as the prefill engine sent them, or a promise; nil for none
	promised *prefillRun          // of a promise: the prefill leg that is to fulfil it
	mode     lifecycle.ResumeMode // of a leg that goes on
	// tells: the engine is to tell token ids, so that another can go on.
	tells  bool
	prompt []uint32 // of resumeGreedy: the prompt's tokens
	sofar  []uint32 // and those that the client has
	// move is the transfer under which the leg may leave; zero: it may not.
	move kv.ID
	// thoughtEnd is after which tokens nothing of the answer is to be kept; nil: all is.
	thoughtEnd []uint32
}

// decode asks an engine to generate.
func (l *legs) decode(d decodeLeg, to *roster.About) []byte {
	var edits []openai.Edit
	set := func(name string, value []byte) { edits = append(edits, openai.Edit{Name: name, Value: value}) }
	params := l.withName(l.withMove(withThoughtEnd(l.withLeg(d, to), d.thoughtEnd), d, to), to)
	if params != nil {
		set("kv_transfer_params", params)
	}
	if d.tells {
		set("return_token_ids", []byte("true"))
		if to.Kind == openai.KindMeridian && l.request.Unseeded {
			set("seed", strconv.AppendInt(nil, l.seed, 10))
		}
	}
	edits = append(edits, l.request.LimitEdits(to.Kind)...)
	if d.mode == lifecycle.ResumeExact {
		set("resume_token_ids", openai.AppendIDs(nil, slices.Concat(l.request.Resumed, d.sofar)))
	}
	return l.request.Body.With(edits...)
}

// withLeg puts the gateway's word into what a prefill engine sent, and changes
// nothing else of it.
func (l *legs) withLeg(d decodeLeg, to *roster.About) json.RawMessage {
	if d.params == nil {
		return nil
	}
	leg := l.seal(trust.LegDecode, d.transfer, d.traced, to)
	view, isObject := openai.ViewBody(d.params)
	if leg == nil || !isObject {
		return d.params
	}
	value, err := json.Marshal(leg)
	if err != nil {
		panic(err) // bytes
	}
	return view.With(openai.Edit{Name: "meridian_leg", Value: value})
}

// withThoughtEnd says in a leg's params after which tokens nothing is to be kept.
func withThoughtEnd(params json.RawMessage, end []uint32) json.RawMessage {
	if len(end) == 0 {
		return params
	}
	return withMember(params, "meridian_thought_end", openai.AppendIDs(nil, end))
}

// withMove says in a leg's params under which transfer it may leave.
func (l *legs) withMove(params json.RawMessage, d decodeLeg, to *roster.About) json.RawMessage {
	if d.move == (kv.ID{}) {
		return params
	}
	move, err := json.Marshal(openai.Move{Transfer: d.move.String(), Leg: l.seal(trust.LegPrefill, d.move, d.traced, to)})
	if err != nil {
		panic(err) // texts and bytes
	}
	return withMember(params, "meridian_move", move)
}

// withName gives the request a name in a leg's params, under which vLLM's workers tell that they
// have ended its thought.
func (l *legs) withName(params json.RawMessage, to *roster.About) json.RawMessage {
	if to.Kind != openai.KindVLLM || l.request.TellLimit != thought.LimitXArgs {
		return params
	}
	return withMember(params, "meridian_request", openai.Quote(l.id.String()))
}

// withAnswers tells vLLM's workers that the prompt of a chat's leg ends within its answer: there is a
// thought before it, or none, and from the end of the prompt nobody can tell. What of a chat can go
// on elsewhere ends with a token of the answer; a completion's may be anything.
func (l *legs) withAnswers(params json.RawMessage, d decodeLeg, to *roster.About) json.RawMessage {
	if to.Kind != openai.KindVLLM || !l.request.IsChat() || len(d.sofar) == 0 {
		return params
	}
	return withMember(params, "meridian_answers", []byte("true"))
}

// withMember adds to a leg's params, which may be none.
func withMember(params json.RawMessage, name string, value []byte) json.RawMessage {
	if params == nil {
		params = json.RawMessage("{}")
	}
	view, isObject := openai.ViewBody(params)
	if !isObject {
		return params
	}
	return view.With(openai.Edit{Name: name, Value: value})
}

// defaultCompletionTokens is what /v1/completions generates where nothing is
// said.
const defaultCompletionTokens = 16

// greedy asks an engine to go on after tokens that become part of the prompt.
// It is a completion, whatever the client asked for; ok is false where nothing
// is left to generate.
func (l *legs) greedy(d decodeLeg, to *roster.About) (body []byte, ok bool) {
	limit := defaultCompletionTokens
	switch {
	case l.request.MaxTokens != nil:
		limit = *l.request.MaxTokens
	case l.request.Unlimited():
		limit = to.MaxContext - len(d.prompt)
	}
	limit -= len(d.sofar)
	if limit < 1 {
		return nil, false
	}
	prompt := openai.AppendIDs(nil, slices.Concat(d.prompt, d.sofar))
	edits := []openai.Edit{
		{Name: "prompt", Value: prompt},
		{Name: "max_tokens", Value: strconv.AppendInt(nil, int64(limit), 10)},
		{Name: "return_token_ids", Value: []byte("true")},
		{Name: "messages"},
		{Name: "max_completion_tokens"},
	}
	if params := l.withAnswers(l.withLeg(d, to), d, to); params != nil {
		edits = append(edits, openai.Edit{Name: "kv_transfer_params", Value: params})
	}
	return l.request.Body.With(edits...), true
}

// offer asks an engine that a greedy leg has left to offer prompt and answer so far, nearly all
// of which it has in its cache. It is a completion, as the leg that goes on after it will be:
// a ticket is for the very tokens of its prompt.
func (l *legs) offer(d decodeLeg, to *roster.About) []byte {
	params, err := json.Marshal(openai.RemoteDecode(d.transfer.String(), l.seal(trust.LegPrefill, d.transfer, d.traced, to)))
	if err != nil {
		panic(err) // texts and bytes
	}
	return l.request.Body.With(
		openai.Edit{Name: "prompt", Value: openai.AppendIDs(nil, slices.Concat(d.prompt, d.sofar))},
		openai.Edit{Name: "max_tokens", Value: one},
		openai.Edit{Name: "stream", Value: json.RawMessage("false")},
		openai.Edit{Name: "kv_transfer_params", Value: l.withAnswers(params, d, to)},
		openai.Edit{Name: "messages"},
		openai.Edit{Name: "max_completion_tokens"},
		openai.Edit{Name: "stream_options"},
		openai.Edit{Name: "n"},
		openai.Edit{Name: "return_token_ids"},
	)
}
