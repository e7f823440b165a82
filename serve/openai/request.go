package openai

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// Sampling is what completions and chats have in common. Pointers are nil
// where the client said nothing.
type Sampling struct {
	Model            string         `json:"model,omitempty"`
	MaxTokens        *int           `json:"max_tokens,omitempty"`
	MinTokens        int            `json:"min_tokens,omitempty"`
	Temperature      *float64       `json:"temperature,omitempty"`
	TopP             *float64       `json:"top_p,omitempty"`
	TopK             *int           `json:"top_k,omitempty"`
	N                *int           `json:"n,omitempty"`
	Stop             Stop           `json:"stop,omitempty"`
	Seed             *int64         `json:"seed,omitempty"`
	Stream           bool           `json:"stream,omitempty"`
	StreamOptions    *StreamOptions `json:"stream_options,omitempty"`
	PresencePenalty  *float64       `json:"presence_penalty,omitempty"`
	FrequencyPenalty *float64       `json:"frequency_penalty,omitempty"`
	User             string         `json:"user,omitempty"`

	IgnoreEOS      bool   `json:"ignore_eos,omitempty"`
	CacheSalt      string `json:"cache_salt,omitempty"`
	ReturnTokenIDs bool   `json:"return_token_ids,omitempty"`
	// KVTransfer is set by a gateway, never by its clients.
	KVTransfer *KVTransfer `json:"kv_transfer_params,omitempty"`
	// ResumeTokenIDs were generated before, by this or another engine: the
	// answer goes on after them and does not repeat them.
	ResumeTokenIDs []uint32 `json:"resume_token_ids,omitempty"`
	// MaxThinkTokens is how many tokens a thought may have before it is ended; nil: as many as
	// the engine lets it have.
	MaxThinkTokens *int `json:"max_think_tokens,omitempty"`
	// ThinkTokens is how long a scripted thought is.
	ThinkTokens *int `json:"think_tokens,omitempty"`
}

// StreamOptions ask for more than tokens.
type StreamOptions struct {
	IncludeUsage bool `json:"include_usage,omitempty"`
}

// CompletionRequest is the body of a POST to PathCompletions.
type CompletionRequest struct {
	Sampling
	Prompt Prompt `json:"prompt"`
	Echo   bool   `json:"echo,omitempty"`
	// Logprobs is how many alternatives to tell of each token; 0 tells the
	// token's own.
	Logprobs *int `json:"logprobs,omitempty"`
}

// ChatRequest is the body of a POST to PathChat.
type ChatRequest struct {
	Sampling
	Messages            []Message       `json:"messages"`
	MaxCompletionTokens *int            `json:"max_completion_tokens,omitempty"`
	Logprobs            bool            `json:"logprobs,omitempty"`
	TopLogprobs         *int            `json:"top_logprobs,omitempty"`
	Tools               json.RawMessage `json:"tools,omitempty"`
	ResponseFormat      json.RawMessage `json:"response_format,omitempty"`
	// AddGenerationPrompt has the prompt end with the beginning of an answer;
	// nil does. Without it, it ends with the last message.
	AddGenerationPrompt *bool `json:"add_generation_prompt,omitempty"`
}

// OutputLimit is how many tokens the client wants at most; nil: as many as fit.
func (r *ChatRequest) OutputLimit() *int {
	if r.MaxCompletionTokens != nil {
		return r.MaxCompletionTokens
	}
	return r.MaxTokens
}

// Prompt is what a completion starts from: texts or lists of token ids, one of
// the two.
type Prompt struct {
	Texts  []string
	Tokens [][]uint32
}

// Len is how many prompts there are.
func (p Prompt) Len() int { return len(p.Texts) + len(p.Tokens) }

// MaxPrompts is how many prompts one request may have, MaxStops how many texts
// may end its answer.
const (
	MaxPrompts = 4096
	MaxStops   = 1024
)

var errPrompt = errors.New("prompt must be a string, a list of token ids, or a list of either")

