package upstream

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

// Legs makes the requests that one client's request becomes.
type Legs struct {
	Request *request.Request
	Key     *[32]byte // seals legs; nil where there is no cell
	ID      kv.ID     // of the request
	Seed    int64     // for a client that gave none
	// Learns: the prompt's tokens are worth knowing.
	Learns bool
}

// seal is the gateway's word for one leg, nil for an engine whose own name it
// does not know: a word for another one would be refused.
func (l *Legs) seal(kind trust.LegKind, t kv.ID, traced trust.Trace, to *roster.About) []byte {
	if l.Key == nil || to.Nameless || to.ID == "" || len(to.ID) > 255 {
		return nil
	}
	leg := trust.Leg{Kind: kind, ID: t, Engine: to.ID, Trace: traced}
	if to.Legs >= trust.RequestLegVersion {
		leg.Request = l.ID
	}
	if to.Legs >= trust.TenantLegVersion && l.Request != nil {
		leg.Tenant = l.Request.Tenant
	}
	return leg.Seal(*l.Key)
}

// sealAlone is the word for a request that an engine serves by itself: what it keeps and finds of
// the cell's prefixes is for that request. Agents of builds before ask for none there.
func (l *Legs) sealAlone(traced trust.Trace, to *roster.About) []byte {
	if to.Legs < trust.TenantLegVersion || l.ID == (kv.ID{}) {
		return nil
	}
	return l.seal(trust.LegDecode, l.ID, traced, to)
}

// WithLeg puts the word into the body of a request that is no client's own and that an engine
// serves by itself.
func (l *Legs) WithLeg(body *openai.Body, to *roster.About) []byte {
	leg := l.sealAlone(trust.Trace{}, to)
	if leg == nil {
		return body.With()
	}
	return body.With(openai.Edit{Name: "kv_transfer_params", Value: legParams(nil, leg)})
}

// legParams puts a sealed leg into params, which may be none.
func legParams(params json.RawMessage, leg []byte) json.RawMessage {
	value, err := json.Marshal(leg)
	if err != nil {
		panic(err) // bytes
	}
	return withMember(params, "meridian_leg", value)
}

var one = json.RawMessage("1")

// Prefill asks an engine to compute the prompt, keep it and offer it under t, which
// may be promised to another.
func (l *Legs) Prefill(t kv.ID, traced trust.Trace, to *roster.About, promised bool) []byte {
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
	if l.Learns && to.Kind == openai.KindVLLM {
		edits[len(edits)-1].Value = []byte("true")
	}
	if l.Request.IsChat() {
		edits = append(edits, openai.Edit{Name: "max_completion_tokens", Value: one})
	}
	return l.Request.Body.With(edits...)
}

// Promise is what a decode engine gets in the place of what a prefill engine has
// yet to send.
func (l *Legs) Promise(t kv.ID, from *roster.Home) json.RawMessage {
	sealed := trust.Promise{ID: t, Home: from.Name, Incarnation: from.Incarnation}.Seal(*l.Key)
	params, err := json.Marshal(openai.KVTransfer{DoRemotePrefill: true, Ticket: sealed})
	if err != nil {
		panic(err) // bytes
	}
	return params
}

// DecodeLeg is what a decode leg is made of.
type DecodeLeg struct {
	Transfer kv.ID
	Traced   trust.Trace          // where it stands in the request's trace
	Params   json.RawMessage      // as the prefill engine sent them, or a promise; nil for none
	Mode     lifecycle.ResumeMode // of a leg that goes on
	// Tells: the engine is to tell token ids, so that another can go on.
	Tells  bool
	Prompt []uint32 // of ResumeGreedy: the prompt's tokens
	Sofar  []uint32 // and those that the client has
	// Move is the transfer under which the leg may leave; zero: it may not.
	Move kv.ID
	// ThoughtEnd is after which tokens nothing of the answer is to be kept; nil: all is.
	ThoughtEnd []uint32
}

