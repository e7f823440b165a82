package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"meridian/keep/store/protocol"
	"meridian/kv"
)

// asking asks one peer once, and waits for its answer.
type asking func(ctx context.Context, to kv.Member, m protocol.Message) (protocol.Message, error)

// plainly asks without more ado.
func (s *Store) plainly(ctx context.Context, to kv.Member, m protocol.Message) (protocol.Message, error) {
	return s.ask(ctx, to, m, taking{})
}

// operation is a request of this client about one object.
type operation struct {
	name      []byte
	preferred string
	request   protocol.Message
	// ask asks an owner; default plainly.
	ask asking
}

// operate does a request: it asks who may know until one answers, or the context
// ends. From is the owner that answered.
func (s *Store) operate(ctx context.Context, o operation) (answer protocol.Message, from kv.Member, err error) {
	if o.ask == nil {
		o.ask = s.plainly
	}
	owners := func() []kv.Member { return s.ownersOf(o.name, o.preferred) }
	machine := protocol.NewOperation(o.request, owners(), s.deadline(ctx))
	step := machine.Begin(s.now())
	for !step.Over {
		if step.Message == nil {
			s.pause(ctx, duration(step.Wake-s.now()))
			if ctx.Err() != nil {
				step = machine.Expire()
				break
			}
			step = machine.Wake(s.now(), owners())
			continue
		}
		var m protocol.Message
		if step.ToMaster {
			m, err = s.askMaster(ctx, step.Message)
		} else {
			from = step.To
			m, err = o.ask(ctx, step.To, step.Message)
		}
		switch {
		case errors.Is(err, ErrClosed):
			return nil, from, err
		case err == nil:
			step = machine.Answered(s.now(), m)
		case ctx.Err() != nil:
			step = machine.Unanswered(s.now(), err)
			if !step.Over {
				step = machine.Expire()
			}
		case errors.Is(err, errUndelivered):
			step = machine.Undelivered(s.now(), err)
		default:
			step = machine.Unanswered(s.now(), err)
		}
	}
	if step.Err != nil && ctx.Err() != nil {
		return nil, from, fmt.Errorf("%w: %w", step.Err, ctx.Err())
	}
	return step.Answer, from, step.Err
}

// deadline is that of a context, in the machines' time.
func (s *Store) deadline(ctx context.Context) kv.Instant {
	at, has := ctx.Deadline()
	if !has {
		return s.now() + kv.Instant(s.options.Timeout/time.Microsecond)
	}
	return s.now() + kv.Instant(time.Until(at)/time.Microsecond)
}

// askMaster asks the process that is the master now.
func (s *Store) askMaster(ctx context.Context, m protocol.Message) (protocol.Message, error) {
	leader, _ := s.election.Leader()
	if leader.Term == 0 {
		return nil, fmt.Errorf("%w: there is no master; is a candidate running?", errUndelivered)
	}
	return s.ask(ctx, leader.Member, m, taking{})
}

// askOwner asks one owner by its name, and turns a problem into an error.
func (s *Store) askOwner(ctx context.Context, name string, m protocol.Message) (protocol.Message, error) {
	o, err := s.owner(name)
	if err != nil {
		return nil, err
	}
	return s.askPeer(ctx, o.peer(), m)
}

func (s *Store) askPeer(ctx context.Context, to kv.Member, m protocol.Message) (protocol.Message, error) {
	answer, err := s.ask(ctx, to, m, taking{})
	if err != nil {
		if errors.Is(err, ErrClosed) {
			return nil, err
		}
		return nil, fmt.Errorf("%w: %s: %w", ErrUnavailable, to.Name, err)
	}
	if r, is := answer.(*protocol.Reply); is {
		if err := r.Problem.Err(); err != nil {
			return nil, err
		}
	}
	return answer, nil
}

// unexpected is an answer of a kind that was not asked for.
func unexpected(from kv.Member, m protocol.Message) error {
	return fmt.Errorf("%w: %s answered with %T", protocol.ErrMessage, from.Name, m)
}

// nameOf is how a tenant's key is named.
func (s *Store) nameOf(tenant, key string) ([]byte, error) {
	if tenant == "" {
		tenant = s.options.Tenant
	}
	return protocol.ObjectName(tenant, key)
}
