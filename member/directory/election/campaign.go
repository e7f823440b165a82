package election

import (
	"context"
	"errors"
	"time"

	"meridian/member/directory"
)

// campaign stands whenever no record does, until the election ends.
func (e *Election) campaign() {
	for e.vacant() {
		if err := e.lead(); err != nil && !errors.Is(err, directory.ErrExists) && e.life.Err() == nil {
			e.options.Logger.Debug("an attempt to lead failed", "key", e.options.Key, "error", err)
		}
		e.pause(e.options.TTL / pausePart)
	}
}

// vacant waits until no member leads as far as is known. It is false at the end.
func (e *Election) vacant() bool {
	for e.life.Err() == nil {
		e.mu.Lock()
		vacant, changed := e.stands == 0, e.changed
		e.mu.Unlock()
		if vacant {
			return true
		}
		select {
		case <-changed:
		case <-e.life.Done():
		}
	}
	return false
}

func (e *Election) pause(d time.Duration) {
	passed := make(chan struct{})
	stop := e.options.Clock.AfterFunc(d, func() { close(passed) })
	defer stop()
	select {
	case <-passed:
	case <-e.life.Done():
	}
}

// lead stands once and, elected, leads until its term is over. Whatever became of
// it, the lease goes: a record whose writing is in doubt goes with it.
func (e *Election) lead() error {
	value, err := encode(e.options.Self)
	if err != nil {
		return err
	}
	d := e.options.Directory
	lease, err := d.Grant(e.life, directory.LeaseOptions{TTL: e.options.TTL, OnExpiry: directory.Surrender})
	if err != nil {
		return err
	}
	defer func() { _ = lease.Revoke(context.WithoutCancel(e.life)) }() // unanswered, it expires by itself
	written, err := d.Create(e.life, directory.Entry{Key: recordKey(e.options.Key), Value: value, Lease: lease})
	if err != nil {
		return err
	}
	deposed := e.elected(written.Revision, lease)
	if deposed == nil {
		return errors.New("election: the record was gone before its writer knew that it stood")
	}
	e.options.Logger.Info("elected", "key", e.options.Key, "term", int64(written.Revision))
	why := "it was closed"
	select {
	case <-lease.Lost():
		why = "its lease is lost"
	case <-deposed:
		why = "its record is gone"
	case <-e.life.Done():
	}
	e.mu.Lock()
	if e.lease == lease {
		e.stepDown()
	}
	e.mu.Unlock()
	e.options.Logger.Info("leads no longer", "key", e.options.Key, "term", int64(written.Revision), "reason", why)
	return nil
}

// elected begins a term, and returns what is closed when another ends it; nil,
// when one has already.
func (e *Election) elected(term directory.Revision, lease *directory.Lease) (deposed <-chan struct{}) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.contradicts(term) {
		return nil
	}
	e.term, e.lease, e.deposed = term, lease, make(chan struct{})
	e.signal()
	return e.deposed
}