// UnmarshalJSON reads the four forms there are: a text, a list of ids, and
// lists of either. A long list is read once, and given up where it is none.
func (p *Prompt) UnmarshalJSON(data []byte) error {
	*p = Prompt{}
	if data[0] == '"' {
		p.Texts = make([]string, 1)
		return json.Unmarshal(data, &p.Texts[0])
	}
	for element := range Elements(data) {
		if element[0] != '"' && element[0] != '[' {
			return p.addIDs(data) // a list of ids, or none of prompts
		}
		if p.Len() == MaxPrompts {
			return fmt.Errorf("prompt is a list of more than %d prompts; send them in several requests", MaxPrompts)
		}
		if err := p.add(element); err != nil {
			return err
		}
	}
	if (len(p.Texts) > 0) == (len(p.Tokens) > 0) {
		return errPrompt // nothing, or both
	}
	return nil
}

func (p *Prompt) addIDs(list []byte) error {
	ids, ok := appendIDs(nil, list)
	if !ok {
		return errPrompt
	}
	p.Tokens = append(p.Tokens, ids)
	return nil
}

// add takes one of a list of prompts.
func (p *Prompt) add(element []byte) error {
	if element[0] == '[' {
		return p.addIDs(element)
	}
	var text string
	if err := json.Unmarshal(element, &text); err != nil {
		return err
	}
	p.Texts = append(p.Texts, text)
	return nil
}

// MarshalJSON writes the shortest form.
func (p Prompt) MarshalJSON() ([]byte, error) {
	switch {
	case len(p.Texts) == 1:
		return json.Marshal(p.Texts[0])
	case len(p.Texts) > 1:
		return json.Marshal(p.Texts)
	case len(p.Tokens) == 1:
		return json.Marshal(p.Tokens[0])
	}
	return json.Marshal(p.Tokens)
}

// Stop is the texts that end an answer: one, several, or null.
type Stop []string

// UnmarshalJSON takes a text, a list of texts or null.
func (s *Stop) UnmarshalJSON(data []byte) error {
	*s = nil
	var text *string
	if json.Unmarshal(data, &text) == nil {
		if text != nil {
			*s = Stop{*text}
		}
		return nil
	}
	if data[0] != '[' {
		return errStop
	}
	for element := range Elements(data) {
		if len(*s) == MaxStops {
			return fmt.Errorf("stop is a list of more than %d texts", MaxStops)
		}
		// null would be an empty text.
		if json.Unmarshal(element, &text) != nil || text == nil {
			return errStop
		}
		*s = append(*s, *text)
		text = nil
	}
	return nil
}

var errStop = errors.New("stop must be a string or a list of strings")

// Roles are who can speak in a chat.
var Roles = []string{"system", "developer", "user", "assistant", "tool", "function"}

// Message is one turn of a chat.
type Message struct {
	Role             string  `json:"role"`
	Content          Content `json:"content"`
	ReasoningContent string  `json:"reasoning_content,omitempty"`
	Name             string  `json:"name,omitempty"`
	ToolCallID       string  `json:"tool_call_id,omitempty"`
}

// Content is the text of a message. Clients send a text, null, or a list of
// parts, of which only those of type text are understood.
type Content string

// UnmarshalJSON joins the texts of parts.
func (c *Content) UnmarshalJSON(data []byte) error {
	var text *string
	if json.Unmarshal(data, &text) == nil {
		*c = ""
		if text != nil {
			*c = Content(*text)
		}
		return nil
	}
	var parts []struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	if json.Unmarshal(data, &parts) != nil {
		return fmt.Errorf("content must be a string, null, or a list of parts")
	}
	var joined strings.Builder
	for _, part := range parts {
		if part.Type != "text" {
			return fmt.Errorf("content has a part of type %.64q; only text is understood", part.Type)
		}
		joined.WriteString(part.Text)
	}
	*c = Content(joined.String())
	return nil
}
