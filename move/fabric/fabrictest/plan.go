package fabrictest

import (
	"bytes"
	"context"
	"errors"
	"time"

	"meridian/move/fabric"
)

// plan is a transfer that can be posted.
type plan struct {
	op        fabric.Op
	near, far pieces
}

func (p plan) source() pieces {
	if p.op == fabric.Read {
		return p.far
	}
	return p.near
}

func (p plan) destination() pieces {
	if p.op == fabric.Read {
		return p.near
	}
	return p.far
}

// heavy is a transfer that takes long enough to be met in the middle: many
// scattered pieces, cut differently on the two sides.
func (s *fixture) heavy(op fabric.Op) plan {
	s.Helper()
	near, far := s.memory(s.near, heavyBytes*9/8), s.memory(s.far, heavyBytes*9/8)
	return plan{
		op:   op,
		near: s.cut(heavyBytes, []*memory{near}, shape{longest: 1024, even: true}),
		far:  s.cut(heavyBytes, []*memory{far}, shape{longest: 6000}),
	}
}

// light is a small transfer between memories of its own.
func (s *fixture) light(op fabric.Op) plan {
	s.Helper()
	const size = 10_000
	near, far := s.memory(s.near, 3*size), s.memory(s.far, 3*size)
	return plan{
		op:   op,
		near: s.cut(size, []*memory{near}, shape{longest: 500}),
		far:  s.cut(size, []*memory{far}, shape{longest: 3000}),
	}
}

// posted is a transfer and what it is to move.
type posted struct {
	*fabric.Transfer // once it was started
	s                *fixture
	plan             plan
	prepared         *fabric.Prepared
	data             []byte // what the source held when it was made ready
}

// ready does everything that comes before Post.
func (s *fixture) ready(p plan) *posted {
	s.Helper()
	prepared, err := s.link.Prepare(p.op, p.near.list(s), p.far.list(s))
	if err != nil {
		s.Fatalf("prepare %v: %v", p.op, err)
	}
	s.requests = append(s.requests, prepared)
	return &posted{s: s, plan: p, prepared: prepared, data: p.source().gather()}
}

// start posts it under a new ID.
func (p *posted) start() *posted {
	p.s.Helper()
	return p.startAs(context.Background(), fabric.PostOptions{ID: p.s.id()})
}

func (p *posted) startAs(ctx context.Context, o fabric.PostOptions) *posted {
	p.s.Helper()
	if err := p.tryStart(ctx, o); err != nil {
		p.s.Fatalf("post %v: %v", p.plan.op, err)
	}
	return p
}

func (p *posted) tryStart(ctx context.Context, o fabric.PostOptions) (err error) {
	p.Transfer, err = p.s.link.Post(ctx, p.prepared, o)
	return err
}

func (s *fixture) post(p plan) *posted {
	s.Helper()
	return s.ready(p).start()
}

// postHeavy starts heavy transfers so close together that they run at the same
// time.
func (s *fixture) postHeavy(count int, ops ...fabric.Op) (running []*posted) {
	s.Helper()
	for i := range count {
		running = append(running, s.ready(s.heavy(ops[i%len(ops)])))
	}
	for _, t := range running {
		t.start()
	}
	return running
}

// attempt posts what may be refused, at once or later, and returns why. A
// refusal leaves nothing behind.
func (s *fixture) attempt(op fabric.Op, local, remote fabric.List) error {
	s.Helper()
	prepared, err := s.link.Prepare(op, local, remote)
	if err != nil {
		return err
	}
	defer prepared.Release()
	t, err := s.link.Post(context.Background(), prepared, fabric.PostOptions{ID: s.id(), Notify: true})
	if err != nil {
		return err
	}
	err = t.Await(s.soon())
	state, ended := t.Status()
	if !errors.Is(err, ended) || (state == fabric.Done) != (err == nil) {
		s.Errorf("Await said %v, Status says %v, %v", err, state, ended)
	}
	if err != nil && len(s.far.events.of(t.ID)) != 0 {
		s.Errorf("a refused transfer was notified")
	}
	return err
}

