package engine

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"meridian/engine/token"
	"meridian/serve/openai"
)

// extras are members that openai's types do not have: vLLM's, and those that are
// read only to be refused.
type extras struct {
	StopTokenIDs []uint32 `json:"stop_token_ids"`

	LogitBias json.RawMessage `json:"logit_bias"`
	BestOf    json.RawMessage `json:"best_of"`
	Suffix    json.RawMessage `json:"suffix"`
}

// refuse says what would change the answer and is not done here.
func (x *extras) refuse() *openai.Error {
	for _, member := range []struct {
		name    string
		value   json.RawMessage
		nothing string
	}{{"logit_bias", x.LogitBias, "{}"}, {"best_of", x.BestOf, "1"}, {"suffix", x.Suffix, `""`}} {
		if asks(member.value, member.nothing) {
			return openai.Invalid(member.name, "%s is not supported", member.name)
		}
	}
	return nil
}

type completionRequest struct {
	openai.CompletionRequest
	extras
}

type chatRequest struct {
	openai.ChatRequest
	extras
}

// defaultCompletionTokens is OpenAI's, for completions that say nothing.
const defaultCompletionTokens = 16

func (e *Engine) serveCompletions(w http.ResponseWriter, r *http.Request) {
	var in completionRequest
	if problem := e.read(w, r, &in); problem != nil {
		problem.Write(w)
		return
	}
	out, problem := e.completion(&in)
	if problem != nil {
		problem.Write(w)
		return
	}
	e.answer(w, r, out, e.newResponse(&in.Sampling, false))
}

func (e *Engine) serveChat(w http.ResponseWriter, r *http.Request) {
	var in chatRequest
	if problem := e.read(w, r, &in); problem != nil {
		problem.Write(w)
		return
	}
	out, problem := e.chat(&in)
	if problem != nil {
		problem.Write(w)
		return
	}
	e.answer(w, r, out, e.newResponse(&in.Sampling, true))
}

func (e *Engine) completion(in *completionRequest) (Request, *openai.Error) {
	limit := defaultCompletionTokens
	if in.MaxTokens == nil {
		in.MaxTokens = &limit
	}
	out, problem := e.common(&in.Sampling, in.MaxTokens)
	if problem != nil {
		return out, problem
	}
	if in.Echo {
		return out, openai.Invalid("echo", "echo is not supported")
	}
	if problem := in.refuse(); problem != nil {
		return out, problem
	}
	out.Prompts = in.Prompt.Tokens
	for _, text := range in.Prompt.Texts {
		out.Prompts = append(out.Prompts, e.source.tokenizer.EncodeWhole(text))
	}
	if in.Logprobs != nil {
		out.Logprobs, out.TopLogprobs = true, *in.Logprobs
	}
	out.StopTokens = in.StopTokenIDs
	return out, nil
}

func (e *Engine) chat(in *chatRequest) (Request, *openai.Error) {
	out, problem := e.common(&in.Sampling, in.OutputLimit())
	switch {
	case problem != nil:
		return out, problem
	case e.source.noTemplate != nil:
		return out, openai.Invalid("", "this model does not chat here: %v; use %s", e.source.noTemplate, openai.PathCompletions)
	case len(in.Messages) == 0:
		return out, openai.Invalid("messages", "there are no messages")
	case asks(in.Tools, "[]"):
		return out, openai.Invalid("tools", "tools are not supported")
	case asks(in.ResponseFormat, `{"type":"text"}`):
		return out, openai.Invalid("response_format", "response formats other than text are not supported")
	}
	if problem := in.refuse(); problem != nil {
		return out, problem
	}
	messages := make([]token.Message, len(in.Messages))
	for i, m := range in.Messages {
		messages[i] = token.Message{Role: m.Role, Content: string(m.Content)}
		if !slices.Contains(openai.Roles, m.Role) {
			return out, openai.Invalid("messages", "message %d has the role %.64q; there are %s", i, m.Role, strings.Join(openai.Roles, ", "))
		}
	}
	write := e.source.template.Render
	if !orElse(in.AddGenerationPrompt, true) {
		write = e.source.template.History
	}
	out.Prompts = [][]uint32{e.source.tokenizer.Encode(write(messages))}
	out.SplitThought = true
	out.Logprobs = in.Logprobs
	if in.TopLogprobs != nil {
		if !in.Logprobs {
			return out, openai.Invalid("top_logprobs", "top_logprobs needs logprobs")
		}
		out.TopLogprobs = *in.TopLogprobs
	}
	out.StopTokens = in.StopTokenIDs
	return out, nil
}

