// Package request is what a client asks for, as far as a gateway must know: it reads the
// body, refuses what no client may send, and makes the chains by which the prompt is found
// in engines' caches.
package request

import (
	"bytes"
	"encoding/json"
	"math"
	"slices"
	"strings"

	"meridian/decide/placement"
	"meridian/serve/gateway/thought"
	"meridian/serve/openai"
)

// Request is what a client wants, as far as a gateway must know.
type Request struct {
	Endpoint string
	Body     *openai.Body
	Model    string
	Stream   bool
	// WantsIDs: the client itself asked for token ids.
	WantsIDs bool
	// WantsUsage: a stream is to end with how many tokens there were.
	WantsUsage bool
	// Whole: several answers or prompts at once, which one engine serves. Each is
	// how many answers a prompt gets, Answers how many there are in all.
	Whole         bool
	Each, Answers int
	// Plain: nothing is asked for but text, so that a prompt made of tokens
	// says all there is.
	Plain  bool
	Greedy bool
	// Unseeded: sampled without a seed, so that the answer could not be gone on with.
	Unseeded  bool
	MaxTokens *int
	Resumed   []uint32 // tokens that the client itself goes on after
	// wish is how long the client lets the model think, MaxThink what that comes to in tokens,
	// and TellLimit how vLLM is told.
	wish      thinkWish
	MaxThink  *int
	TellLimit thought.Limit
	// Phase is what its answer begins with; 0 where that is not known.
	Phase placement.Phases

	Prefix placement.Prefix
	Tokens int // of the prompt, about
	Turn   uint64
	// IDs are the prompt's tokens, as far as they are known; Partly means that
	// they are those of its beginning.
	IDs    []uint32
	Partly bool
	Salt   string
	// Tenant is whose it is, by the API key that it came with; empty where that is not asked for.
	Tenant string
	// prompts are the prompt as engines cache it, without and with an adapter.
	prompts [2]*Prompt
}

// IsChat: it came by the endpoint for chats.
func (r *Request) IsChat() bool { return r.Endpoint == openai.PathChat }

// plainMembers say nothing that a prompt of token ids would lose.
var plainMembers = []string{
	"model", "prompt", "messages", "max_tokens", "max_completion_tokens", "temperature", "top_p", "top_k", "min_p", "seed", "stream",
	"stream_options", "user", "n", "return_token_ids", "cache_salt", "store", "metadata", "priority", "request_id",
	// It counts tokens of prompts as it does those of answers.
	"repetition_penalty",
	// They look at one token at a time.
	"ignore_eos", "stop_token_ids",
}

// MaxModelBytes is longer than any model's name. What is longer is not kept, not
// even while an engine is waited for.
const MaxModelBytes = 1 << 10

// CheckModel refuses a name that no model has.
func CheckModel(name string) *openai.Error {
	if len(name) > MaxModelBytes {
		return openai.Invalid("model", "model has %d bytes, and may have %d at most", len(name), MaxModelBytes)
	}
	return nil
}

// maxAnswers is how many answers to a prompt may be asked for.
const maxAnswers = 16 << 10

// wantsUsage leaves options that cannot be read to the engine.
func wantsUsage(body *openai.Body) bool {
	var options openai.StreamOptions
	return json.Unmarshal(body.Get("stream_options"), &options) == nil && options.IncludeUsage
}

func isPlain(body *openai.Body) bool {
	for name, value := range body.Members() {
		if string(value) != "null" && !slices.Contains(plainMembers, name) {
			return false
		}
	}
	return true
}

// Parse reads a request's body.
func Parse(endpoint string, data []byte) (*Request, *openai.Error) {
	body, fault := openai.ParseBody(data)
	if fault != nil {
		return nil, fault
	}
	if fault := refuseTransfers(body); fault != nil {
		return nil, fault
	}
	if fault := checkSpelling(body); fault != nil {
		return nil, fault
	}
	r := &Request{Endpoint: endpoint, Body: body}
	var n, bestOf *int
	var temperature *float64
	var seed *int64
	var maxCompletion *int
	var echo, beams bool
	for _, member := range []struct {
		name string
		into any
	}{
		{"model", &r.Model},
		{"stream", &r.Stream},
		{"return_token_ids", &r.WantsIDs},
		{"n", &n},
		{"best_of", &bestOf},
		{"temperature", &temperature},
		{"seed", &seed},
		{"max_tokens", &r.MaxTokens},
		{"max_completion_tokens", &maxCompletion},
		{"resume_token_ids", &r.Resumed},
		{"echo", &echo},
		{"use_beam_search", &beams},
	} {
		if fault := body.Read(member.name, member.into); fault != nil {
			return nil, fault
		}
	}
	if fault := CheckModel(r.Model); fault != nil {
		return nil, fault
	}
	if r.wish, fault = r.readThinkWish(body); fault != nil {
		return nil, fault
	}
	if maxCompletion != nil && r.IsChat() {
		r.MaxTokens = maxCompletion
	}
	for name, count := range map[string]*int{"n": n, "best_of": bestOf} {
		if count != nil && *count > maxAnswers {
			return nil, openai.Invalid(name, "%s is %d, and may be %d at most", name, *count, maxAnswers)
		}
	}
	if r.Each = 1; n != nil {
		r.Each = max(*n, 1)
	}
	r.WantsUsage = wantsUsage(body)
	several := func(count *int) bool { return count != nil && *count > 1 }
	r.Whole = several(n) || several(bestOf) || echo || body.Has("prompt_logprobs") || beams || body.Has("prompt_embeds")
	r.Greedy = temperature != nil && *temperature == 0
	r.Unseeded = !r.Greedy && seed == nil
	r.Plain = isPlain(body)
	return r, r.readPrompt()
}

