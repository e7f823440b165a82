package placement

import "fmt"

// Phases are the parts of an answer that an engine is meant to generate. The zero Phases are
// all: nothing is said.
type Phases uint8

// The phases.
const (
	Think Phases = 1 << iota
	Answer
)

func (p Phases) String() string {
	switch p {
	case Think:
		return "think"
	case Answer:
		return "answer"
	case 0, Think | Answer:
		return "both"
	}
	return fmt.Sprintf("Phases(%d)", uint8(p))
}

// ParsePhases reads what String writes.
func ParsePhases(text string) (Phases, error) {
	for _, p := range []Phases{Think, Answer, Think | Answer} {
		if p.String() == text {
			return p, nil
		}
	}
	return 0, fmt.Errorf("place: no phases %q; there are think, answer, both", text)
}

// Suits tells whether an engine that is meant for these is one for a request in a phase; one
// whose phase is not known (0) suits all.
func (p Phases) Suits(phase Phases) bool { return p == 0 || phase == 0 || p&phase != 0 }

// offPhase is how many running requests more an engine counts as that is meant for another
// phase than the request's: others that do not suit the better are taken when those that do are
// much busier.
const offPhase = 16

// misfit is what an engine costs more, in tokens.
func (o Options) misfit(e *Engine, role Role, r Request) float64 {
	if role != Decode || e.Phases.Suits(r.Phase) {
		return 0
	}
	return float64(offPhase * o.running())
}

// MoveToPhase says where a request goes on that has come into a phase for which its engine is
// not meant: to an engine that is and takes requests, however much it has to do. ok is false
// where there is none.
func MoveToPhase(engines []Engine, from string, r Request, o Options) (to string, why Reason, ok bool) {
	var meant []Engine
	for _, e := range engines {
		if e.Phases.Suits(r.Phase) {
			meant = append(meant, e)
		}
	}
	to, why, ok = Move(meant, from, r, o, true, 0)
	if ok {
		why = Reason{Kind: ForPhase, Phase: r.Phase}
	}
	return to, why, ok
}

// pools are the engines of the same phases, together.
func pools(engines []Engine) [][]Engine {
	var all [4][]Engine
	for _, e := range engines {
		at := e.Phases & (Think | Answer)
		if at == 0 {
			at = Think | Answer
		}
		all[at] = append(all[at], e)
	}
	return all[1:]
}
