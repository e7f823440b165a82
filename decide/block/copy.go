package block

import "fmt"

// Location is where the contents of a block are.
type Location uint8

const (
	// Vacant blocks have no contents.
	Vacant Location = iota
	// Here means in the engine's memory only.
	Here
	// Leaving means here, while a copy is being made.
	Leaving
	// Both means here, with an equal copy elsewhere.
	Both
	// Arriving means elsewhere, while a copy is brought into this block.
	Arriving
	// Elsewhere means that the block was evicted and its copy remains.
	Elsewhere
)

var locationNames = [...]string{
	Vacant: "vacant", Here: "here", Leaving: "leaving", Both: "both", Arriving: "arriving", Elsewhere: "elsewhere",
}

func (l Location) String() string {
	if int(l) >= len(locationNames) {
		return fmt.Sprintf("location(%d)", uint8(l))
	}
	return locationNames[l]
}

func (s *slot) location() Location {
	switch {
	case s.queue == vacant:
		return Vacant
	case s.has(arriving):
		return Arriving
	case s.has(leaving):
		return Leaving
	case s.has(copied):
		return Both
	}
	return Here
}

// Location is where a block's contents are.
func (t *Table) Location(b ID) (Location, error) {
	s, err := t.slot(b)
	if err != nil {
		return Vacant, err
	}
	return s.location(), nil
}

// CopyOut says that a copy of a block is being made elsewhere. The block keeps
// its place in memory until CopiedOut, whatever becomes of its holds. A block
// that a running request still writes can not be copied.
func (t *Table) CopyOut(b ID) error {
	s, err := t.slot(b)
	if err != nil {
		return err
	}
	switch at := s.location(); {
	case at != Here:
		return fmt.Errorf("%w: block %d is %v: what is copied out is here, and only here", ErrRefused, b, at)
	case s.running > 0 && !s.has(sealed):
		return fmt.Errorf("%w: block %d is still being written: seal it, or pause its request", ErrRefused, b)
	}
	s.marks |= leaving
	t.place(uint32(b))
	return nil
}

// CopiedOut says that the transfer which CopyOut announced is over, and whether
// the copy is whole. It reports whether there is a copy now: not where a request
// has begun to write the block since.
func (t *Table) CopiedOut(b ID, whole bool) (bool, error) {
	s, err := t.slot(b)
	if err != nil {
		return false, err
	}
	if !s.has(leaving) {
		return false, fmt.Errorf("%w: block %d is %v: nothing was copying it out", ErrRefused, b, s.location())
	}
	whole = whole && !s.has(stale)
	s.marks &^= leaving | stale
	if whole {
		s.marks |= copied
		t.counts.CopiedOut++
	}
	t.place(uint32(b))
	return whole, nil
}

// Recall says that what a request holds elsewhere is being brought into a block:
// a vacant one, in which it is Arriving until Arrived says otherwise, or one that
// has it already, for another request. The new hold has the tier of the old one.
func (t *Table) Recall(held Held, to ID) error {
	q, err := t.elsewhere(held)
	if err != nil {
		return err
	}
	s, err := t.slot(to)
	if err != nil {
		return err
	}
	switch {
	case q.state == Running:
		return fmt.Errorf("%w: request %v runs: only a paused one waits for blocks", ErrRefused, held.Request)
	case s.holders() == maxHolders:
		return fmt.Errorf("%w: %d requests hold block %d, and no more can", ErrRefused, maxHolders, to)
	case s.abandoned():
		return fmt.Errorf("%w: block %d is %v: a transfer touches it still", ErrRefused, to, s.location())
	}
	if s.queue == vacant {
		s.marks |= arriving | copied
	}
	t.attach(held.hold, uint32(to))
	return nil
}

// Arrived says that the transfer which Recall announced is over, and whether the
// block is whole. If not, it is vacant again and its holds remain elsewhere.
func (t *Table) Arrived(b ID, whole bool) error {
	s, err := t.slot(b)
	if err != nil {
		return err
	}
	if !s.has(arriving) {
		return fmt.Errorf("%w: block %d is %v: nothing was bringing it in", ErrRefused, b, s.location())
	}
	if whole {
		t.counts.BroughtIn++
	} else {
		s.marks &^= sealed
		t.expel(uint32(b), true)
	}
	s.marks &^= arriving
	t.place(uint32(b))
	return nil
}

func (t *Table) elsewhere(held Held) (*request, error) {
	q, err := t.request(held.Request)
	if err != nil {
		return nil, err
	}
	if int(held.hold) >= t.blocks+len(t.extra) || t.hold(held.hold).request != held.Request.index() || t.hold(held.hold).block != none {
		return nil, fmt.Errorf("%w: this hold of request %v is not elsewhere: ask Of again", ErrUnknown, held.Request)
	}
	return q, nil
}

// expel takes every hold off a block. With a copy elsewhere the holds of those
// who need it remain; it returns how many did not.
func (t *Table) expel(b uint32, copyRemains bool) (lost int) {
	for h := t.slots[b].first; h != none; h = t.slots[b].first {
		state := t.requests[t.hold(h).request].state
		t.detach(h)
		if state == Finished || !copyRemains {
			t.endHold(h)
			if state != Finished {
				lost++
			}
		}
	}
	return lost
}
