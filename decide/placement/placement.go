package placement

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/zeebo/xxh3"
)

// Role is what an engine does.
type Role uint8

// The roles. One that does both may play either part, request by request.
const (
	Prefill Role = 1 << iota
	Decode
	Both = Prefill | Decode
)

func (r Role) String() string {
	switch r {
	case Prefill:
		return "prefill"
	case Decode:
		return "decode"
	case Both:
		return "both"
	}
	return fmt.Sprintf("Role(%d)", uint8(r))
}

// ParseRole reads what String writes.
func ParseRole(text string) (Role, error) {
	for _, r := range []Role{Prefill, Decode, Both} {
		if r.String() == text {
			return r, nil
		}
	}
	return 0, fmt.Errorf("place: no role %q; there is prefill, decode, both", text)
}

// Engine is one that could serve the request, as it stands now.
type Engine struct {
	ID   string
	Name string // for people
	Role Role
	// Phases are what it is meant to generate.
	Phases Phases
	// Doubtful engines failed lately; they are taken when no other is there.
	Doubtful bool
	// Full engines took no more lately; they are taken when only doubtful ones are there
	// beside them.
	Full bool
	// Spare: it does not decode, and can where engines that do are full, as the request can
	// leave it for one of them later.
	Spare bool
	// Room is how many requests it would begin at once, by its own word, 0 where that is not
	// known; Arriving is how many are on their way to it from others. Running counts them.
	Room, Arriving int
	// Running is how many requests it generates for, Waiting how many tokens of
	// prompts were sent to it that it has not answered yet.
	Running int
	Waiting int
	// All is how many requests it has, other gateways' too, by its own word; 0 where that is not
	// known.
	All int
	// Held is how many tokens of the prompt it holds, as far as is known; Told
	// means that the engine itself tells what it holds.
	Held int
	Told bool
	// Coming is how many tokens of the prompt, from its beginning, the engine is
	// computing for requests that are under way; they are part of Waiting.
	InFlight int
	// Stored is how many tokens of the prompt, from its beginning, the engine can
	// fetch from the cell's object cache, as far as is known.
	Stored int
	// StoredWeight is the Options' for this engine, as it was measured; 0: it was not.
	StoredWeight float64
}

// Request is what is to be placed.
type Request struct {
	// Tokens is the prompt's length; of a text, about.
	Tokens int
	// Whole requests cannot be split: several answers or several prompts at once.
	Whole bool
	// Overflows: where no decode engine is left, a spare one generates. One was asked and took
	// no more, or a client has the beginning of the answer.
	Overflows bool
	// Phase is Think or Answer, whichever its next token is of; 0 where that is not known.
	Phase Phases
	// Turn breaks ties: requests with different turns spread over equal engines.
	Turn uint64
}

// Options are how much weighs what.
type Options struct {
	// DirectTokens: a prompt of which the decode engine lacks no more than this
	// is computed there; moving it would take longer.
	DirectTokens int
	// AffinityWeight is how much a token that an engine holds already counts
	// against a token that others made it wait for. 0 ignores prefixes.
	AffinityWeight float64
	// RunningTokens is what a running generation counts as, in prompt tokens.
	RunningTokens int
	// StoredWeight is what a token costs that an engine can fetch and does not hold,
	// against one that it must compute, as long as the engine's own is not measured. Where
	// it is 1 or more, nothing is gained by fetching, and what is stored counts for nothing.
	StoredWeight float64
}

// ErrNoEngine means that no engine generates for this model.
var ErrNoEngine = errors.New("place: no engine decodes for this model")

// Choice is where a request goes, and why.
type Choice struct {
	Prefill string // "" where the decode engine computes the prompt itself
	Decode  string

	PrefillWhy, DecodeWhy Reason
}

// String is one line, as the header shows it.
func (c Choice) String() string {
	return fmt.Sprintf("prefill=%s (%s), decode=%s (%s)", cmp.Or(c.Prefill, "none"), c.PrefillWhy, c.Decode, c.DecodeWhy)
}

