package store

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"meridian/keep/store/protocol"
	"meridian/kv"
	"meridian/move/fabric"
)

// suspects is what is known of peers that may be dead. A caller that asks one of them hears
// so at once; a probe finds out when it lives.
type suspects struct {
	mu       sync.Mutex // protects the rest
	suspects map[kv.Member]error
	probes   map[kv.Member]bool // that run
}

func newSuspects() *suspects {
	return &suspects{suspects: make(map[kv.Member]error), probes: make(map[kv.Member]bool)}
}

// suspected is why a peer need not be asked; nil, if it may live.
func (r *suspects) suspected(p kv.Member) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.suspects[p]; err != nil {
		return fmt.Errorf("%w: %w", errUndelivered, err)
	}
	return nil
}

// note takes what came of telling a peer something.
func (r *suspects) note(p kv.Member, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case err == nil || errors.Is(err, fabric.ErrBusy):
		delete(r.suspects, p)
	case !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded):
		r.suspects[p] = err
	}
}

// dead notes that a probe failed, for whatever reason.
func (r *suspects) dead(p kv.Member, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.suspects[p] = err
}

// begin adds a probe of each suspect to probes of others, and returns which of them
// do not run yet. A suspect that this client has no reason to ask is forgotten.
func (r *suspects) begin(silent map[kv.Member]bool, matters func(kv.Member) bool) (begun []kv.Member) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for p := range r.suspects {
		if !matters(p) {
			delete(r.suspects, p)
		} else if !r.probes[p] && !silent[p] {
			begun = append(begun, p)
		}
	}
	for p := range silent {
		if !r.probes[p] {
			begun = append(begun, p)
		}
	}
	for _, p := range begun {
		r.probes[p] = true
	}
	return begun
}

func (r *suspects) end(p kv.Member) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.probes, p)
}

const (
	silentAfter  = 200 * time.Millisecond
	probeTimeout = 2 * time.Second
)

// probe sees whether peers can be reached that owe answers, or could not be: a peer
// that takes messages lives, and one that is dead is not waited for.
func (s *Store) probe() {
	began := s.options.Clock.Now()
	leader, _ := s.election.Leader()
	matters := func(p kv.Member) bool { return p == leader.Member || s.view.knows(p) }
	silent := s.calls.silent(began.Add(-silentAfter))
	delete(silent, s.self)
	for _, to := range s.reach.begin(silent, matters) {
		s.wait.Go(func() {
			defer s.reach.end(to)
			ctx, cancel := context.WithTimeout(s.ctx, probeTimeout)
			defer cancel()
			err := s.peers.Tell(ctx, to, protocol.AppendMessage(nil, 0, &protocol.Describe{}))
			switch {
			case s.ctx.Err() != nil:
				return
			case err == nil || errors.Is(err, fabric.ErrBusy):
				s.reach.note(to, nil)
			case ctx.Err() != nil: // it may only stand still: what it was asked it may yet answer
				s.reach.dead(to, err)
			default:
				s.reach.dead(to, err)
				s.calls.fail(to, began, err)
			}
			s.pause(s.ctx, silentAfter)
		})
	}
}
