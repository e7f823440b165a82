package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"meridian/keep/store/arena"
	"meridian/keep/store/master"
	"meridian/keep/store/protocol"
	"meridian/kv"
)

// A run is objects of which each is worth nothing without those before it. What another
// room of this process moves into the arena, it reserves here; what it moves out, it holds.

// Run is keys of one tenant, in their order.
type Run struct {
	Tenant string
	Keys   []string
	// Payer is the tenant of whose share of an owner's memory what comes there takes, however
	// its keys are called; empty: this agent.
	Payer string
}

// PayerOfAgent is who pays for what an agent has kept of which it says no tenant.
func PayerOfAgent(name string) string { return protocol.AgentTenant(name) }

// Copy is the run of the copies of one number of a run that engines keep; those of number 1 are
// the objects themselves. A copy is an object like any, under a key of its own; it leaves
// before objects that are not copies, and none of these leaves for it.
func (r Run) Copy(number int) Run {
	c := Run{Tenant: r.Tenant, Payer: r.Payer, Keys: make([]string, len(r.Keys))}
	for i, key := range r.Keys {
		c.Keys[i] = protocol.CopyKey(key, number)
	}
	return c
}

func (s *Store) namesOf(r Run) ([][]byte, error) {
	names := make([][]byte, len(r.Keys))
	for i, key := range r.Keys {
		var err error
		if names[i], err = s.nameOf(r.Tenant, key); err != nil {
			return nil, err
		}
	}
	return names, nil
}

// Memory is the region of this process's arena, for hand-offs that move objects where
// they lie: a WritePlan and a Place say at which offsets. Ok is false where nothing is
// kept here.
func (s *Store) Memory() (region, epoch, bytes uint64, ok bool) {
	if s.owned == nil {
		return 0, 0, 0, false
	}
	return s.owned.region.ID, s.owned.region.Epoch, s.owned.memory.Size(), true
}

// Reserve makes room for objects of one size, here and nowhere else, from the first key on
// that is neither there nor being written, nor another owner's, up to one that cannot be had:
// there is how many come before these, err why it ends before the last; ErrExists or ErrBusy where
// none is to be written. Who reserves has them written where they
// lie, and ends each with Commit or Abort when nothing of its own writes there any more; their
// room is kept until then, however late. Of two that reserve the same keys at once one has
// them all.
func (s *Store) Reserve(ctx context.Context, r Run, size uint64, within time.Duration) (there int, plans []*WritePlan, err error) {
	if s.owned == nil {
		return 0, nil, fmt.Errorf("%w: no objects are kept here", ErrRefused)
	}
	ctx, leave, err := s.enter(ctx)
	if err != nil {
		return 0, nil, err
	}
	defer leave()
	names, err := s.namesOf(r)
	if err != nil {
		return 0, nil, err
	}
	there, plans, err = s.reserveMany(ctx, names, demand{r.Payer, size, within})
	if there == len(names) && errors.Is(err, master.ErrTaken) {
		err = fmt.Errorf("%w: %w", ErrExists, err)
	}
	return there, plans, err
}

// demand is what each object of a run is to have: of whose share, how many bytes, for how long.
type demand struct {
	payer  string
	bytes  uint64
	within time.Duration
}

// reserveNames is Reserve for who has names already.
func (s *Store) reserveNames(ctx context.Context, names [][]byte, d demand) ([]*WritePlan, error) {
	ctx, leave, err := s.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	_, plans, err := s.reserveMany(ctx, names, d)
	return plans, err
}

// An owner that has just come has its lease in a moment, and so has one whose master was
// another until now. One that is cut off may not have it for long: its callers have blocks of
// engines, so they do not wait for that.
const (
	leaseWait  = time.Second
	leasePause = 10 * time.Millisecond
)

// reserveMany is reserveNow where the owner has its lease, or is about to have it.
func (s *Store) reserveMany(ctx context.Context, names [][]byte, d demand) (there int, plans []*WritePlan, err error) {
	for waited := time.Duration(0); ; waited += leasePause {
		there, plans, err = s.reserveNow(ctx, names, d)
		if !errors.Is(err, master.ErrSilent) || len(plans) > 0 || waited >= leaseWait || !s.pause(ctx, leasePause) {
			return there, plans, err
		}
	}
}

func (s *Store) reserveNow(ctx context.Context, names [][]byte, d demand) (there int, plans []*WritePlan, err error) {
	opened := s.openMany(ctx, names, d)
	for there < len(opened) && isThere(opened[there].err) {
		there++
	}
	if there == len(opened) && there > 0 {
		return there, nil, opened[there-1].err
	}
	for i := there; i < len(opened); i++ {
		if err == nil {
			if err = opened[i].err; err == nil && !opened[i].plan.storeBy(false) {
				err = fmt.Errorf("%w: half of the arena is being written", ErrOverloaded)
			}
		}
		switch {
		case err == nil:
			plans = append(plans, opened[i].plan)
		case opened[i].plan != nil:
			_ = opened[i].plan.abandon(ctx) // unheard, its time will be over
		}
	}
	return there, plans, err
}

// isThere reports whether an object could not be reserved because it is there, or being
// written, or another owner has it or is about to.
func isThere(err error) bool {
	return errors.Is(err, ErrExists) || errors.Is(err, ErrBusy) || errors.Is(err, master.ErrTaken)
}

// opening is one of many objects that are reserved together.
type opening struct {
	id   uint64
	call *call
	plan *WritePlan
	err  error
}