// end waits for the end.
func (p *posted) end() fabric.State {
	p.s.Helper()
	err := p.Await(p.s.soon())
	state, ended := p.Status()
	switch {
	case !state.Ended():
		p.s.Fatalf("%v is %v after %v", p.Op, state, p.s.o.Patience)
	case (state == fabric.Done) != (err == nil):
		p.s.Errorf("%v is %v, and Await said %v", p.Op, state, err)
	case !errors.Is(err, ended):
		p.s.Errorf("Await said %v, Status says %v", err, ended)
	}
	return state
}

// settle waits for the end and makes the images say what its state promises.
// Where bytes of the far side are in doubt its memory is fenced first: only
// then has the last of them arrived.
func (p *posted) settle() fabric.State {
	p.s.Helper()
	state := p.end()
	destination := p.plan.destination()
	switch state {
	case fabric.Done:
		destination.scatter(p.data)
	case fabric.InDoubt:
		if p.plan.op == fabric.Write {
			destination.fence()
		}
		p.keep(state)
	}
	return state
}

// reclaim is for transfers that were made to end: near memory is its owner's
// again. He gives it new bytes; they stay, and none reaches the far side.
func (s *fixture) reclaim(ended ...*posted) {
	s.Helper()
	for _, p := range ended {
		state := p.end()
		if p.plan.op == fabric.Read {
			p.keep(state)
		}
		p.plan.near[0].memory.renew()
	}
	time.Sleep(s.o.Quiet)
	for _, p := range ended {
		if p.plan.op == fabric.Write {
			p.settle()
		}
	}
	s.checkAll()
}

// keep makes the images say what the destination holds, if its state allows
// that.
func (p *posted) keep(state fabric.State) {
	p.s.Helper()
	destination := p.plan.destination()
	got := destination.hold()
	p.verdict(state, destination.gather(), got)
	destination.scatter(got)
}

// verdict compares what the destination held, and holds, with what the state
// of the transfer promises.
func (p *posted) verdict(state fabric.State, old, got []byte) {
	p.s.Helper()
	switch {
	case state == fabric.Done && !bytes.Equal(got, p.data):
		p.s.Errorf("%v is done, but not all its bytes are in place", p.Op)
	case state == fabric.NotSubmitted && !bytes.Equal(got, old):
		p.s.Errorf("%v was not submitted, but bytes have changed", p.Op)
	case foreign(got, old, p.data):
		p.s.Errorf("%v ended %v and left bytes that are neither old nor new", p.Op, state)
	}
}

// foreign reports whether some byte is neither old nor fresh.
func foreign(got, old, fresh []byte) bool {
	const step = 4096 // most stretches are wholly one or the other
	for from := 0; from < len(got); from += step {
		to := min(from+step, len(got))
		if bytes.Equal(got[from:to], fresh[from:to]) || bytes.Equal(got[from:to], old[from:to]) {
			continue
		}
		for i := from; i < to; i++ {
			if got[i] != old[i] && got[i] != fresh[i] {
				return true
			}
		}
	}
	return false
}

// must settles a transfer whose end is certain.
func (p *posted) must(want fabric.State) {
	p.s.Helper()
	if state := p.settle(); state != want {
		_, err := p.Status()
		p.s.Errorf("%v ended %v, want %v: %v", p.Op, state, want, err)
	}
}

// named checks that what ended badly says why, in one of the expected ways.
func (p *posted) named(causes ...error) {
	p.s.Helper()
	state, err := p.Status()
	if state == fabric.Done {
		return
	}
	for _, cause := range causes {
		if errors.Is(err, cause) {
			return
		}
	}
	p.s.Errorf("%v ended %v with %v, want one of %v", p.Op, state, err, causes)
}

// works makes sure that the link can still do its job.
func (s *fixture) works() {
	s.Helper()
	for _, op := range s.ops() {
		s.post(s.light(op)).must(fabric.Done)
	}
	s.checkAll()
}

// ops are those that the fabric has.
func (s *fixture) ops() (ops []fabric.Op) {
	capabilities := s.near.fabric.Capabilities()
	if capabilities.Read {
		ops = append(ops, fabric.Read)
	}
	if capabilities.Write {
		ops = append(ops, fabric.Write)
	}
	return ops
}
