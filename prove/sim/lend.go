package sim

import (
	"slices"
	"time"

	"meridian/move/checksum"
	"meridian/move/fabric"
	"meridian/move/fabric/link"
	"meridian/move/mem"
)

// lender is one end of a stream that lends memory instead of sending its bytes,
// as move/fabric/host does. Frames travel as on any stream; flags and memory are seen
// by the other end at once, as shared memory is.
type lender struct {
	*stream
	other  *lender
	turn   uint64
	flying map[link.Flag]bool
	lent   map[loanName]*mem.Section
	takes  []*take
}

var _ link.Lender = (*lender)(nil)

type loanName struct{ region, epoch uint64 }

// lendOver makes a stream one that lends.
func lendOver(s *stream, serving bool) *lender {
	l := &lender{stream: s, flying: make(map[link.Flag]bool), lent: make(map[loanName]*mem.Section)}
	s.lending = link.NewLending(l, endRecorder{s.end, l}, serving)
	return l
}

// Lend lets the other end find a part's memory, and then sends frames.
func (l *lender) Lend(b *fabric.Bound, frames []byte) error {
	for i := range b.List {
		l.lent[loanName{b.List[i].Region, b.List[i].Epoch}] = b.Section(i)
	}
	l.Send(frames)
	return nil
}

// Raise flies a flag.
func (l *lender) Raise() (link.Flag, error) {
	l.turn++
	f := link.Flag{Cell: uint32(l.turn % 7), Turn: l.turn} // cells are used again
	l.flying[f] = true
	return f, nil
}

// Lower takes flags down and lets the other end finish the pieces that it has
// begun under them, unless it stands still.
func (l *lender) Lower(flags []link.Flag) {
	for _, f := range flags {
		delete(l.flying, f)
	}
	for _, k := range l.other.takes {
		switch {
		case !k.looked || !slices.Contains(flags, k.taking.Flag):
		case l.other.process.pausedUntil > l.world.now && l.other.process != l.process:
			k.abandoned = true
		default:
			k.copy()
		}
	}
}

// Flies looks at a flag of the other end's.
func (l *lender) Flies(f link.Flag) bool { return l.other.flying[f] }

// Lives is what the kernel says of a socket between two processes.
func (l *lender) Lives() error {
	if l.other.closed || l.other.process.dead {
		return fabric.ErrPeerGone
	}
	return nil
}

// take is the copying of a part out of the other end's memory, a piece at a
// time. Between the look at the flag and the copy anything may happen.
type take struct {
	lender    *lender
	taking    *link.Taking
	from, to  fabric.Walk
	looked    bool // the flag flew, and the piece was not copied yet
	abandoned bool // the owner of the source took it back since, and did not wait
	late      bool // a piece was copied after that
	err       error
}

// Take starts to copy.
func (l *lender) Take(t *link.Taking) {
	k := &take{lender: l, taking: t, from: t.From.Walk(), to: t.In.Walk}
	l.takes = append(l.takes, k)
	k.soon(k.look)
}

func (k *take) soon(run func()) {
	w := k.lender.world
	w.after(time.Duration(w.road.Int64N(int64(20*time.Microsecond))), k.lender.process, run)
}

// look is the first half of a piece; or the end, when there is none.
func (k *take) look() {
	err := k.err
	if err == nil && k.to.Left() > 0 {
		if err = k.taking.Enter(); err == nil {
			k.taking.Leave()
			k.looked = true
			k.mayStandStill()
			k.soon(k.goOn)
			return
		}
	}
	k.taking.Over(err)
	k.lender.takes = slices.DeleteFunc(k.lender.takes, func(other *take) bool { return other == k })
}

// mayStandStill has the process stop in the middle of a piece, more often of the
// last one: the flag is not looked at between that and the end.
func (k *take) mayStandStill() {
	w, often := k.lender.world, 0.01
	if k.to.Left() <= w.swarm.piece {
		often = 0.08
	}
	if w.swarm.faults[Pause] && !w.calm && chance(w.mischief, often) {
		w.tally.Faults[Pause]++
		w.pause(k.lender.process)
	}
}

// goOn copies, and may be at the next look before anything else happens to its
// process.
func (k *take) goOn() {
	k.copy()
	if k.lender.world.road.IntN(2) == 0 {
		k.look()
	} else {
		k.soon(k.look)
	}
}

// copy is the second half of a piece.
func (k *take) copy() {
	if !k.looked {
		return // the side that took the flag down has waited for it
	}
	k.looked = false
	l, in := k.lender, k.taking.In
	switch {
	case in.Discard:
		return
	case l.other.process.dead:
		k.err = fabric.ErrPeerGone
		return
	}
	w := l.world
	cut := k.from.Next(w.swarm.piece)
	name := &k.taking.From[cut.Part]
	section := l.other.lent[loanName{name.Region, name.Epoch}]
	if k.abandoned {
		w.note(l.process, w.transfers[in.ID], "takes %d bytes at %d of region %d, too late", cut.Length, cut.Offset, name.Region)
		k.abandoned, k.late, w.transfers[in.ID].late = false, true, true
		w.tally.Late++
	} else {
		w.taken(l.other.process, in.ID, section, cut)
	}
	w.tally.Lent += cut.Length
	piece := make([]byte, cut.Length)
	if err := section.ReadAt(piece, cut.Offset); err != nil {
		w.violate("memory in use stays", nil, "taking part %d of transfer %v: %v", in.Index, in.ID, err)
	}
	sum := checksum.Of(piece)
	l.corrupt(in.ID, piece)
	k.place(piece)
	k.err = in.Verify(sum, checksum.Of(piece), uint32(cut.Length))
}

func (k *take) place(b []byte) {
	w, in := k.lender.world, k.taking.In
	for len(b) > 0 {
		cut := k.to.Next(uint64(len(b)))
		section := in.Bound.Section(cut.Part)
		w.placed(k.lender.process, in.ID, section, cut)
		if err := section.WriteAt(b[:cut.Length], cut.Offset); err != nil {
			w.violate("memory in use stays", nil, "writing part %d of transfer %v: %v", in.Index, in.ID, err)
		}
		b = b[cut.Length:]
	}
}

// endRecorder hears what a lending stream reports to its end.
type endRecorder struct {
	link.End
	lender *lender
}

// Arrived demands that nothing counts that was taken too late.
func (j endRecorder) Arrived(p *link.Inbound, err error) {
	w := j.lender.world
	for _, k := range j.lender.takes {
		if k.taking.In == p && k.late && err == nil {
			w.violate("what was taken back is not taken", w.transfers[p.ID], "%v has copied a part of %v after its owner had taken it back, and says that all is well",
				j.lender.process, w.transfers[p.ID])
		}
	}
	j.End.Arrived(p, err)
}
