package keys

import (
	"encoding/binary"
	"slices"
)

// KeepMachine is one Keep: what no owner has is offered to one owner, the next if that has no
// room, and comes to an end with the offer, or without one.
//
//	located ──all there──► over
//	   │ some are missing
//	   ▼         Full, no answer
//	offered ─► asked ───────────► asked (the next owner)
//	              │ Taken             │ none is left, Have, Busy, Refused
//	              ▼                   ▼
//	           copying ─────► over ◄─ withdrawn
type KeepMachine struct {
	// First and End are the units that are kept.
	First, End int
	owners     []string
	at         int
	asked      bool
	// Outcome is what became of it, once it is over.
	outcome Verdict
	over    bool
}

// maxTries is how many owners are asked.
const maxTries = 3

// NewKeepMachine decides what is to be kept, by who has which units. Own is the owner of the
// publisher's own agent, "" where that keeps nothing; owners are all of the cell, by where
// the chain belongs.
func NewKeepMachine(have []string, own string, owners []string) *KeepMachine {
	k := &KeepMachine{}
	for k.First < len(have) && have[k.First] != "" {
		k.First++
	}
	for k.End = k.First; k.End < len(have) && have[k.End] == ""; k.End++ {
		continue
	}
	if k.First == k.End {
		k.over, k.outcome = true, Have
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
		k.over, k.outcome = true, Refused
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

// Ask is the owner to be asked now; "" for none.
func (k *KeepMachine) Ask() string {
	if k.over || k.asked {
		return ""
	}
	k.asked = true
	return k.owners[k.at]
}

// Answered takes an owner's answer; nil says that none will come. After Taken the offer
// tells the end.
func (k *KeepMachine) Answered(a *KeepAnswer) {
	if k.over || !k.asked {
		return
	}
	switch {
	case a != nil && a.Verdict == Taken:
		k.over, k.outcome = true, Taken
	case a == nil || a.Verdict == Full:
		k.asked, k.outcome = false, Busy
		if a != nil {
			k.outcome = Full
		}
		k.at++
		k.over = k.at == len(k.owners)
	default:
		k.over, k.outcome = true, a.Verdict
	}
}

// Over reports whether no owner is to be asked any more, and what came of it. What an owner
// has taken goes on.
func (k *KeepMachine) Over() (outcome Verdict, over bool) { return k.outcome, k.over }
