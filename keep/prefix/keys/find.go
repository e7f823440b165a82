package keys

import "slices"

// MaxSegments is in how many pieces, each of one owner, a found run may come: each is a
// hand-off of its own, and they run side by side.
const MaxSegments = 4

// UnitRange is units First to End of a chain at one owner.
type UnitRange struct {
	Owner      string
	First, End int
}

// Cut makes stretches of who has which units, from one on to the first that no owner has.
func Cut(owners []string, first int) (found []UnitRange) {
	for at := first; at < len(owners) && owners[at] != ""; at++ {
		if last := len(found) - 1; last >= 0 && found[last].Owner == owners[at] {
			found[last].End++
			continue
		}
		if len(found) == MaxSegments {
			break
		}
		found = append(found, UnitRange{owners[at], at, at + 1})
	}
	return found
}

// Grant is a stretch that can be taken, and where its units were, if the owner said so.
type Grant struct {
	UnitRange
	Ticket []byte
	From   []TierWait
}

// FindMachine is one Find: every owner of a stretch is asked at once, one that has less than
// was thought is asked once more for what it has, and what cannot be used because
// something before it is missing is given back.
//
//	asked ──Taken──► granted ────────────────► found
//	  │ Missing, some are there                  ▲
//	  ├──────────► asked again ──Taken───────────┤
//	  └─ refused, late ─► gone       what follows it: given back
type FindMachine struct {
	stretches []seeking
	late      bool
	why       Verdict
}

type seeking struct {
	UnitRange
	ticket []byte
	from   []TierWait
	asked  bool // an answer is to come
	again  bool // it was asked once more
	short  bool // what follows is of no use
}

// NewFindMachine begins with stretches that follow one another. Each is asked for, by its
// number.
func NewFindMachine(stretches []UnitRange) *FindMachine {
	f := &FindMachine{why: Taken}
	for _, s := range stretches {
		f.stretches = append(f.stretches, seeking{UnitRange: s, asked: true})
	}
	return f
}

// Answered takes the answer about a stretch. Ask is set where the owner is to be asked
// once more, for what the stretch is now; unused are tickets to be given back.
func (f *FindMachine) Answered(number int, a *FindAnswer) (ask bool, unused [][]byte) {
	s := &f.stretches[number]
	if !s.asked {
		return false, given(a.Ticket)
	}
	s.asked = false
	switch have := s.First + a.Have; {
	case a.Verdict == Taken:
		s.ticket = a.Ticket
		if !s.again { // else the first answer said where they were, and they are in memory since
			s.from = a.From
		}
	case a.Verdict == Missing && !s.again && a.Have > 0 && have < s.End && !f.cut(number):
		s.asked, s.again, s.short, s.End, s.from = true, true, true, have, a.From
		f.why = a.Verdict
		return true, f.giveBack(number + 1)
	default:
		s.short, s.End, f.why = true, s.First, a.Verdict
	}
	return false, f.giveBack(0)
}

// Failed says that no answer about a stretch will come.
func (f *FindMachine) Failed(number int) (unused [][]byte) {
	s := &f.stretches[number]
	if !s.asked {
		return nil
	}
	s.asked, s.short, s.End, f.late = false, true, s.First, true
	return f.giveBack(0)
}

// Expire says that no more is waited for.
func (f *FindMachine) Expire() (unused [][]byte) {
	for i := range f.stretches {
		unused = append(unused, f.Failed(i)...)
	}
	return unused
}

// cut reports whether something before a stretch is missing.
func (f *FindMachine) cut(number int) bool {
	return slices.ContainsFunc(f.stretches[:number], func(s seeking) bool { return s.short })
}

// giveBack takes the tickets from a stretch on that are of no use.
func (f *FindMachine) giveBack(from int) (unused [][]byte) {
	for i := from; i < len(f.stretches); i++ {
		s := &f.stretches[i]
		if f.cut(i) && s.ticket != nil {
			unused = append(unused, s.ticket)
			s.ticket = nil
		}
	}
	return unused
}

func given(ticket []byte) [][]byte {
	if len(ticket) == 0 {
		return nil
	}
	return [][]byte{ticket}
}

// Waits reports whether an answer about a stretch is to come.
func (f *FindMachine) Waits(number int) bool { return f.stretches[number].asked }

// At is what a stretch is now.
func (f *FindMachine) At(number int) UnitRange { return f.stretches[number].UnitRange }

// Over reports whether nothing more is to come that matters.
func (f *FindMachine) Over() bool {
	for i := range f.stretches {
		if f.cut(i) {
			return true
		}
		if f.stretches[i].asked {
			return false
		}
	}
	return true
}

// Found is what can be taken, in order, and why it is not more: Taken if it is all.
func (f *FindMachine) Found() (granted []Grant, why Verdict, late bool) {
	for i := range f.stretches {
		s := &f.stretches[i]
		if s.ticket == nil || f.cut(i) {
			break
		}
		granted = append(granted, Grant{s.UnitRange, s.ticket, s.from})
	}
	return granted, f.why, f.late
}