// Choose places a request.
func Choose(engines []Engine, r Request, o Options) (Choice, error) {
	decode, why := pick(engines, Decode, r, o)
	if decode == nil && r.Overflows || decode != nil && decode.Full {
		if spare := pickSpare(engines, r, o); spare != nil {
			why := Reason{Kind: DecodeIsFull}
			return Choice{Decode: spare.ID, DecodeWhy: why, PrefillWhy: why}, nil
		}
	}
	if decode == nil {
		return Choice{}, ErrNoEngine
	}
	c := Choice{Decode: decode.ID, DecodeWhy: why}
	computes, _ := o.lacks(decode, r)
	switch {
	case r.Whole:
		c.PrefillWhy.Kind = SeveralAnswers
	case r.Tokens <= o.DirectTokens:
		c.PrefillWhy = Reason{Kind: Short, Tokens: r.Tokens}
	case r.Tokens-decode.Held <= o.DirectTokens:
		c.PrefillWhy = Reason{Kind: Cached, Tokens: r.Tokens, Held: decode.Held}
	case r.Tokens-decode.InFlight <= o.DirectTokens:
		c.PrefillWhy = Reason{Kind: InFlightHere, Tokens: r.Tokens, Held: decode.InFlight}
	case computes <= o.DirectTokens:
		// It fetches the rest, which a hand-off would have to bring as well.
		c.PrefillWhy = Reason{Kind: Stored, Tokens: r.Tokens, Held: decode.Stored}
	default:
		c.choosePrefill(engines, r, o)
	}
	return c, nil
}

// pickSpare returns the prefill engine that generates while decode engines are full, nil for
// none: the one that has computed the prompt, most likely.
func pickSpare(engines []Engine, r Request, o Options) *Engine {
	var spare []Engine
	for _, e := range engines {
		if e.Spare && !e.Full && !e.Doubtful {
			e.Role = Decode
			spare = append(spare, e)
		}
	}
	best, _ := pick(spare, Decode, r, o)
	return best
}

// choosePrefill leaves the prompt to the decode engine where that is as good.
func (c *Choice) choosePrefill(engines []Engine, r Request, o Options) {
	prefill, why := pick(engines, Prefill, r, o)
	switch {
	case prefill == nil:
		c.PrefillWhy.Kind = NoPrefillEngine
	case prefill.ID == c.Decode:
		c.PrefillWhy.Kind = DecodeIsBest
	default:
		c.Prefill, c.PrefillWhy = prefill.ID, why
	}
}

// ChoosePrefill picks anew where the first choice failed; ok is false where
// none is left but the decode engine itself.
func ChoosePrefill(engines []Engine, decode string, r Request, o Options) (c Choice, ok bool) {
	c = Choice{Decode: decode, DecodeWhy: Reason{Kind: AsBefore}}
	c.choosePrefill(engines, r, o)
	return c, c.Prefill != ""
}

// storedWeight is what counts for an engine.
func (o Options) storedWeight(e *Engine) float64 {
	if o.StoredWeight < 1 && e.StoredWeight > 0 {
		return e.StoredWeight
	}
	return max(o.StoredWeight, 0)
}

// lacks is how many tokens of a prompt an engine must compute, and how many it does
// not hold and can fetch instead. What it computes for others it will hold.
func (o Options) lacks(e *Engine, r Request) (computes, fetches int) {
	held := min(max(e.Held, e.InFlight, 0), r.Tokens)
	if o.storedWeight(e) < 1 {
		fetches = max(min(e.Stored, r.Tokens)-held, 0)
	}
	return r.Tokens - held - fetches, fetches
}

