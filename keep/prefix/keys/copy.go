package keys

import "meridian/internal/fields"

// MaxCopies is how many copies of a run there may be, the objects themselves included.
const MaxCopies = 8

// CopyAsk asks an owner to keep copies of units that the asker has, the first of which is
// unit First of its sequence, from that of number Have on: those before are kept already, and
// do not leave to make room for these. The ticket is for these. It is answered by a KeepAnswer.
type CopyAsk struct {
	Shape  Shape
	Units  Chain
	First  int
	Have   int
	Number int // of the copies, 1 to MaxCopies
	Ticket []byte
	// WithinMs is how long the asker holds them.
	WithinMs uint64
	// Pays: the message says who the units' Payer is, for when they stand in for the others.
	Pays bool
}

func (m *CopyAsk) kind() uint8 {
	if m.Pays {
		return kindPayingCopy
	}
	return kindCopyAsk
}

// ReadsCopies reports whether an agent that reads messages up to a kind reads CopyAsk.
func ReadsCopies(lastKind int) bool { return lastKind >= kindCopyAsk }

func (m *CopyAsk) each(c fields.Codec) {
	m.Shape.each(c)
	m.Units.each(c)
	fields.UpTo(c, MaxUnits, &m.First, &m.Have)
	fields.UpTo(c, MaxCopies, &m.Number)
	eachTicket(c, &m.Ticket)
	fields.UpTo(c, maxMs, &m.WithinMs)
	if m.Pays {
		eachPayer(c, &m.Units)
	}
	c.Demand(m.Number >= 1 && m.Have < len(m.Units.Keys) && m.First+len(m.Units.Keys) <= MaxUnits)
}

// Choose says from whom to take each unit of which there are copies, each with its owners:
// from the finder's own owner, else from who has the unit before, so that a run comes in few
// pieces, else from each copy in turn. Who is avoided has nothing.
func Choose(copies [][]string, own string, turn int, avoid map[string]bool) []string {
	chosen := make([]string, len(copies[0]))
	for i := range chosen {
		var any, same bool
		for n := range copies {
			owner := copies[(turn+n)%len(copies)][i]
			switch {
			case owner == "" || avoid[owner]:
			case owner == own:
				chosen[i], any, same = owner, true, true
			case !same && i > 0 && owner == chosen[i-1]:
				chosen[i], any, same = owner, true, true
			case !any:
				chosen[i], any = owner, true
			}
		}
	}
	return chosen
}

// Twice reports whether there is a unit that two owners have: if one fails, another can be asked.
func Twice(copies [][]string) bool {
	for i, owner := range copies[0] {
		for n := range copies[1:] {
			other := copies[n+1][i]
			if owner == "" {
				owner = other
			}
			if other != "" && other != owner {
				return true
			}
		}
	}
	return false
}

// LastCopies says which units of one copy, by who has those of each, stand in for the units
// themselves at an owner: no owner has them under a lower number.
func LastCopies(copies [][]string, number int, owner string) []bool {
	sole := make([]bool, len(copies[number]))
	for i := range sole {
		sole[i] = copies[number][i] == owner
		for n := range number {
			sole[i] = sole[i] && copies[n][i] == ""
		}
	}
	return sole
}

// CopyTo says which copies of a run are to be made next, by who has the units of each: of
// Number, from unit First on, at the first of the owners that may be asked; ok is false where
// there is nothing to make, or no owner to make it at. Owners that have units of another copy
// are not asked: a second copy at one owner is lost with the first.
func CopyTo(copies [][]string, owners []string) (number, first int, owner string, ok bool) {
	has := make(map[string]int) // which copy, from 1 on
	for n := range copies {
		for _, owner := range copies[n] {
			if owner != "" {
				has[owner] = n + 1
			}
		}
	}
	for n := range copies {
		first := 0
		for first < len(copies[n]) && copies[n][first] != "" {
			first++
		}
		if first == len(copies[n]) {
			continue
		}
		for _, want := range []int{n + 1, 0} { // who has some of it already, then who has none
			for _, owner := range owners {
				if has[owner] == want {
					return n + 1, first, owner, true
				}
			}
		}
	}
	return 0, 0, "", false
}