// openMany asks the owner in this process for all of them at once, so that no other comes
// in between, up to one that is refused at once behind the first that is not there. What is
// not asked for is not in the answer.
func (s *Store) openMany(ctx context.Context, names [][]byte, d demand) []opening {
	opened := make([]opening, 0, len(names))
	patience := uint64(max(1, duration(s.deadline(ctx)-s.now())/time.Millisecond))
	s.step(func(now, _ kv.Instant) (effects []protocol.Effect) {
		there := true
		for _, name := range names {
			one := opening{id: firstRequest + s.number.Add(1)}
			one.call = &call{to: s.self, since: s.options.Clock.Now(), done: make(chan struct{})}
			s.calls.begin(one.id, one.call)
			opened = append(opened, one)
			answer := s.receive(now, s.self, one.id, &protocol.Open{
				Name: name, Bytes: d.bytes, WriteMs: uint64(max(1, d.within/time.Millisecond)), PatienceMs: patience, Payer: d.payer,
			})
			effects = append(effects, answer...)
			refused := s.refusal(answer, one.id)
			there = there && refused != nil && isThere(refused.Problem.Err())
			if refused != nil && !there {
				return effects
			}
		}
		return effects
	})
	for i := range opened {
		one := &opened[i]
		select {
		case <-one.call.done:
		case <-ctx.Done():
		}
		s.calls.forget(one.id)
		<-one.call.done
		one.plan, one.err = s.planOf(one.call)
	}
	return opened
}

// refusal is what a request of this process was answered at once, as it is not granted; nil: it
// may be.
func (s *Store) refusal(effects []protocol.Effect, request uint64) *protocol.Reply {
	for _, e := range effects {
		if send, is := e.(protocol.Send); is && send.To == s.self && send.Request == request {
			if reply, is := send.Message.(*protocol.Reply); is {
				return reply
			}
		}
	}
	return nil
}

func (s *Store) planOf(c *call) (*WritePlan, error) {
	if c.err != nil {
		return nil, c.err
	}
	switch said := c.answer.(type) {
	case *protocol.Reply:
		if err := said.Problem.Err(); err != nil {
			return nil, err
		}
	case *protocol.Plan:
		return &WritePlan{Owner: s.self.Name, Rank: s.owned.rank, Plan: said.Plan, store: s, peer: s.self, span: said.Span, written: writeSums{bytes: said.Bytes}}, nil
	}
	return nil, unexpected(s.self, c.answer)
}

// abandon is Abort by who has a place already.
func (p *WritePlan) abandon(ctx context.Context) error {
	p.stopStoring()
	return p.commit(ctx, true)
}

// CommitRun lets the objects of a run be found whose bytes all lie where they belong, and
// returns how many of them can be, from the first on.
func (s *Store) CommitRun(ctx context.Context, plans []*WritePlan) (committed int, err error) {
	errs := make([]error, len(plans))
	each(len(plans), func(i int) { errs[i] = plans[i].Commit(ctx) })
	for committed < len(errs) && errs[committed] == nil {
		committed++
	}
	return committed, errors.Join(errs...)
}

// AbortRun gives the objects of a run up. Nothing may write where they were to lie.
func (s *Store) AbortRun(ctx context.Context, plans []*WritePlan) error {
	errs := make([]error, len(plans))
	each(len(plans), func(i int) { errs[i] = plans[i].Abort(ctx) })
	return errors.Join(errs...)
}

// Where says who has the objects of a run: this process, if they can be read here, or who
// the master says owns the key, or who has it in a tier; "" where no owner has it. An owner may have let an object go
// since, or be about to have it. After an error, what is known without the master is there.
func (s *Store) Where(ctx context.Context, r Run) (owners []string, err error) {
	ctx, leave, err := s.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	names, err := s.namesOf(r)
	if err != nil {
		return nil, err
	}
	owners, unknown := s.here(names)
	for len(unknown) > 0 && err == nil {
		n := min(len(unknown), protocol.MaxKeys)
		err = s.where(ctx, names, unknown[:n], owners)
		unknown = unknown[n:]
	}
	s.whereCold(ctx, names, owners)
	return owners, err
}

// Here is Where without the master: it says this process for what can be read from its
// memory, and "" for all else.
func (s *Store) Here(r Run) (owners []string, err error) {
	names, err := s.namesOf(r)
	if err != nil {
		return nil, err
	}
	owners, _ = s.here(names)
	return owners, nil
}

func (s *Store) here(names [][]byte) (owners []string, unknown []int) {
	owners = make([]string, len(names))
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	for i, name := range names {
		if s.server != nil && s.server.Has(now, name) {
			owners[i] = s.self.Name
		} else {
			unknown = append(unknown, i)
		}
	}
	return owners, unknown
}

// where asks the master who owns some of the names.
func (s *Store) where(ctx context.Context, names [][]byte, some []int, owners []string) error {
	question := &protocol.Where{Hashes: make([]uint64, len(some))}
	for i, n := range some {
		question.Hashes[i] = arena.HashKey(names[n])
	}
	answer, err := s.askMaster(ctx, question)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	if r, said := answer.(*protocol.Reply); said && r.Problem.Err() != nil {
		return r.Problem.Err()
	}
	found, is := answer.(*protocol.Owners)
	if !is || len(found.Names) != len(some) {
		return fmt.Errorf("%w: the master answered with %T", protocol.ErrMessage, answer)
	}
	for i, n := range some {
		if found.Names[i] != s.self.Name { // what it owned and cannot be read is not ready, or gone
			owners[n] = found.Names[i]
		}
	}
	return nil
}