// ownMembers are what the gateway reads of a request or writes into it.
var ownMembers = []string{
	"model", "prompt", "prompt_embeds", "messages", "tools", "stream", "stream_options", "n", "best_of", "echo", "prompt_logprobs", "use_beam_search",
	"temperature", "seed", "max_tokens", "max_completion_tokens", "min_tokens", "return_token_ids", "resume_token_ids", "cache_salt", "vllm_xargs",
	memberMaxThink, memberBudget, memberEffort, memberTemplate,
}

// checkSpelling refuses a member that some engines would take for one of the
// gateway's own, and the gateway does not: Go reads STREAM as stream.
func checkSpelling(body *openai.Body) *openai.Error {
	for name := range body.Members() {
		for _, own := range ownMembers {
			if name != own && strings.EqualFold(name, own) {
				return openai.Invalid(name, "%q is not a member that engines agree on; write %q", name, own)
			}
		}
	}
	return nil
}

// transferMembers tell an engine to take caches from somewhere. A client that
// could send them could have an engine read what is not its own.
var transferMembers = []string{"kv_transfer_params", "ec_transfer_params"}

func refuseTransfers(body *openai.Body) *openai.Error {
	for name, value := range body.Members() {
		if fault := RefuseTransfer(name, value); fault != nil {
			return fault
		}
	}
	for name, value := range openai.Members(body.Get("vllm_xargs")) {
		if fault := RefuseTransfer(name, value); fault != nil {
			return fault
		}
	}
	return nil
}

// RefuseTransfer refuses a member; rest begins with its value.
func RefuseTransfer(name string, rest []byte) *openai.Error {
	for _, transfer := range transferMembers {
		if strings.EqualFold(name, transfer) && !bytes.HasPrefix(rest, []byte("null")) {
			return openai.Invalid(transfer, "%s is made by the gateway and not taken from clients; leave it out", transfer)
		}
	}
	return nil
}

// SetModel names the model in place of the client.
func (r *Request) SetModel(name string) *openai.Error {
	data, err := json.Marshal(name)
	if err != nil {
		panic(err) // a text
	}
	body, fault := openai.ParseBody(r.Body.With(openai.Edit{Name: "model", Value: data}))
	if fault != nil {
		return fault
	}
	r.Model, r.Body = name, body
	return r.readPrompt()
}

// readPrompt makes the chain of hashes by which engines that hold the prompt
// are found. Text is hashed as the body has it: what is the same prompt with
// other escapes is only placed less well.
func (r *Request) readPrompt() *openai.Error {
	if fault := r.Body.Read("cache_salt", &r.Salt); fault != nil {
		return fault
	}
	r.Answers = r.Each
	scope := r.Scope()
	if r.IsChat() {
		if r.Body.Get("messages") == nil {
			return openai.Invalid("messages", "messages is missing")
		}
		r.Prefix, r.Tokens = placement.OfText(scope, r.Body.Conversation())
		return nil
	}
	raw := bytes.TrimSpace(r.Body.Get("prompt"))
	switch {
	case len(raw) == 0 && r.Body.Has("prompt_embeds"):
		r.Answers = math.MaxInt // the gateway does not count embeddings; only [DONE] is the end
		r.Tokens = len(r.Body.Get("prompt_embeds")) / bytesPerEmbedding
		return nil
	case len(raw) == 0:
		return openai.Invalid("prompt", "prompt is missing")
	case raw[0] == '"':
		r.Prefix, r.Tokens = placement.OfText(scope, raw)
		return nil
	case raw[0] != '[':
		return openai.Invalid("prompt", "prompt must be a string, a list of token ids, or a list of either")
	}
	var prompt openai.Prompt
	if err := json.Unmarshal(raw, &prompt); err != nil {
		return openai.Invalid("prompt", "%v", err)
	}
	r.Whole, r.Answers = r.Whole || prompt.Len() > 1, r.Each*prompt.Len()
	switch {
	case r.Whole: // one engine takes it, whatever it is
		r.Tokens = len(raw) / 4
	case len(prompt.Tokens) == 1:
		r.IDs = prompt.Tokens[0]
		r.Prefix, r.Tokens = placement.OfTokens(scope, r.IDs), len(r.IDs)
	default:
		r.Prefix, r.Tokens = placement.OfText(scope, []byte(prompt.Texts[0]))
	}
	return nil
}

