package block

import (
	"fmt"

	"meridian/kv"
)

// Request is a request's place in the table, from Admit to End. It is never
// given out twice.
type Request uint64

func newRequest(index, life uint32) Request { return Request(life)<<32 | Request(index) }

func (r Request) index() uint32  { return uint32(r) }
func (r Request) life() uint32   { return uint32(r >> 32) }
func (r Request) String() string { return fmt.Sprintf("%d.%d", r.index(), r.life()) }

// State is what a request does with its blocks.
type State uint8

const (
	// Running requests need all their blocks in every step.
	Running State = iota
	// Paused requests need them again: a block leaves only when a copy exists.
	Paused
	// Forgone requests are paused, too, but policy chose to recompute what goes.
	Forgone
	// Finished requests need them no more; the next turn might.
	Finished
)

var stateNames = [...]string{Running: "running", Paused: "paused", Forgone: "forgone", Finished: "finished"}

func (s State) String() string {
	if int(s) >= len(stateNames) {
		return fmt.Sprintf("state(%d)", uint8(s))
	}
	return stateNames[s]
}

type request struct {
	oldest, newest uint32            // of its holds
	holds, away    int32             // how many it has, and of those on no block
	recent         [readAhead]uint32 // slots of its latest holds, in a ring
	at             uint32            // of that
	life           uint32
	state          State
	live           bool
	free           uint32 // the next entry that is not used, in one that is not
}

// Held is one hold of a request.
type Held struct {
	Request  Request
	Block    ID // where it is, unless it is Elsewhere
	Tier     kv.Tier
	Location Location

	hold uint32
}

// Admit makes room for a request, which runs and holds nothing.
func (t *Table) Admit() Request {
	i := t.freeRequest
	if i == none {
		i = uint32(len(t.requests))
		t.requests = append(t.requests, request{})
	} else {
		t.freeRequest = t.requests[i].free
	}
	q := &t.requests[i]
	*q = request{oldest: none, newest: none, life: q.life + 1, live: true}
	return newRequest(i, q.life)
}

// End releases whatever a request holds and forgets it. The ends of contexts
// come first: fewer others could share them.
func (t *Table) End(r Request) error {
	q, err := t.request(r)
	if err != nil {
		return err
	}
	for q.newest != none {
		h := q.newest
		n := t.hold(h)
		t.warm(n)
		if n.block != none {
			t.detach(h)
		}
		t.endHold(h)
	}
	q.live, q.free, t.freeRequest = false, t.freeRequest, r.index()
	return nil
}

// SetState says what a request does from now on. One that has blocks elsewhere
// or on their way back can not run; a finished one stays so until its End.
func (t *Table) SetState(r Request, state State) error {
	q, err := t.request(r)
	if err != nil {
		return err
	}
	switch {
	case int(state) >= len(stateNames):
		return fmt.Errorf("%w: %v is not a state of requests", ErrRefused, state)
	case state == q.state:
		return nil
	case q.state == Finished:
		return fmt.Errorf("%w: request %v has finished and can not become %v", ErrRefused, r, state)
	case state == Running && q.away > 0:
		return fmt.Errorf("%w: request %v can not run: %d of its blocks are elsewhere; recall or forget them", ErrRefused, r, q.away)
	}
	if state == Running {
		for h := q.oldest; h != none; h = t.hold(h).newer {
			if b := t.hold(h).block; t.slots[b].has(arriving) {
				return fmt.Errorf("%w: request %v can not run: block %d is still being brought in", ErrRefused, r, b)
			}
		}
	}
	was := q.state
	q.state = state
	for h := q.newest; h != none; {
		n := t.hold(h)
		t.warm(n)
		older := n.older
		switch b := n.block; {
		case b != none:
			t.count(&t.slots[b], was, minusOne)
			t.count(&t.slots[b], state, 1)
			t.place(b)
		case state == Finished:
			t.endHold(h) // no request will ask for it
		}
		h = older
	}
	return nil
}

// State is what a request does.
func (t *Table) State(r Request) (State, error) {
	q, err := t.request(r)
	if err != nil {
		return 0, err
	}
	return q.state, nil
}

// Elsewhere is how many blocks a request holds that are not here.
func (t *Table) Elsewhere(r Request) (int, error) {
	q, err := t.request(r)
	if err != nil {
		return 0, err
	}
	return int(q.away), nil
}

// Of appends what a request holds, in the order of its context.
func (t *Table) Of(r Request, dst []Held) ([]Held, error) {
	q, err := t.request(r)
	if err != nil {
		return dst, err
	}
	for h := q.oldest; h != none; h = t.hold(h).newer {
		n := t.hold(h)
		held := Held{Request: r, Block: ID(n.block), Tier: n.tier, Location: Elsewhere, hold: h}
		if n.block != none {
			held.Location = t.slots[n.block].location()
		}
		dst = append(dst, held)
	}
	return dst, nil
}

func (t *Table) request(r Request) (*request, error) {
	if int(r.index()) >= len(t.requests) || t.requests[r.index()].life != r.life() || !t.requests[r.index()].live {
		return nil, fmt.Errorf("%w: request %v was never admitted, or has ended", ErrUnknown, r)
	}
	return &t.requests[r.index()], nil
}