// Decode asks an engine to generate.
func (l *Legs) Decode(d DecodeLeg, to *roster.About) []byte {
	var edits []openai.Edit
	set := func(name string, value []byte) { edits = append(edits, openai.Edit{Name: name, Value: value}) }
	params := l.withName(l.withMove(withThoughtEnd(l.withLeg(d, to), d.ThoughtEnd), d, to), to)
	if params != nil {
		set("kv_transfer_params", params)
	}
	if d.Tells {
		set("return_token_ids", []byte("true"))
		if to.Kind == openai.KindMeridian && l.Request.Unseeded {
			set("seed", strconv.AppendInt(nil, l.Seed, 10))
		}
	}
	edits = append(edits, l.Request.LimitEdits(to.Kind)...)
	if d.Mode == lifecycle.ResumeExact {
		set("resume_token_ids", openai.AppendIDs(nil, slices.Concat(l.Request.Resumed, d.Sofar)))
	}
	return l.Request.Body.With(edits...)
}

// withLeg puts the gateway's word into what a prefill engine sent, and changes
// nothing else of it.
func (l *Legs) withLeg(d DecodeLeg, to *roster.About) json.RawMessage {
	var leg []byte
	if d.Params == nil {
		leg = l.sealAlone(d.Traced, to)
	} else {
		leg = l.seal(trust.LegDecode, d.Transfer, d.Traced, to)
	}
	if leg == nil {
		return d.Params
	}
	return legParams(d.Params, leg)
}

// withThoughtEnd says in a leg's params after which tokens nothing is to be kept.
func withThoughtEnd(params json.RawMessage, end []uint32) json.RawMessage {
	if len(end) == 0 {
		return params
	}
	return withMember(params, "meridian_thought_end", openai.AppendIDs(nil, end))
}

// withMove says in a leg's params under which transfer it may leave.
func (l *Legs) withMove(params json.RawMessage, d DecodeLeg, to *roster.About) json.RawMessage {
	if d.Move == (kv.ID{}) {
		return params
	}
	move, err := json.Marshal(openai.Move{Transfer: d.Move.String(), Leg: l.seal(trust.LegPrefill, d.Move, d.Traced, to)})
	if err != nil {
		panic(err) // texts and bytes
	}
	return withMember(params, "meridian_move", move)
}

// withName gives the request a name in a leg's params, under which vLLM's workers tell that they
// have ended its thought.
func (l *Legs) withName(params json.RawMessage, to *roster.About) json.RawMessage {
	if to.Kind != openai.KindVLLM || l.Request.TellLimit != thought.LimitXArgs {
		return params
	}
	return withMember(params, "meridian_request", openai.Quote(l.ID.String()))
}

// withAnswers tells vLLM's workers that the prompt of a chat's leg ends within its answer: there is a
// thought before it, or none, and the end of the prompt does not tell. What of a chat can go
// on elsewhere ends with a token of the answer; a completion's may be anything.
func (l *Legs) withAnswers(params json.RawMessage, d DecodeLeg, to *roster.About) json.RawMessage {
	if to.Kind != openai.KindVLLM || !l.Request.IsChat() || len(d.Sofar) == 0 {
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

// Greedy asks an engine to go on after tokens that become part of the prompt.
// It is a completion, whatever the client asked for; ok is false where nothing
// is left to generate.
func (l *Legs) Greedy(d DecodeLeg, to *roster.About) (body []byte, ok bool) {
	limit := defaultCompletionTokens
	switch {
	case l.Request.MaxTokens != nil:
		limit = *l.Request.MaxTokens
	case l.Request.Unlimited():
		limit = to.MaxContext - len(d.Prompt)
	}
	limit -= len(d.Sofar)
	if limit < 1 {
		return nil, false
	}
	prompt := openai.AppendIDs(nil, slices.Concat(d.Prompt, d.Sofar))
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
	return l.Request.Body.With(edits...), true
}

// Offer asks an engine that a greedy leg has left to offer prompt and answer so far, nearly all
// of which it has in its cache. It is a completion, as the leg that goes on after it will be:
// a ticket is for the very tokens of its prompt.
func (l *Legs) Offer(d DecodeLeg, to *roster.About) []byte {
	params, err := json.Marshal(openai.RemoteDecode(d.Transfer.String(), l.seal(trust.LegPrefill, d.Transfer, d.Traced, to)))
	if err != nil {
		panic(err) // texts and bytes
	}
	return l.Request.Body.With(
		openai.Edit{Name: "prompt", Value: openai.AppendIDs(nil, slices.Concat(d.Prompt, d.Sofar))},
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
