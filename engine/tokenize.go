package engine

import (
	"encoding/json"
	"net/http"

	"meridian/serve/openai"
)

// tokenizeRequest is the body of a POST to /tokenize, as vLLM has it: a prompt, or the
// messages of a chat.
type tokenizeRequest struct {
	Model    string           `json:"model"`
	Prompt   *string          `json:"prompt"`
	Messages []openai.Message `json:"messages"`
	// AddSpecialTokens is what a prompt gets that is answered; without it there are fewer.
	AddSpecialTokens *bool `json:"add_special_tokens"`
	// AddGenerationPrompt is as a chat has it.
	AddGenerationPrompt *bool `json:"add_generation_prompt"`
	// Tools are read to be refused: they would change the tokens.
	Tools json.RawMessage `json:"tools"`
}

// serveTokenize tells the tokens that a prompt or a chat has here, without answering it.
func (e *Engine) serveTokenize(w http.ResponseWriter, r *http.Request) {
	var in tokenizeRequest
	problem := e.read(w, r, &in)
	if problem == nil {
		var tokens []uint32
		if tokens, problem = e.tokenize(&in); problem == nil {
			if tokens == nil {
				tokens = []uint32{}
			}
			e.allowWrite(w)
			writeJSON(w, map[string]any{"count": len(tokens), "max_model_len": e.maxContext(), "tokens": tokens})
			return
		}
	}
	problem.Write(w)
}

func (e *Engine) tokenize(in *tokenizeRequest) ([]uint32, *openai.Error) {
	isChat := len(in.Messages) > 0
	switch {
	case isChat == (in.Prompt != nil):
		return nil, openai.Invalid("", "send a prompt, or the messages of a chat")
	case isChat:
		out, problem := e.chat(&chatRequest{ChatRequest: openai.ChatRequest{
			Sampling: openai.Sampling{Model: in.Model}, Messages: in.Messages, Tools: in.Tools, AddGenerationPrompt: in.AddGenerationPrompt,
		}})
		if problem != nil {
			return nil, problem
		}
		return out.Prompts[0], nil
	}
	if _, problem := e.common(&openai.Sampling{Model: in.Model}, nil); problem != nil {
		return nil, problem
	}
	if in.AddSpecialTokens != nil && !*in.AddSpecialTokens {
		return e.source.tokenizer.Encode(*in.Prompt), nil
	}
	return e.source.tokenizer.EncodeWhole(*in.Prompt), nil
}
