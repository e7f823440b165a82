package protocol

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"meridian/keep/store/arena"
	"meridian/keep/store/master"
	"meridian/keep/store/owner"
	"meridian/kv"
)

// Operation is one request of a client about one object, on its way: it asks the
// owner where the key most likely is, the master when it is not there, and waits
// while neither can say.
//
//	asking an owner ──missing, taken──► asking the master ──an owner──► asking that one ──► over
//	      │  ▲                                 │                              │
//	      │  └───────────── waiting ◄──────────┴── not yet, no answer ◄───────┘
//	      └──► over
//
// What is to be stored goes to the owner of its key, if there is one: that knows
// whether the object exists, is only being written, or is gone by now.
//
// A put is never repeated when it may have happened. Whatever changes nothing, or
// the same thing twice, is.
type Operation struct {
	request  Message
	name     []byte
	hash     uint64
	owners   []kv.Member // where it may go, the best first
	deadline kv.Instant

	stage asking
	at    int // of owners, for what is to be stored
	pause kv.Instant
	doubt bool  // a remove may have happened already
	miss  error // what the first owner said that has it not
	last  error // why it was not answered
}

type asking uint8

const (
	first asking = iota
	theMaster
	another
	resting
)

// Step is what an operation does next: it asks a peer, waits, or is over.
type Step struct {
	// To is who is asked; ToMaster, that it is the process that is the master then.
	To       kv.Member
	ToMaster bool
	Message  Message
	// Wake is when to call Wake, where nothing is asked.
	Wake kv.Instant
	// Over is set at the end, with the answer or the error.
	Over   bool
	Answer Message
	Err    error
}

// NewOperation begins with a Put, PutFrom, Open, Get, Remove or Locate. Owners are those
// that the directory names, the preferred one first, the others by Rendezvous.
func NewOperation(request Message, owners []kv.Member, deadline kv.Instant) *Operation {
	o := &Operation{request: request, owners: owners, deadline: deadline, pause: firstPause}
	switch m := request.(type) {
	case *Put:
		o.name = m.Name
	case *PutFrom:
		o.name = m.Name
	case *Open:
		o.name = m.Name
	case *Get:
		o.name = m.Name
	case *Remove:
		o.name = m.Name
	case *Locate:
		o.name = m.Name
	}
	o.hash = arena.HashKey(o.name)
	return o
}

const (
	firstPause = 5 * kv.Millisecond
	lastPause  = 200 * kv.Millisecond
)

// stores reports whether the operation brings an object.
func (o *Operation) stores() bool {
	switch o.request.(type) {
	case *Put, *PutFrom, *Open:
		return true
	}
	return false
}

// Begin is the first step.
func (o *Operation) Begin(now kv.Instant) Step { return o.ask(now) }

// errNobody is why an operation waits whose cell has no owner that it knows. One that
// stood still for a moment is out of the directory, and comes back.
var errNobody = errors.New("no owner is known; is one running (meridian store serve)?")

// ask asks the owner whose turn it is, or waits for one.
func (o *Operation) ask(now kv.Instant) Step {
	switch {
	case now >= o.deadline:
		return o.over(nil, o.late())
	case len(o.owners) == 0:
		o.last = errNobody
		return o.rest(now)
	}
	o.stage = first
	return Step{To: o.owners[o.at], Message: o.patient(now)}
}

// patient is the request, with how long its client still waits.
func (o *Operation) patient(now kv.Instant) Message {
	left := uint64(max(1, (o.deadline-now)/kv.Millisecond))
	switch m := o.request.(type) {
	case *Put:
		m.PatienceMs = left
	case *PutFrom:
		m.PatienceMs = left
	case *Open:
		m.PatienceMs = left
	case *Get:
		m.PatienceMs = left
	}
	return o.request
}

// late is why it is over without an answer. An owner that had too much to do has
// answered: nothing happened.
func (o *Operation) late() error {
	if o.last == nil {
		return ErrUnavailable
	}
	if errors.Is(o.last, owner.ErrOverloaded) {
		return o.last
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, o.last)
}

func (o *Operation) over(answer Message, err error) Step {
	return Step{Over: true, Answer: answer, Err: err}
}