// asks reports whether a raw member says more than nothing.
func asks(raw []byte, nothing string) bool {
	compact := bytes.ReplaceAll(raw, []byte(" "), nil)
	return len(raw) > 0 && string(raw) != "null" && string(compact) != nothing
}

// common reads what completions and chats share.
func (e *Engine) common(in *openai.Sampling, limit *int) (Request, *openai.Error) {
	out := Request{
		MinTokens: in.MinTokens, Stop: in.Stop, IgnoreEOS: in.IgnoreEOS, Resume: in.ResumeTokenIDs,
		Salt: in.CacheSalt, ThinkTokens: in.ThinkTokens, MaxThinkTokens: in.MaxThinkTokens,
		Sampling: Sampling{
			Temperature: orElse(in.Temperature, 1), TopP: orElse(in.TopP, 1), TopK: max(orElse(in.TopK, 0), 0),
			PresencePenalty: orElse(in.PresencePenalty, 0), FrequencyPenalty: orElse(in.FrequencyPenalty, 0),
		},
	}
	switch {
	case in.Model != "" && in.Model != e.options.ServedName:
		return out, openai.UnknownModel(in.Model, []string{e.options.ServedName})
	case limit != nil && *limit < 1:
		return out, openai.Invalid("max_tokens", "max_tokens is %d, must be at least 1", *limit)
	case in.N != nil && *in.N < 1:
		return out, openai.Invalid("n", "n is %d, must be at least 1", *in.N)
	case in.ResumeTokenIDs != nil && in.Seed == nil && out.Temperature > 0:
		return out, openai.Invalid("seed", "resume_token_ids with a temperature needs the seed of the beginning")
	}
	out.MaxTokens, out.N = orElse(limit, 0), orElse(in.N, 1)
	if out.MaxTokens > 0 && out.MinTokens > out.MaxTokens {
		return out, openai.Invalid("min_tokens", "min_tokens is %d, max_tokens %d", out.MinTokens, out.MaxTokens)
	}
	if in.Seed != nil {
		out.Seed = uint64(*in.Seed)
	} else {
		random := make([]byte, 8)
		rand.Read(random)
		out.Seed = binary.LittleEndian.Uint64(random)
	}
	problem := transferOf(in.KVTransfer, &out)
	if problem == nil && out.Offer != nil && in.Stream {
		problem = openai.Invalid("stream", "a prefill leg is answered in one piece")
	}
	return out, problem
}

func orElse[T any](given *T, otherwise T) T {
	if given != nil {
		return *given
	}
	return otherwise
}

// maxThoughtEnd is how many tokens the end of a thought may have.
const maxThoughtEnd = 64

// transferOf reads which leg of a hand-off a request is, if any.
func transferOf(in *openai.KVTransfer, out *Request) *openai.Error {
	if in == nil {
		return nil
	}
	out.Leg = in.Leg
	if len(in.ThoughtEnd) <= maxThoughtEnd {
		out.ThoughtEnd = in.ThoughtEnd
	}
	if in.Move != nil {
		id, problem := transferID("kv_transfer_params", "meridian_move.transfer", in.Move.Transfer)
		if problem != nil {
			return problem
		}
		out.Move = &Move{Transfer: id, Leg: in.Move.Leg, AtToken: in.Move.TokenID, After: in.Move.AfterTokens}
	}
	switch {
	case in.DoRemoteDecode:
		out.Offer = new([16]byte)
		if in.Transfer == "" {
			rand.Read(out.Offer[:])
			return nil
		}
		id, problem := transferID("kv_transfer_params", "meridian_transfer", in.Transfer)
		if problem != nil {
			return problem
		}
		*out.Offer = id
	case in.DoRemotePrefill && len(in.Ticket) > 0:
		out.Ticket, out.Unused = in.Ticket, in.Unused
		if !in.Unused {
			out.TicketTokens = in.Tokens
		}
	}
	return nil
}

// transferID reads the id of a hand-off.
func transferID(param, member, text string) (id [16]byte, problem *openai.Error) {
	data, err := hex.DecodeString(text)
	if err != nil || len(data) != len(id) {
		return id, openai.Invalid(param, "%s %.64q is not %d hex digits", member, text, 2*len(id))
	}
	return [16]byte(data), nil
}
