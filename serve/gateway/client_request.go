package gateway

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

// clientRequest is what a client wants, as far as a gateway must know.
type clientRequest struct {
	endpoint string
	body     *openai.Body
	model    string
	stream   bool
	// wantsIDs: the client itself asked for token ids.
	wantsIDs bool
	// wantsUsage: a stream is to end with how many tokens there were.
	wantsUsage bool
	// whole: several answers or prompts at once, which one engine serves. each is
	// how many answers a prompt gets, answers how many there are in all.
	whole         bool
	each, answers int
	// plain: nothing is asked for but text, so that a prompt made of tokens
	// says all there is.
	plain  bool
	greedy bool
	// sampled without a seed: the answer could not be gone on with.
	unseeded  bool
	maxTokens *int
	resumed   []uint32 // tokens that the client itself goes on after
	// wish is how long the client lets the model think, maxThink what that comes to in tokens,
	// and tellLimit how vLLM is told.
	wish      thinkWish
	maxThink  *int
	tellLimit thought.Limit
	// phase is what its answer begins with; 0 where that is not known.
	phase placement.Phases

	prefix placement.Prefix
	tokens int // of the prompt, about
	turn   uint64
	// ids are the prompt's tokens, as far as they are known; partly means that
	// they are those of its beginning.
	ids    []uint32
	partly bool
	salt   string
	// prompts are the prompt as engines cache it, without and with an adapter.
	prompts [2]*knownPrompt
}

func (c *clientRequest) isChat() bool { return c.endpoint == openai.PathChat }

// plainMembers say nothing that a prompt of token ids would lose.
var plainMembers = []string{
	"model", "prompt", "messages", "max_tokens", "max_completion_tokens", "temperature", "top_p", "top_k", "min_p", "seed", "stream",
	"stream_options", "user", "n", "return_token_ids", "cache_salt", "store", "metadata", "priority", "request_id",
	// It counts tokens of prompts as it does those of answers.
	"repetition_penalty",
	// They look at one token at a time.
	"ignore_eos", "stop_token_ids",
}

// maxModelBytes is longer than any model's name. What is longer is not kept, not
// even while an engine is waited for.
const maxModelBytes = 1 << 10

