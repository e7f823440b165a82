package handoffsim

import (
	"errors"

	"meridian/move/transceiver/handoff"
)

// Tally counts what was exercised, so that one sees whether a run means
// anything.
type Tally struct {
	Worlds, Events uint64

	Crashes, Partitions, Lost, Twice, Late, LinkFaults, OtherBuilds uint64

	Offered, Growing, NoRoom, Early, Promised         uint64
	Withdrawn, Cancelled, Declined                    uint64
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

// OtherReason is the name of the count of failures that have none of the known
// reasons.
const OtherReason = "another reason"

func (t *Tally) failed(why error) {
	t.Failed++
	for i, reason := range reasons {
		if errors.Is(why, reason) {
			t.Reasons[i]++
			return
		}
	}
	t.Reasons[len(reasons)]++
}

// Section is counts that belong together.
type Section struct {
	Title  string
	Counts []Count
}

// Count is one of them.
type Count struct {
	Name string
	N    *uint64
}

// Sections lists all counts but those of worlds and events.
func (t *Tally) Sections() []Section {
	why := Section{Title: "why they failed"}
	for i := range reasons {
		why.Counts = append(why.Counts, Count{reasons[i].Error(), &t.Reasons[i]})
	}
	why.Counts = append(why.Counts, Count{OtherReason, &t.Reasons[len(reasons)]})
	return []Section{
		{"trouble", []Count{
			{"crash", &t.Crashes},
			{"partition", &t.Partitions},
			{"message lost", &t.Lost},
			{"message heard twice", &t.Twice},
			{"message very late", &t.Late},
			{"link broke under a transfer", &t.LinkFaults},
			{"worlds with a build that plans otherwise", &t.OtherBuilds},
		}},
		{"offers", []Count{
			{"offered", &t.Offered},
			{"  while prefill went on", &t.Growing},
			{"  to a decode engine that was first", &t.Early},
			{"  …by a promise", &t.Promised},
			{"for which there was no room", &t.NoRoom},
			{"withdrawn at some time", &t.Withdrawn},
			{"cancelled at some time", &t.Cancelled},
			{"declined", &t.Declined},
		}},
		{"hand-offs", []Count{
			{"accepted", &t.Accepted},
			{"  to be pushed", &t.Pushed},
			{"  after another engine had failed", &t.Elsewhere},
			{"transfers of some chunks of a prompt", &t.Chunks},
			{"ready", &t.Ready},
			{"failed", &t.Failed},
			{"blocks freed, of either side", &t.Freed},
		}},
		{"object caches", []Count{
			{"kept", &t.Kept},
			{"found", &t.Found},
			{"  in units that others read too", &t.Shared},
			{"asked for what is not held", &t.Greedy},
		}},
		why,
		{"besides", []Count{
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
	mine, theirs := t.Sections(), other.Sections()
	for i := range mine {
		for j := range mine[i].Counts {
			*mine[i].Counts[j].N += *theirs[i].Counts[j].N
		}
	}
}
