package sim

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"meridian/internal/seeded"
	"meridian/keep/store/storesim"
	"meridian/move/agent"
	"meridian/move/fabric"
	"meridian/move/transceiver/handoff/handoffsim"
)

// Tally counts what was exercised, so that one sees whether a run means
// anything.
type Tally struct {
	Worlds, Events, Processes, Closed uint64
	Simulated                         time.Duration
	Faults                            [faultCount]uint64

	Posted, Again, Repeated, Relived, Abandoned uint64
	Ends                                        [2][3]uint64 // by operation and end
	Cancelled                                   [3]uint64    // by how far it had come
	Reasons                                     [len(reasons) + 1]uint64
	SecondTries                                 uint64
	Taken, Placed, Lent, Late                   uint64

	Registered, Deregistered, Fences, Grants, Revoked  uint64
	Notified, NotNotified, NotificationsRefused, Heard uint64
	Unknown, Unavailable                               uint64

	HandOffs handoffsim.Tally // of worlds of hand-offs, which have no other counts
	Store    storesim.Tally   // of worlds of the object cache, likewise
}

// reasons are what ends that are not Done are counted by; the last count is for
// others.
var reasons = [...]error{
	fabric.ErrUnknownRegion, fabric.ErrStaleEpoch, fabric.ErrChecksum, fabric.ErrBusy, fabric.ErrCancelled, fabric.ErrDeadline,
	fabric.ErrClosed, agent.ErrForgotten, fabric.ErrPeerGone, fabric.ErrStalePeer, fabric.ErrRefused, fabric.ErrNoGrant,
	fabric.ErrGrantSpans, fabric.ErrGrantPeer, fabric.ErrGrantOp, fabric.ErrGrantExpired, fabric.ErrGrantRevoked,
}

func (t *Tally) end(x *transfer) {
	t.Ends[x.op-fabric.Read][x.state-fabric.Done]++
	if x.tries > 1 {
		t.SecondTries++
	}
	if x.err == nil {
		return
	}
	seeded.Failed(t.Reasons[:], reasons[:], x.err)
}

func (t *Tally) notified(err error) {
	if err != nil {
		t.NotNotified++
	} else {
		t.Notified++
	}
}

func (t *Tally) sections() seeded.Sections {
	var faults seeded.Counts
	count := func(to *seeded.Counts, name string, n *uint64) { *to = append(*to, seeded.Counts{{name, n}}...) }
	for f := range t.Faults {
		if Fault(f) != FullQueue { // a property of a world, not an event
			count(&faults, Fault(f).String(), &t.Faults[f])
		}
	}
	ends := seeded.Counts{
		{"posted", &t.Posted},
		{"of a request that was posted before", &t.Again},
		{"of an id that was posted before", &t.Repeated},
		{"  which the agent had forgotten", &t.Relived},
		{"tried on another fabric", &t.SecondTries},
		{"whose client died", &t.Abandoned},
	}
	for op := range t.Ends {
		for end := range t.Ends[op] {
			name := fmt.Sprintf("%v %v", fabric.Op(op)+fabric.Read, fabric.State(end)+fabric.Done)
			count(&ends, name, &t.Ends[op][end])
		}
	}
	for stage := range t.Cancelled {
		count(&ends, fmt.Sprintf("cancelled when %v", fabric.State(stage)), &t.Cancelled[stage])
	}
	rest := seeded.Counts{
		{"processes", &t.Processes},
		{"closed while others worked", &t.Closed},
		{"regions registered", &t.Registered},
		{"deregistered", &t.Deregistered},
		{"fenced", &t.Fences},
		{"grants", &t.Grants},
		{"revoked", &t.Revoked},
		{"notifications taken", &t.Heard},
		{"refused", &t.NotificationsRefused},
		{"bare notifications answered", &t.Notified},
		{"not answered, or refused", &t.NotNotified},
		{"peers not found", &t.Unknown},
		{"calls that found no directory", &t.Unavailable},
		{"bytes taken", &t.Taken},
		{"bytes placed", &t.Placed},
		{"bytes copied out of lent memory", &t.Lent},
		{"pieces copied after it was taken back", &t.Late},
	}
	return seeded.Sections{{"faults", faults}, {"transfers", ends}, {"why not done", seeded.Reasons(t.Reasons[:], reasons[:])}, {"besides", rest}}
}

// Add adds the counts of another run.
func (t *Tally) Add(other *Tally) {
	t.Worlds += other.Worlds
	t.Events += other.Events
	t.Simulated += other.Simulated
	t.HandOffs.Add(&other.HandOffs)
	t.Store.Add(&other.Store)
	t.sections().Add(other.sections())
}

// Write prints what was exercised.
func (t *Tally) Write(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', tabwriter.AlignRight)
	sections := t.sections()
	switch {
	case t.HandOffs.Worlds > 0:
		sections = t.HandOffs.Sections()
	case t.Store.Worlds > 0:
		sections = t.Store.Sections()
	}
	for _, s := range sections {
		fmt.Fprintf(w, "%s\n", s.Title)
		for _, c := range s.Counts {
			fmt.Fprintf(w, "  %d\t %s\n", *c.N, c.Name)
		}
	}
	return w.Flush()
}