// bytesPerEmbedding is what a token of a prompt of embeddings takes in a body,
// about.
const bytesPerEmbedding = 8 << 10

// templateMembers make another prompt of the same text.
var templateMembers = []string{
	"chat_template", "chat_template_kwargs", "add_generation_prompt", "continue_final_message", "documents", "reasoning_effort",
	"add_special_tokens", "truncate_prompt_tokens", "tool_choice", "mm_processor_kwargs",
}

// Scope is what keeps caches of equal texts apart.
func (r *Request) Scope() string {
	scope := r.Model + "\x00" + r.Salt
	for _, name := range templateMembers {
		if value := r.Body.Get(name); value != nil {
			scope += "\x00" + name + "\x00" + string(value)
		}
	}
	return scope
}

// IsText: the engine makes tokens of it.
func (r *Request) IsText() bool { return r.Prefix.Bytes > 0 }

// Known is the prompt as an engine caches it that has the model by itself, or as an adapter;
// nil where its tokens are not known.
func (r *Request) Known(isAdapter bool) *Prompt {
	if len(r.IDs) == 0 {
		return nil
	}
	i, adapter := 0, ""
	if isAdapter {
		i, adapter = 1, r.Model
	}
	if r.prompts[i] == nil {
		r.prompts[i] = &Prompt{scope: placement.Scope{Adapter: adapter, Salt: r.Salt}, tokens: r.IDs, Guess: r.Partly}
	}
	return r.prompts[i]
}

// Unlimited: the answer may be as long as the engine's context. A chat that says
// nothing is, and a completion that says null.
func (r *Request) Unlimited() bool {
	return r.MaxTokens == nil && (r.IsChat() || r.Body.Get("max_tokens") != nil)
}

// Placement is the request as place weighs it.
func (r *Request) Placement() placement.Request {
	return placement.Request{Tokens: r.Tokens, Whole: r.Whole, Turn: r.Turn, Phase: r.Phase}
}

// BeginsThought: where a template opens thoughts, it does for this request. It does not
// where the client has turned thinking off, or has a template of its own, or goes on with a
// message; and an answer that must fit a grammar from its first token has no room for one.
func (r *Request) BeginsThought() bool {
	if r.thinksNot() || openai.IsTrue(r.Body.Get("continue_final_message")) || string(r.Body.Get("add_generation_prompt")) == "false" {
		return false
	}
	for name, value := range r.Body.Members() {
		if constrains(name, value) {
			return false
		}
	}
	return !r.forcesTool()
}

// forcesTool: the answer must be a call of a tool.
func (r *Request) forcesTool() bool {
	choice := bytes.TrimSpace(r.Body.Get("tool_choice"))
	return string(choice) == `"required"` || len(choice) > 0 && choice[0] == '{'
}

// constrains: a member that makes another prompt, or leaves an answer no room for a thought.
func constrains(name string, value json.RawMessage) bool {
	switch {
	case string(value) == "null":
		return false
	case name == "response_format":
		for member, kind := range openai.Members(value) {
			if member == "type" && string(kind) == `"text"` {
				return false
			}
		}
		return true
	}
	return name == "chat_template" || name == "structured_outputs" || strings.HasPrefix(name, "guided_")
}

// StoredTokens is how many tokens of the prompt an engine can fetch, where so many of
// its hashes are kept: whole pieces of unit tokens, and never the last token, which is computed in any
// case.
func (r *Request) StoredTokens(hashes, unit int) int {
	return max(min(r.Prefix.Tokens(hashes, r.Tokens), r.Tokens-1), 0) / unit * unit
}

// Prompt is a prompt whose tokens are known, as engines cache it.
type Prompt struct {
	scope  placement.Scope
	tokens []uint32
	// Guess: those of a text that begins alike; the rest is not known.
	Guess  bool
	chains map[int]placement.Prefix // by tokens in a block
}

// Chain is its hashes, block by block of so many tokens.
func (p *Prompt) Chain(blockTokens int) placement.Prefix {
	chain, has := p.chains[blockTokens]
	if !has {
		chain = placement.OfBlocks(p.scope, p.tokens, blockTokens)
		if p.chains == nil {
			p.chains = make(map[int]placement.Prefix)
		}
		p.chains[blockTokens] = chain
	}
	return chain
}

// MayWarm tells whether the next turn of this request can be foreseen: a chat with
// one answer, which is a message of its own.
func (r *Request) MayWarm() bool {
	return r.IsChat() && !r.Whole && !r.forcesTool() && !openai.IsTrue(r.Body.Get("continue_final_message"))
}