// cost is in tokens. Of what comes, no engine says how much is computed already: half of it,
// about.
func (o Options) cost(e *Engine, role Role, r Request) float64 {
	work := float64(e.Waiting)
	if o.AffinityWeight > 0 {
		work -= float64(min(max(e.InFlight-e.Held, 0), e.Waiting)) / 2
	}
	if role == Decode {
		work += float64(e.Running * o.RunningTokens)
	}
	work += o.misfit(e, role, r)
	computes, fetches := o.lacks(e, r)
	return work + o.AffinityWeight*(float64(computes)+o.storedWeight(e)*float64(fetches))
}

// pick returns the cheapest engine of a role, and what was best about it.
func pick(engines []Engine, role Role, r Request, o Options) (*Engine, Reason) {
	candidates := make([]*Engine, 0, len(engines))
	for i := range engines {
		e := &engines[i]
		if e.Role&role == 0 {
			continue
		}
		if len(candidates) > 0 && e.rank() < candidates[0].rank() {
			candidates = candidates[:0]
		}
		if len(candidates) == 0 || e.rank() == candidates[0].rank() {
			candidates = append(candidates, e)
		}
	}
	if len(candidates) == 0 {
		return nil, Reason{}
	}
	best := slices.MinFunc(candidates, func(a, b *Engine) int {
		return cmp.Or(
			cmp.Compare(o.cost(a, role, r), o.cost(b, role, r)),
			cmp.Compare(specialisation(a.Role), specialisation(b.Role)),
			cmp.Compare(lot(r.Turn, a.ID), lot(r.Turn, b.ID)),
			cmp.Compare(a.ID, b.ID),
		)
	})
	return best, reason(best, candidates, role, r, o)
}

// rank puts engines that take requests, as far as is known, before the others.
func (e *Engine) rank() int {
	switch {
	case e.Doubtful:
		return 2
	case e.Full:
		return 1
	}
	return 0
}

// specialisation prefers engines that do nothing else.
func specialisation(r Role) int {
	if r == Both {
		return 1
	}
	return 0
}

// lot draws: every engine's number for a turn is as good as random.
func lot(turn uint64, id string) uint64 { return xxh3.HashStringSeed(id, turn) }

func reason(best *Engine, candidates []*Engine, role Role, r Request, o Options) Reason {
	switch {
	case best.Doubtful:
		return Reason{Kind: FailedLately}
	case best.Full:
		return Reason{Kind: TookNoMore}
	case len(candidates) == 1:
		return Reason{Kind: OnlyOne}
	case o.AffinityWeight > 0 && best.Held > 0 && slices.ContainsFunc(candidates, func(e *Engine) bool { return e.Held < best.Held }):
		return Reason{Kind: HoldsPrefix, Tokens: r.Tokens, Held: best.Held, Told: best.Told}
	case o.AffinityWeight > 0 && best.InFlight > best.Held && slices.ContainsFunc(candidates, func(e *Engine) bool { return e.InFlight < best.InFlight }):
		return Reason{Kind: Computes, Tokens: r.Tokens, Held: best.InFlight}
	case o.AffinityWeight > 0 && o.fetchesMore(best, candidates, r):
		return Reason{Kind: Fetches, Tokens: r.Tokens, Held: best.Stored}
	case role == Decode && best.Phases.Suits(r.Phase) && slices.ContainsFunc(candidates, func(e *Engine) bool { return !e.Phases.Suits(r.Phase) }):
		return Reason{Kind: ForPhase, Phase: r.Phase}
	case slices.ContainsFunc(candidates, func(e *Engine) bool { return o.cost(e, role, r) > o.cost(best, role, r) }):
		return Reason{Kind: LeastLoaded}
	}
	return Reason{Kind: Drawn}
}

// fetchesMore: the engine is spared tokens by what is stored that another must compute.
func (o Options) fetchesMore(best *Engine, candidates []*Engine, r Request) bool {
	computes, fetches := o.lacks(best, r)
	return fetches > 0 && slices.ContainsFunc(candidates, func(e *Engine) bool {
		others, _ := o.lacks(e, r)
		return others > computes
	})
}
