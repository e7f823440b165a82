package memdir

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"meridian/member/directory"
)

// Outage is how a client is cut off from its store.
type Outage uint8

const (
	None    Outage = iota
	Refused        // every call fails at once
	Silent         // questions are lost: calls wait until they are given up
	Mute           // answers are lost: calls are obeyed and wait all the same
)

// Client is one user of a store.
type Client struct {
	directory.Directory
	link *link
}

// ClientOptions configures Open.
type ClientOptions struct {
	CallTimeout time.Duration   // 0: directory.DefaultCallTimeout
	Clock       directory.Clock // of the client's process; nil: the store's
}

// Open makes a client. It is closed like any directory; the store needs no closing.
func (s *Store) Open(o ClientOptions) (*Client, error) {
	o.Clock = cmp.Or(o.Clock, s.clock)
	l := &link{store: s, switched: make(chan struct{})}
	d, err := directory.New(directory.Options{Backend: l, Clock: o.Clock, CallTimeout: o.CallTimeout})
	if err != nil {
		return nil, err
	}
	return &Client{Directory: d, link: l}, nil
}

// SetOutage cuts this client off, or lets it through again with None.
func (c *Client) SetOutage(o Outage) {
	c.link.mu.Lock()
	defer c.link.mu.Unlock()
	c.link.outage = o
	close(c.link.switched)
	c.link.switched = make(chan struct{})
}

// link is the Backend: a client's way to its store.
type link struct {
	store *Store

	mu       sync.Mutex // protects what follows; taken before no other lock
	outage   Outage
	switched chan struct{} // closed when outage changes
}

func (l *link) state() (Outage, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.outage, l.switched
}

var (
	errCutOff  = directory.Because(directory.ErrUnavailable, errors.New("the client is cut off"))
	errStopped = directory.Because(directory.ErrUnavailable, errors.New("the store was stopped"))
)

// ask runs do under the store's lock, if the question gets there, and returns
// what it says, if the answer gets back.
func (l *link) ask(ctx context.Context, do func(*Store) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	outage, _ := l.state()
	switch outage {
	case Refused:
		return errCutOff
	case Silent:
		<-ctx.Done()
		return ctx.Err()
	}
	err := l.store.run(do)
	if outage == Mute {
		<-ctx.Done()
		return ctx.Err()
	}
	return err
}

func (s *Store) run(do func(*Store) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return errStopped
	}
	s.expire()
	return do(s)
}

func (l *link) Get(ctx context.Context, key string) (record directory.Record, err error) {
	err = l.ask(ctx, func(s *Store) error {
		r, has := s.records[key]
		if !has {
			return directory.ErrNotFound
		}
		record = owned(r)
		return nil
	})
	return record, err
}

// owned gives the caller a value of its own.
func owned(r directory.Record) directory.Record {
	r.Value = bytes.Clone(r.Value)
	return r
}

func (l *link) List(ctx context.Context, prefix string) (snapshot directory.Snapshot, err error) {
	err = l.ask(ctx, func(s *Store) error {
		snapshot.Revision = s.revision
		for key, r := range s.records {
			if strings.HasPrefix(key, prefix) {
				snapshot.Records = append(snapshot.Records, owned(r))
			}
		}
		slices.SortFunc(snapshot.Records, func(a, b directory.Record) int { return strings.Compare(a.Key, b.Key) })
		return nil
	})
	return snapshot, err
}

func (l *link) Write(ctx context.Context, c directory.Change) (record directory.Record, err error) {
	err = l.ask(ctx, func(s *Store) error {
		standing, has := s.records[c.Key]
		if has {
			record = owned(standing)
		}
		if guard := s.records[c.While.Key]; c.While != (directory.Guard{}) && guard.Revision != c.While.Revision {
			return directory.ErrDeposed
		}
		switch {
		case c.Delete && !has:
			return directory.ErrNotFound
		case c.At == directory.Absent && has:
			return directory.ErrExists
		case c.At > 0 && (!has || standing.Revision != c.At):
			return directory.ErrChanged
		case c.Lease != 0 && s.leases[c.Lease] == nil:
			return directory.ErrLeaseLost
		case c.Delete:
			s.remove(c.Key)
			record = directory.Record{Key: c.Key, Revision: s.revision}
			return nil
		}
		record = owned(s.put(c))
		return nil
	})
	return record, err
}

func (l *link) Watch(ctx context.Context, prefix string, after directory.Revision, emit func([]directory.Event) error) error {
	stream := -1
	for {
		outage, switched := l.state()
		if outage != None {
			return errCutOff
		}
		var events []directory.Event
		var more <-chan struct{}
		err := l.store.run(func(s *Store) (err error) {
			if stream >= 0 && stream != s.streams {
				return errStopped
			}
			stream = s.streams
			events, more, err = s.since(prefix, after)
			after = max(after, s.revision)
			return err
		})
		if err != nil {
			return err
		}
		if len(events) > 0 {
			if err := emit(events); err != nil {
				return err
			}
		}
		select {
		case <-more:
		case <-switched:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (l *link) Grant(ctx context.Context, ttl time.Duration) (id directory.LeaseID, granted time.Duration, err error) {
	err = l.ask(ctx, func(s *Store) error {
		s.lastLease++
		id, granted = s.lastLease, ttl
		s.leases[id] = &lease{ttl: ttl, expires: s.clock.Now().Add(ttl), keys: make(map[string]struct{})}
		s.arm()
		return nil
	})
	return id, granted, err
}

func (l *link) Renew(ctx context.Context, id directory.LeaseID) (ttl time.Duration, err error) {
	err = l.ask(ctx, func(s *Store) error {
		found := s.leases[id]
		if found == nil {
			return directory.ErrLeaseLost
		}
		found.expires = s.clock.Now().Add(found.ttl)
		s.arm()
		ttl = found.ttl
		return nil
	})
	return ttl, err
}

func (l *link) Revoke(ctx context.Context, id directory.LeaseID) error {
	return l.ask(ctx, func(s *Store) error {
		if s.leases[id] == nil {
			return directory.ErrLeaseLost
		}
		s.end(id)
		s.arm()
		return nil
	})
}

func (l *link) Close(context.Context) error { return nil }
