package keys

import (
	"encoding/binary"
	"slices"
)

// KeepMachine is one Keep: what no owner has goes to one owner, piece after piece, and on to
// the next owner where that has no room.
//
//	located ──all there──► over ◄──────────────────────────┐
//	   │ some are missing   ▲ none is left, Busy, Refused   │ all is there
//	   ▼                    │                               │
//	a piece ──Ask──► asked ─┴──Taken──► copying ──Copied────┤
//	   ▲              │ Full, no answer, Have               │
//	   └──────────────┴─────────────────────────────────────┘ there is more
type KeepMachine struct {
	// First is the first unit that no owner had when the Keep began, Kept how many an owner has
	// of this Keep by now.
	First, Kept int

	have    []string
	next    int // the first that is to be offered
	piece   int // how many units one has at most
	owners  []string
	at      int
	again   bool // the owner has just taken the beginning of a piece, and is asked for the rest of it
	state   keepState
	outcome Verdict
}

type keepState uint8

const (
	keepAsks keepState = iota
	keepAsked
	keepCopies
	keepOver
)

// maxTries is how many owners are asked.
const maxTries = 3

// NewKeepMachine decides what is to be kept, by who has which units. Own is the owner of the
// publisher's own agent, "" where that keeps nothing; owners are all of the cell, by where
// the chain belongs. Piece is how many units are offered at a time.
func NewKeepMachine(have []string, own string, owners []string, piece int) *KeepMachine {
	k := &KeepMachine{have: have, piece: piece}
	k.goOn(0)
	k.First = k.next
	if k.state == keepOver {
		return k
	}
	// A chain stays together: where its publisher is, or where it is already.
	wanted := []string{own}
	if k.First > 0 {
		wanted = append(wanted, have[k.First-1])
	}
	for _, name := range append(wanted, owners...) {
		if slices.Contains(owners, name) && !slices.Contains(k.owners, name) && len(k.owners) < maxTries {
			k.owners = append(k.owners, name)
		}
	}
	if len(k.owners) == 0 {
		k.state, k.outcome = keepOver, Refused
	}
	return k
}

// Belongs orders owners by where a chain belongs: all chains with the same first unit
// belong to the same one.
func Belongs(c Chain, owners []string) []string {
	if len(c.Keys) == 0 || len(owners) == 0 {
		return owners
	}
	first := binary.LittleEndian.Uint64(c.Keys[0][len(ModelTag{}):]) % uint64(len(owners))
	return slices.Concat(owners[first:], owners[:first])
}

// Piece is the units that are offered next.
func (k *KeepMachine) Piece() (first, end int) {
	for end = k.next; end < len(k.have) && end < k.next+k.piece && k.have[end] == ""; end++ {
		continue
	}
	return k.next, end
}

// Ask is the owner to be asked now for the piece; "" for none.
func (k *KeepMachine) Ask() string {
	if k.state != keepAsks {
		return ""
	}
	k.state = keepAsked
	return k.owners[k.at]
}

// Answered takes an owner's answer; nil says that none will come. After Taken the offer
// tells how the copy ends.
func (k *KeepMachine) Answered(a *KeepAnswer) {
	if k.state != keepAsked {
		return
	}
	again := k.again
	k.again = false
	switch {
	case a != nil && a.Verdict == Taken:
		k.state = keepCopies
	case a == nil:
		k.askNext(Busy)
	case a.Verdict == Full, again && a.Verdict == Busy:
		k.askNext(a.Verdict)
	case a.Verdict == Have: // another keeps the same just now
		_, end := k.Piece()
		k.goOn(end)
	default:
		k.state, k.outcome = keepOver, a.Verdict
	}
}

// askNext goes on with the next owner, if there is one.
func (k *KeepMachine) askNext(why Verdict) {
	k.outcome = why
	if k.at++; k.at == len(k.owners) {
		k.state = keepOver
	} else {
		k.state = keepAsks
	}
}

// Copied hears which units of the piece its owner took. What comes before them was there; what
// comes behind them it had no room for, or others have begun to bring: it is asked once more.
func (k *KeepMachine) Copied(first, end int) {
	if k.state != keepCopies {
		return
	}
	begin, whole := k.Piece()
	first, end = max(first, begin), max(begin, min(end, whole))
	k.Kept += max(0, end-first)
	if k.goOn(end); end < whole {
		if k.again = end > first; !k.again {
			k.askNext(Full)
		}
	}
}

// goOn goes on with what is missing of the units from one on.
func (k *KeepMachine) goOn(next int) {
	for k.next = next; k.next < len(k.have) && k.have[k.next] != ""; k.next++ {
		continue
	}
	switch k.state = keepAsks; {
	case k.next < len(k.have):
	case k.Kept > 0:
		k.state, k.outcome = keepOver, Taken
	default:
		k.state, k.outcome = keepOver, Have
	}
}

// Copies reports whether an owner takes the piece just now.
func (k *KeepMachine) Copies() bool { return k.state == keepCopies }

// Over reports whether nothing more is to be kept, and why: Taken or Have, as all is there.
func (k *KeepMachine) Over() (outcome Verdict, over bool) { return k.outcome, k.state == keepOver }