// Answered takes the answer to what was asked last. An answer to what was given up
// since is none of it.
func (o *Operation) Answered(now kv.Instant, m Message) Step {
	if o.stage == resting {
		panic("store: an answer to an operation that has not asked")
	}
	var err error
	if r, is := m.(*Reply); is {
		err = r.Problem.Err()
	}
	if o.stage == theMaster {
		return o.masterSaid(now, m, err)
	}
	switch {
	case err == nil:
		return o.over(m, nil)
	case errors.Is(err, owner.ErrMissing):
		if o.stage == another {
			return o.missing(err)
		}
		o.miss = err
		return o.askMaster()
	case errors.Is(err, master.ErrTaken) && o.stage == first:
		return o.askMaster()
	case errors.Is(err, owner.ErrFull) && o.stage == first && o.stores() && o.at+1 < len(o.owners):
		o.at++
		return o.ask(now)
	case errors.Is(err, owner.ErrOverloaded) && o.stage == first && o.stores():
		o.last = err
		if o.at++; o.at < len(o.owners) { // another may have less to do
			return o.ask(now)
		}
		o.at = 0
		return o.rest(now)
	case Passes(err), o.stores() && o.changed(err):
		o.last = err
		return o.rest(now)
	}
	return o.over(nil, err)
}

// changed reports whether another attempt to store finds things otherwise: its owner
// lost the key meanwhile, or the key's owner was another.
func (o *Operation) changed(err error) bool {
	return errors.Is(err, owner.ErrStale) || errors.Is(err, master.ErrTaken) || o.stage == another && errors.Is(err, owner.ErrFull)
}

// Passes reports whether a problem goes away by itself.
func Passes(err error) bool {
	return slices.ContainsFunc([]error{master.ErrSilent, master.ErrUnsettled, master.ErrOldTerm, owner.ErrOverloaded}, func(passing error) bool { return errors.Is(err, passing) })
}

// askMaster asks who has the key.
func (o *Operation) askMaster() Step {
	o.stage = theMaster
	if _, is := o.request.(*Remove); is {
		return Step{ToMaster: true, Message: &Forget{o.hash}}
	}
	return Step{ToMaster: true, Message: &Where{[]uint64{o.hash}}}
}

func (o *Operation) masterSaid(now kv.Instant, m Message, err error) Step {
	switch {
	case errors.Is(err, master.ErrMissing), errors.Is(err, owner.ErrMissing):
		return o.unowned(now)
	case err != nil:
		o.last = err
		return o.rest(now)
	}
	found, is := m.(*Owners)
	if !is || len(found.Names) != 1 {
		return o.over(nil, fmt.Errorf("%w: the master answered with %T", ErrMessage, m))
	}
	name := found.Names[0]
	if _, removes := o.request.(*Remove); name == "" && removes {
		return o.over(&Reply{}, nil) // its owner is away, and will hear of it
	}
	if name == "" {
		return o.unowned(now)
	}
	for _, p := range o.owners {
		if p.Name == name {
			o.stage = another
			return Step{To: p, Message: o.patient(now)}
		}
	}
	o.last = fmt.Errorf("owner %q has it, and the directory does not know that one", name)
	return o.rest(now)
}

// unowned: the key has no owner. What was refused because it had one is stored now.
func (o *Operation) unowned(now kv.Instant) Step {
	if o.stores() {
		o.last = fmt.Errorf("%w: and gave it up since", master.ErrTaken)
		return o.rest(now)
	}
	return o.missing(cmp.Or(o.miss, owner.ErrMissing))
}

// missing ends what has not found its object. A remove that may have happened
// before it was repeated has.
func (o *Operation) missing(err error) Step {
	if o.doubt {
		return o.over(&Reply{}, nil)
	}
	return o.over(nil, err)
}

// Unanswered says that no answer will come: the peer is gone, and the message may
// have arrived.
func (o *Operation) Unanswered(now kv.Instant, err error) Step {
	switch o.request.(type) {
	case *Put, *PutFrom:
		if o.stage != theMaster {
			o.last = err
			return o.over(nil, o.late())
		}
	case *Remove:
		o.doubt = o.doubt || o.stage != theMaster
	}
	return o.Undelivered(now, err)
}

// Undelivered says that a message surely did not arrive.
func (o *Operation) Undelivered(now kv.Instant, err error) Step {
	o.last = err
	if o.stores() && o.at+1 < len(o.owners) {
		o.at++
	}
	if o.stage == first && !o.stores() {
		return o.askMaster() // another owner may have it by now
	}
	return o.rest(now)
}

// rest waits a little and begins again.
func (o *Operation) rest(now kv.Instant) Step {
	if now+o.pause >= o.deadline {
		return o.over(nil, o.late())
	}
	o.stage = resting
	wake := now + o.pause
	o.pause = min(2*o.pause, lastPause)
	return Step{Wake: wake}
}

// Wake goes on after a pause. Owners are those that the directory names by now.
func (o *Operation) Wake(now kv.Instant, owners []kv.Member) Step {
	if o.stage != resting {
		return Step{Wake: o.deadline}
	}
	if len(owners) > 0 {
		o.owners, o.at = owners, min(o.at, len(owners)-1)
	}
	return o.ask(now)
}

// Expire ends an operation whose time is over.
func (o *Operation) Expire() Step { return o.over(nil, o.late()) }