func checkModel(name string) *openai.Error {
	if len(name) > maxModelBytes {
		return openai.Invalid("model", "model has %d bytes, and may have %d at most", len(name), maxModelBytes)
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

// parseClientRequest reads a request's body.
func parseClientRequest(endpoint string, data []byte) (*clientRequest, *openai.Error) {
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
	c := &clientRequest{endpoint: endpoint, body: body}
	var n, bestOf *int
	var temperature *float64
	var seed *int64
	var maxCompletion *int
	for _, member := range []struct {
		name string
		into any
	}{
		{"model", &c.model},
		{"stream", &c.stream},
		{"return_token_ids", &c.wantsIDs},
		{"n", &n},
		{"best_of", &bestOf},
		{"temperature", &temperature},
		{"seed", &seed},
		{"max_tokens", &c.maxTokens},
		{"max_completion_tokens", &maxCompletion},
		{"resume_token_ids", &c.resumed},
	} {
		if fault := body.Read(member.name, member.into); fault != nil {
			return nil, fault
		}
	}
	if fault := checkModel(c.model); fault != nil {
		return nil, fault
	}
	if c.wish, fault = c.readThinkWish(body); fault != nil {
		return nil, fault
	}
	if maxCompletion != nil && c.isChat() {
		c.maxTokens = maxCompletion
	}
	for name, count := range map[string]*int{"n": n, "best_of": bestOf} {
		if count != nil && *count > maxAnswers {
			return nil, openai.Invalid(name, "%s is %d, and may be %d at most", name, *count, maxAnswers)
		}
	}
	if c.each = 1; n != nil {
		c.each = max(*n, 1)
	}
	c.wantsUsage = wantsUsage(body)
	several := func(count *int) bool { return count != nil && *count > 1 }
	c.whole = several(n) || several(bestOf) || openai.IsTrue(body.Get("echo")) || body.Has("prompt_logprobs") ||
		openai.IsTrue(body.Get("use_beam_search")) || body.Has("prompt_embeds")
	c.greedy = temperature != nil && *temperature == 0
	c.unseeded = !c.greedy && seed == nil
	c.plain = isPlain(body)
	return c, c.readPrompt()
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

// transferMembers tell an engine to take caches from somewhere. Whoever could
// send them could have an engine read what is not theirs.
var transferMembers = []string{"kv_transfer_params", "ec_transfer_params"}

func refuseTransfers(body *openai.Body) *openai.Error {
	for name, value := range body.Members() {
		if fault := refuseTransfer(name, value); fault != nil {
			return fault
		}
	}
	for name, value := range openai.Members(body.Get("vllm_xargs")) {
		if fault := refuseTransfer(name, value); fault != nil {
			return fault
		}
	}
	return nil
}

// refuseTransfer refuses a member; rest begins with its value.
func refuseTransfer(name string, rest []byte) *openai.Error {
	for _, transfer := range transferMembers {
		if strings.EqualFold(name, transfer) && !bytes.HasPrefix(rest, []byte("null")) {
			return openai.Invalid(transfer, "%s is made by the gateway and not taken from clients; leave it out", transfer)
		}
	}
	return nil
}

// readPrompt makes the chain of hashes by which engines that hold the prompt
// are found. Text is hashed as the body has it: what is the same prompt with
// other escapes is only placed less well.
func (c *clientRequest) readPrompt() *openai.Error {
	if fault := c.body.Read("cache_salt", &c.salt); fault != nil {
		return fault
	}
	c.answers = c.each
	scope := c.scope()
	if c.isChat() {
		if c.body.Get("messages") == nil {
			return openai.Invalid("messages", "messages is missing")
		}
		c.prefix, c.tokens = placement.OfText(scope, c.body.Conversation())
		return nil
	}
	raw := bytes.TrimSpace(c.body.Get("prompt"))
	switch {
	case len(raw) == 0 && c.body.Has("prompt_embeds"):
		c.answers = math.MaxInt // nobody here counts embeddings; only [DONE] is the end
		c.tokens = len(c.body.Get("prompt_embeds")) / bytesPerEmbedding
		return nil
	case len(raw) == 0:
		return openai.Invalid("prompt", "prompt is missing")
	case raw[0] == '"':
		c.prefix, c.tokens = placement.OfText(scope, raw)
		return nil
	case raw[0] != '[':
		return openai.Invalid("prompt", "prompt must be a string, a list of token ids, or a list of either")
	}
	var prompt openai.Prompt
	if err := json.Unmarshal(raw, &prompt); err != nil {
		return openai.Invalid("prompt", "%v", err)
	}
	c.whole, c.answers = c.whole || prompt.Len() > 1, c.each*prompt.Len()
	switch {
	case c.whole: // one engine takes it, whatever it is
		c.tokens = len(raw) / 4
	case len(prompt.Tokens) == 1:
		c.ids = prompt.Tokens[0]
		c.prefix, c.tokens = placement.OfTokens(scope, c.ids), len(c.ids)
	default:
		c.prefix, c.tokens = placement.OfText(scope, []byte(prompt.Texts[0]))
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

// scope is what keeps caches of equal texts apart.
func (c *clientRequest) scope() string {
	scope := c.model + "\x00" + c.salt
	for _, name := range templateMembers {
		if value := c.body.Get(name); value != nil {
			scope += "\x00" + name + "\x00" + string(value)
		}
	}
	return scope
}

// isText: the engine makes tokens of it.
func (c *clientRequest) isText() bool { return c.prefix.Bytes > 0 }

// known is the prompt as an engine caches it, nil where its tokens are not
// known.
func (c *clientRequest) known(about *about) *knownPrompt {
	if len(c.ids) == 0 {
		return nil
	}
	i, adapter := 0, ""
	if slices.Contains(about.adapters, c.model) {
		i, adapter = 1, c.model
	}
	if c.prompts[i] == nil {
		c.prompts[i] = &knownPrompt{scope: placement.Scope{Adapter: adapter, Salt: c.salt}, tokens: c.ids, guess: c.partly}
	}
	return c.prompts[i]
}

// recall finds out what the prompt's tokens are, where an earlier one tells.
func (c *clientRequest) recall(r *roster) {
	if !c.isText() || c.whole || !r.followsCaches() {
		return
	}
	ids, whole := r.recall(c.prefix)
	if c.ids, c.partly = ids, !whole; whole {
		c.tokens = len(ids)
	}
}

// worthLearning: what the prompt's tokens are would help to place the next one
// that begins alike.
func (c *clientRequest) worthLearning(r *roster) bool {
	return c.isText() && !c.whole && (len(c.ids) == 0 || c.partly) && r.followsCaches()
}

// unlimited: the answer may be as long as the engine's context. A chat that says
// nothing is, and a completion that says null.
func (c *clientRequest) unlimited() bool {
	return c.maxTokens == nil && (c.isChat() || c.body.Get("max_tokens") != nil)
}

// placement is the request as place weighs it.
func (c *clientRequest) placement() placement.Request {
	return placement.Request{Tokens: c.tokens, Whole: c.whole, Turn: c.turn, Phase: c.phase}
}

// resumable says how a stream of this request can go on elsewhere when an
// engine of that kind is lost, or why it cannot.
func (c *clientRequest) resumable(kind openai.EngineKind, maxContext int) (resumeMode, string) {
	switch {
	case !c.stream:
		return resumeNever, "it is not a stream"
	case c.whole:
		return resumeNever, "there are several answers at once"
	case kind == openai.KindMeridian:
		return resumeExact, ""
	case kind != openai.KindVLLM:
		return resumeNever, "this kind of engine does not tell which tokens it sent"
	case !c.greedy:
		return resumeNever, "only an answer with temperature 0 comes out the same on another engine"
	case !c.plain:
		return resumeNever, "the request asks for more than plain text"
	case c.unlimited() && maxContext == 0:
		return resumeNever, "the request has no max_tokens, and the engine does not say how long its context is"
	}
	return resumeGreedy, ""
}

// beginsThought: where a template opens thoughts, it does for this request. It does not
// where the client has turned thinking off, or has a template of its own, or goes on with a
// message; and an answer that must fit a grammar from its first token has no room for one.
func (c *clientRequest) beginsThought() bool {
	if c.thinksNot() || openai.IsTrue(c.body.Get("continue_final_message")) || string(c.body.Get("add_generation_prompt")) == "false" {
		return false
	}
	for name, value := range c.body.Members() {
		if constrains(name, value) {
			return false
		}
	}
	choice := bytes.TrimSpace(c.body.Get("tool_choice"))
	return string(choice) != `"required"` && (len(choice) == 0 || choice[0] != '{')
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
