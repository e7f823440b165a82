package openai

// Kinds of objects.
const (
	ObjectCompletion = "text_completion"
	ObjectChat       = "chat.completion"
	ObjectChatChunk  = "chat.completion.chunk"
	ObjectModel      = "model"
	ObjectList       = "list"
)

// Reasons why an answer ended.
const (
	FinishStop   = "stop"
	FinishLength = "length"
	// FinishMoved ends a leg whose answer goes on at another engine. Only gateways see it.
	FinishMoved = "moved"
)

// Usage counts tokens. Reasoning counts among the completion's.
type Usage struct {
	PromptTokens     int          `json:"prompt_tokens"`
	CompletionTokens int          `json:"completion_tokens"`
	TotalTokens      int          `json:"total_tokens"`
	PromptDetails    *PromptUsage `json:"prompt_tokens_details,omitempty"`
	OutputDetails    *OutputUsage `json:"completion_tokens_details,omitempty"`
}

// PromptUsage tells more about a prompt's tokens.
type PromptUsage struct {
	CachedTokens int `json:"cached_tokens"`
}

// OutputUsage tells more about an answer's tokens.
type OutputUsage struct {
	ReasoningTokens int `json:"reasoning_tokens"`
}

// Completion is a whole answer to a CompletionRequest, and also each chunk of
// a streamed one.
type Completion struct {
	ID      string             `json:"id"`
	Object  string             `json:"object"`
	Created int64              `json:"created"`
	Model   string             `json:"model"`
	Choices []CompletionChoice `json:"choices"`
	Usage   *Usage             `json:"usage,omitempty"`
	// PromptTokenIDs come with a stream's first chunk, where they were asked for.
	PromptTokenIDs []uint32    `json:"prompt_token_ids,omitempty"`
	KVTransfer     *KVTransfer `json:"kv_transfer_params,omitempty"`
	Report         *Report     `json:"meridian,omitempty"`
}

// CompletionChoice is one of the answers, or a piece of one.
type CompletionChoice struct {
	Index        int           `json:"index"`
	Text         string        `json:"text"`
	Logprobs     *TextLogprobs `json:"logprobs"`
	FinishReason *string       `json:"finish_reason"`
	// TokenIDs are those of this text; null where they were not asked for, and
	// empty where a chunk has none.
	TokenIDs       *[]uint32 `json:"token_ids,omitempty"`
	PromptTokenIDs []uint32  `json:"prompt_token_ids,omitempty"`
}

// TextLogprobs are columns, one entry for each token.
type TextLogprobs struct {
	Tokens        []string             `json:"tokens"`
	TokenLogprobs []*float64           `json:"token_logprobs"`
	TopLogprobs   []map[string]float64 `json:"top_logprobs"`
	TextOffset    []int                `json:"text_offset"`
}

// Chat is a whole answer to a ChatRequest.
type Chat struct {
	ID             string       `json:"id"`
	Object         string       `json:"object"`
	Created        int64        `json:"created"`
	Model          string       `json:"model"`
	Choices        []ChatChoice `json:"choices"`
	Usage          *Usage       `json:"usage,omitempty"`
	PromptTokenIDs []uint32     `json:"prompt_token_ids,omitempty"`
	KVTransfer     *KVTransfer  `json:"kv_transfer_params,omitempty"`
	Report         *Report      `json:"meridian,omitempty"`
}

// ChatChoice is one of the answers.
type ChatChoice struct {
	Index        int           `json:"index"`
	Message      ChatMessage   `json:"message"`
	Logprobs     *ChatLogprobs `json:"logprobs"`
	FinishReason *string       `json:"finish_reason"`
	TokenIDs     *[]uint32     `json:"token_ids,omitempty"`
}

// ChatMessage is an answer: what was thought and what was said.
type ChatMessage struct {
	Role             string  `json:"role"`
	Content          *string `json:"content"`
	ReasoningContent *string `json:"reasoning_content,omitempty"`
}

// ChatChunk is a piece of a streamed chat.
type ChatChunk struct {
	ID             string        `json:"id"`
	Object         string        `json:"object"`
	Created        int64         `json:"created"`
	Model          string        `json:"model"`
	Choices        []DeltaChoice `json:"choices"`
	Usage          *Usage        `json:"usage,omitempty"`
	PromptTokenIDs []uint32      `json:"prompt_token_ids,omitempty"`
	Report         *Report       `json:"meridian,omitempty"`
}

// DeltaChoice is what a chunk adds to one of the answers.
type DeltaChoice struct {
	Index        int           `json:"index"`
	Delta        Delta         `json:"delta"`
	Logprobs     *ChatLogprobs `json:"logprobs,omitempty"`
	FinishReason *string       `json:"finish_reason"`
	TokenIDs     *[]uint32     `json:"token_ids,omitempty"`
}

// Delta is what is new.
type Delta struct {
	Role             string  `json:"role,omitempty"`
	Content          *string `json:"content,omitempty"`
	ReasoningContent *string `json:"reasoning_content,omitempty"`
}

// ChatLogprobs has an entry for each token.
type ChatLogprobs struct {
	Content []TokenLogprob `json:"content"`
}

// TokenLogprob is a token, how likely it was, and what else could have been.
type TokenLogprob struct {
	Token       string       `json:"token"`
	Logprob     float64      `json:"logprob"`
	Bytes       []int        `json:"bytes"`
	TopLogprobs []TopLogprob `json:"top_logprobs"`
}

// TopLogprob is one of the likeliest tokens at a position.
type TopLogprob struct {
	Token   string  `json:"token"`
	Logprob float64 `json:"logprob"`
	Bytes   []int   `json:"bytes"`
}

// Model is an entry of the model list.
type Model struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Created int64  `json:"created"`
	OwnedBy string `json:"owned_by"`
	// MaxModelLen is the context in tokens, Root what was loaded, Parent the
	// model that this one is an adapter of, where the engine tells.
	MaxModelLen int     `json:"max_model_len,omitempty"`
	Root        string  `json:"root,omitempty"`
	Parent      *string `json:"parent,omitempty"`
}

// ModelList is the answer to a GET of PathModels.
type ModelList struct {
	Object string  `json:"object"`
	Data   []Model `json:"data"`
}
