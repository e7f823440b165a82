package lifecycle

import (
	"encoding/json"

	"meridian/internal/clip"
	"meridian/serve/openai"
)

// Answer is what is known of the answer so far.
type Answer struct {
	Kind openai.EngineKind // of the engine that began it
	// Tells: the engine tells which tokens it sends.
	Tells  bool
	Prompt []uint32
	// SoFar are the tokens that the client has and that another engine can go on
	// after, beyond what it has after them.
	SoFar  []uint32
	Beyond Overlap
	Tokens int
	// Thought are those of them that came as such.
	Thought int
	Finish  string
	Ends    int // answers whose end the client has
	Usage   openai.Usage
	Told    bool // the client has the usage that a stream ends with
	// ID and Created are those of the first engine's chunks, so that a stream which goes
	// on elsewhere looks like one.
	ID, Created json.RawMessage
}

// MaxFinish is how many bytes of a reason are kept.
const MaxFinish = 64

// Note takes from a chunk what the record has of the answer.
func (a *Answer) Note(c *openai.Chunk) {
	if c.FinishReason != nil {
		_ = json.Unmarshal(c.FinishReason, &a.Finish) // only for the record
		a.Finish = clip.Plain(a.Finish, MaxFinish)
	}
	if c.Usage != nil {
		a.Usage.Take(c.Usage)
		a.Told = a.Told || c.Choices == 0
	}
}

// outputDetails tell of the thought, of which an engine that goes on after it knows nothing; nil
// where there was none.
func (a *Answer) outputDetails(tokens int) *openai.OutputUsage {
	if a.Thought == 0 {
		return nil
	}
	return &openai.OutputUsage{ReasoningTokens: min(a.Thought, tokens)}
}
