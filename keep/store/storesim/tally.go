package storesim

import (
	"meridian/internal/seeded"
	"meridian/keep/store/master"
	"meridian/keep/store/owner"
	"meridian/keep/store/protocol"
)

// Tally counts what was exercised, so that one sees whether a run means
// anything.
type Tally struct {
	Worlds, Events uint64

	Crashes, Pauses, Cuts, Lost, Twice, Late, Unanswered, Elections, Marks uint64

	Put, PutFrom, Opened, Got, Located, Removed, Mapped, Landed uint64
	Reasons                                                     [len(reasons) + 1]uint64

	Evictions, GivenAway, Grants, Revoked, Kept, Refused, Vanished, Deliveries, SlowDeliveries, Fetches, SlowFetches, Unfetched, Produced, ProducersDead, Runs, Written, Promoted, LeftAlone, TierSlow, TierFailed, TierLost uint64

	Messages, Bytes, Steps uint64
}

// reasons are what failures are counted by; the last count is for others.
var reasons = [...]error{
	owner.ErrMissing, owner.ErrExists, owner.ErrBusy, owner.ErrOverloaded, owner.ErrFull, owner.ErrStale, master.ErrUnsettled, master.ErrSilent, protocol.ErrUnavailable,
}

func (t *Tally) ended(k kind, err error) {
	if err == nil {
		*map[kind]*uint64{aPut: &t.Put, aPutOf: &t.PutFrom, anOpen: &t.Opened, aGet: &t.Got, aLocate: &t.Located, aRemove: &t.Removed}[k]++
		return
	}
	seeded.Failed(t.Reasons[:], reasons[:], err)
}

// Sections lists all counts but those of worlds and events.
func (t *Tally) Sections() seeded.Sections {
	return seeded.Sections{
		{"trouble", seeded.Counts{
			{"crash", &t.Crashes},
			{"process that stood still", &t.Pauses},
			{"link cut", &t.Cuts},
			{"message lost", &t.Lost},
			{"message heard twice", &t.Twice},
			{"message very late", &t.Late},
			{"request given up as unanswered", &t.Unanswered},
			{"writer that vanished with its plan", &t.Vanished},
			{"producer that died in the middle", &t.ProducersDead},
			{"call of a tier that was late", &t.TierSlow},
			{"call of a tier that failed", &t.TierFailed},
			{"object that a tier lost, or changed", &t.TierLost},
		}},
		{"operations", seeded.Counts{
			{"small values put", &t.Put},
			{"values put from the client's memory", &t.PutFrom},
			{"values written under a grant", &t.Opened},
			{"values got", &t.Got},
			{"  into the reader's memory", &t.Landed},
			{"objects located", &t.Located},
			{"  and read where they lie", &t.Mapped},
			{"removed", &t.Removed},
			{"values of producers", &t.Produced},
			{"runs held where they lie", &t.Runs},
			{"units written to a tier", &t.Written},
			{"units brought back from one", &t.Promoted},
		}},
		{"why they failed", seeded.Reasons(t.Reasons[:], reasons[:])},
		{"besides", seeded.Counts{
			{"masters elected", &t.Elections},
			{"owners marked as away, or back", &t.Marks},
			{"objects evicted", &t.Evictions},
			{"objects dropped on the master's word", &t.GivenAway},
			{"grants made", &t.Grants},
			{"grants revoked", &t.Revoked},
			{"grants kept for writers that nothing stops", &t.Kept},
			{"writes refused for want of a grant", &t.Refused},
			{"deliveries", &t.Deliveries},
			{"deliveries that took too long", &t.SlowDeliveries},
			{"values read from a client's memory", &t.Fetches},
			{"reads of it that took too long", &t.SlowFetches},
			{"reads of it that it ended", &t.Unfetched},
			{"calls that a tier was spared", &t.LeftAlone},
			{"messages", &t.Messages},
			{"bytes touched", &t.Bytes},
			{"steps of histories", &t.Steps},
		}},
	}
}

// Add adds the counts of another run.
func (t *Tally) Add(other *Tally) {
	t.Worlds += other.Worlds
	t.Events += other.Events
	t.Sections().Add(other.Sections())
}
