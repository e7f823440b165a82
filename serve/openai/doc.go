// Package openai is the OpenAI API as Meridian speaks it: requests, responses,
// stream chunks, errors, and the event stream that carries them. It knows
// nothing of engines.
//
//	Body ── the raw JSON of a request or a chunk, of which single members are
//	        read, replaced and left out; everything else stays byte for byte
//	CompletionRequest, ChatRequest ── what an engine reads of it
//	Completion, Chat, ChatChunk    ── what an engine answers
//	EventWriter ──► text/event-stream ──► EventReader
//
// Beside what OpenAI documents there are the extensions that vLLM made usual
// (return_token_ids, kv_transfer_params, ignore_eos, min_tokens,
// reasoning_content) and Meridian's own (resume_token_ids, think_tokens, and
// the report that an engine sends beside its answer).
package openai

// Paths of the API.
const (
	PathModels      = "/v1/models"
	PathCompletions = "/v1/completions"
	PathChat        = "/v1/chat/completions"
)

// OwnedByMeridian is the owner in the model list of a reference engine: one
// that continues after given tokens exactly.
const OwnedByMeridian = "meridian"
