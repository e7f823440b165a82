package placement

import "fmt"

// Kind is the kind of a reason.
type ReasonKind uint8

// Why no prefill engine computes a prompt, and why an engine was chosen.
const (
	_               ReasonKind = iota
	SeveralAnswers             // the request cannot be split
	Short                      // moving the prompt would take longer than computing it
	Cached                     // the decode engine holds most of the prompt
	NoPrefillEngine            // none is there
	DecodeIsBest               // the decode engine itself is the best to prefill
	FailedLately               // and no other is there
	OnlyOne                    // no other plays this part
	HoldsPrefix                // it holds more of the prompt than another
	LeastLoaded                // it has less to do than another
	Drawn                      // it is as good as others
	AsBefore                   // it was chosen earlier, and stays
	Stored                     // the decode engine can fetch most of the prompt
	Fetches                    // it can fetch more of the prompt than another
	InFlightHere               // the decode engine is computing most of the prompt for others
	Computes                   // it is computing more of the prompt for others than another
	DecodeIsFull               // a prefill engine generates, until a decode engine has room
	TookNoMore                 // it was full lately, and no other is there
	RunsLess                   // it has much less to do than the engine where a request runs
	ForPhase                   // it is meant for the phase of the request, and others are not
)

// Reason is why a request goes where it goes. Programs go by its kind, people read
// its text.
type Reason struct {
	Kind ReasonKind
	// Of Short, Cached, Stored, Coming, HoldsPrefix, Fetches and Computes: the prompt's
	// tokens, and how many of them the engine holds, can fetch, or is computing; Told means
	// by its own word. Of RunsLess: what the two have to do, in running requests.
	Tokens, Held int
	Told         bool
	Phase        Phases // of ForPhase
}

// String is the reason for people.
func (r Reason) String() string {
	switch r.Kind {
	case SeveralAnswers:
		return "several answers at once"
	case Short:
		return fmt.Sprintf("short, %d tokens", r.Tokens)
	case Cached:
		return fmt.Sprintf("cached, %d of %d tokens", r.Held, r.Tokens)
	case NoPrefillEngine:
		return "no prefill engine"
	case DecodeIsBest:
		return "the decode engine is the best for it"
	case FailedLately:
		return "failed lately, no other is there"
	case OnlyOne:
		return "the only one"
	case HoldsPrefix:
		text := fmt.Sprintf("prefix %d/%d", min(r.Held, r.Tokens), r.Tokens)
		if r.Told {
			text += " by its events"
		}
		return text
	case LeastLoaded:
		return "least loaded"
	case Drawn:
		return "equal, drawn"
	case AsBefore:
		return "as before"
	case Stored:
		return fmt.Sprintf("stored, %d of %d tokens", min(r.Held, r.Tokens), r.Tokens)
	case Fetches:
		return fmt.Sprintf("stored %d/%d", min(r.Held, r.Tokens), r.Tokens)
	case InFlightHere:
		return fmt.Sprintf("computing, %d of %d tokens", min(r.Held, r.Tokens), r.Tokens)
	case Computes:
		return fmt.Sprintf("computing %d/%d", min(r.Held, r.Tokens), r.Tokens)
	case DecodeIsFull:
		return "decode engines are full"
	case TookNoMore:
		return "full lately, no other is there"
	case ForPhase:
		return map[Phases]string{Think: "meant for thoughts", Answer: "meant for answers"}[r.Phase]
	case RunsLess:
		return fmt.Sprintf("has %d to do, not %d", r.Held, r.Tokens)
	}
	return fmt.Sprintf("Because(%d)", uint8(r.Kind))
}
