package lifecycle

import (
	"meridian/kv"
	"meridian/serve/gateway/request"
	"meridian/serve/openai"
)

// Effect is what a life has the gateway do beside its next step: it counts, or tells others
// what was learned. It is of one of the types below. The gateway does all of them before the step, the
// oldest first.
type Effect any

// Count counts what has no more to it.
type Count uint8

// What is counted.
const (
	CountFellBack    Count = iota // a prompt that was to be handed over is computed by the decode engine
	CountPromised                 // a decode leg does not wait for the prefill engine's answer
	CountBroken                   // and was ended because that leg has failed
	CountResumed                  // a stream went on with another engine
	CountUnresumable              // and one could not
	Counts           = iota
)

// Effects that count.
type (
	// Placed: engines were chosen, by what was known of the prompt's cache.
	Placed struct{ By Known }
	// LegEnded counts a leg by its kind.
	LegEnded struct {
		Kind string
		End  LegEnd
	}
	// KVCame counts where a prompt's cache came from, by the number in KVSources.
	KVCame struct{ From int }
	// StoredEnded counts a request that went straight to decode as its prefix was believed to be stored.
	StoredEnded struct{ End StoredEnd }
	// MoveEnded counts what became of a request that was asked to leave.
	MoveEnded struct {
		Why MoveReason
		End MoveEnd
	}
)

// Effects that tell what was learned of engines, by their keys.
type (
	// Served: an engine has done a leg.
	Served struct{ Engine string }
	// Full: an engine took no more, and says for how long.
	Full struct {
		Engine string
		Fault  *openai.Error
	}
	// EngineLost: engines are to be asked soon whether they are there.
	EngineLost struct{}
	// HasPrompt: an engine has the prompt in its cache.
	HasPrompt struct{ Engine string }
	// Misjudged: it does not, though it should.
	Misjudged struct{ Engine string }
	// Paced: an engine tells how long it took for the prompt.
	Paced struct {
		Engine string
		Report *openai.Report // nil: it tells only what it was spared
		Spared request.Spared
	}
	// FoundKept: it has fetched the first tokens of it, and MissedKept: less than was believed.
	FoundKept struct {
		Engine string
		Spared request.Spared
		Tokens int
	}
	MissedKept struct {
		Spared   request.Spared
		Believed int
	}
	// Kept: the cell has the prompt.
	Kept struct{}
	// Learned: the prompt's tokens are known.
	Learned struct{ Prompt []uint32 }
)

// Effects on legs.
type (
	// DropPrefill: no decode leg waits any more for the promised prefill leg, which is to end.
	DropPrefill struct{}
	// GiveBack: no engine will use a ticket. The engine to tell is any but those to avoid; where
	// there is none, the last.
	GiveBack struct {
		Transfer kv.ID
		Params   []byte
		Avoid    []string
		Last     string
	}
	// Stays: no engine could go on with the leg that runs, so it is not asked to leave.
	Stays struct{}
	// ThoughtOver: what the leg generates is the answer; Leave: another engine may be better for that.
	ThoughtOver struct{ Leave bool }
)

// Effects are those of the events since it was called last.
func (l *Life) Effects() []Effect {
	effects := l.effects
	l.effects = nil
	return effects
}

func (l *Life) effect(e Effect) { l.effects = append(l.effects, e) }
