package handoffsim

import (
	"meridian/internal/seeded"
	"meridian/move/transceiver/handoff"
)

// Tally counts what was exercised, so that one sees whether a run means
// anything.
type Tally struct {
	Worlds, Events uint64

	Crashes, Partitions, Lost, Twice, Late, LinkFaults, OtherBuilds uint64

	Offered, Growing, NoRoom, Early, Promised         uint64
	Withdrawn, Cancelled, Returned                    uint64
	Chunks                                            uint64
	Accepted, Pushed, Ready, Failed, Freed, Elsewhere uint64
	Reasons                                           [len(reasons) + 1]uint64
	Kept, Found, Shared, Greedy                       uint64
	Messages, Bytes, Ranks                            uint64
}

// reasons are what failures are counted by; the last count is for others.
var reasons = [...]error{
	handoff.ErrExpired, handoff.ErrTaken, handoff.ErrDeclined, handoff.ErrWithdrawn, handoff.ErrCancelled, handoff.ErrDeadline,
	handoff.ErrDigest, handoff.ErrLapsed, handoff.ErrGone, handoff.ErrMove, handoff.ErrMember, handoff.ErrTerms,
}

func (t *Tally) failed(why error) {
	t.Failed++
	seeded.Failed(t.Reasons[:], reasons[:], why)
}

// Sections lists all counts but those of worlds and events.
func (t *Tally) Sections() seeded.Sections {
	return seeded.Sections{
		{"trouble", seeded.Counts{
			{"crash", &t.Crashes},
			{"partition", &t.Partitions},
			{"message lost", &t.Lost},
			{"message heard twice", &t.Twice},
			{"message very late", &t.Late},
			{"link broke under a transfer", &t.LinkFaults},
			{"worlds with a build that plans otherwise", &t.OtherBuilds},
		}},
		{"offers", seeded.Counts{
			{"offered", &t.Offered},
			{"  while prefill went on", &t.Growing},
			{"  to a decode engine that was first", &t.Early},
			{"  …by a promise", &t.Promised},
			{"for which there was no room", &t.NoRoom},
			{"withdrawn at some time", &t.Withdrawn},
			{"cancelled at some time", &t.Cancelled},
			{"returned", &t.Returned},
		}},
		{"hand-offs", seeded.Counts{
			{"accepted", &t.Accepted},
			{"  to be pushed", &t.Pushed},
			{"  after another engine had failed", &t.Elsewhere},
			{"transfers of some chunks of a prompt", &t.Chunks},
			{"ready", &t.Ready},
			{"failed", &t.Failed},
			{"blocks freed, of either side", &t.Freed},
		}},
		{"object caches", seeded.Counts{
			{"kept", &t.Kept},
			{"found", &t.Found},
			{"  in units that others read too", &t.Shared},
			{"asked for what is not held", &t.Greedy},
		}},
		{"why they failed", seeded.Reasons(t.Reasons[:], reasons[:])},
		{"besides", seeded.Counts{
			{"ranks", &t.Ranks},
			{"messages", &t.Messages},
			{"bytes moved", &t.Bytes},
		}},
	}
}

// Add adds the counts of another run.
func (t *Tally) Add(other *Tally) {
	t.Worlds += other.Worlds
	t.Events += other.Events
	t.Sections().Add(other.Sections())
}
