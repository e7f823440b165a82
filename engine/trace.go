package engine

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
)

// Trace is how undecided a scripted thought plays to be, token by token, so that it is
// known where it converges and where it loses its way. Behind the end of a list its last
// number goes on; an empty one is not played: the model's own entropies count.
type Trace struct {
	// Tokens are the entropies of the thought's tokens, in nats.
	Tokens []float32 `json:"tokens"`
	// Forks are the entropies after a forced end of the thought, by how many tokens it had.
	Forks []float32 `json:"forks"`
	// ParagraphTokens is how long a paragraph of the thought is; its last two tokens end
	// lines. 0: it has none.
	ParagraphTokens int `json:"paragraph_tokens"`
}

// maxTraceBytes is many times what a thought is long.
const maxTraceBytes = 16 << 20

// ReadTrace reads a trace from a file in JSON.
func ReadTrace(path string) (*Trace, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxTraceBytes+1))
	switch {
	case err != nil:
		return nil, err
	case len(data) > maxTraceBytes:
		return nil, fmt.Errorf("engine: %s: a trace has at most %d bytes", path, maxTraceBytes)
	}
	t := &Trace{}
	if err := json.Unmarshal(data, t); err != nil {
		return nil, fmt.Errorf("engine: %s is no trace of entropies: %w", path, err)
	}
	if err := t.check(); err != nil {
		return nil, fmt.Errorf("engine: %s: %w", path, err)
	}
	return t, nil
}

func (t *Trace) check() error {
	for _, list := range [][]float32{t.Tokens, t.Forks} {
		for i, nats := range list {
			if !(nats >= 0) || math.IsInf(float64(nats), 1) {
				return fmt.Errorf("entropy %d of a trace is %g, must be a number of nats, 0 or more", i, nats)
			}
		}
	}
	if t.ParagraphTokens < 0 || t.ParagraphTokens == 1 {
		return errors.New("a paragraph of a trace has 2 tokens or more, or is 0 for none")
	}
	return nil
}

// at is the number of a list that counts after so many tokens.
func at(list []float32, tokens int) (float32, bool) {
	if len(list) == 0 {
		return 0, false
	}
	return list[min(tokens, len(list)-1)], true
}

// endsLine tells whether the token of a thought at this place ends a line.
func (t *Trace) endsLine(place int) bool {
	return t != nil && t.ParagraphTokens > 0 && place%t.ParagraphTokens >= t.ParagraphTokens-2
}
