package sim

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"meridian/member/directory"
)

// store is what the directory holds. It answers at once, or not at all.
type store struct {
	world    *world
	down     bool
	revision directory.Revision
	granted  directory.LeaseID
	records  map[string]directory.Record
	leases   map[directory.LeaseID]*lease
}

type lease struct {
	ttl, expires time.Duration
	keys         []string
}

func newStore(w *world) *store {
	return &store{world: w, records: make(map[string]directory.Record), leases: make(map[directory.LeaseID]*lease)}
}

// stop takes the directory away; start brings it back, with the whole of its
// time for every lease: it cannot know who renewed in vain.
func (s *store) stop() { s.down = true }

func (s *store) start() {
	s.down = false
	for id := range s.granted {
		if l := s.leases[id+1]; l != nil {
			s.prolong(id+1, l)
		}
	}
}

func (s *store) prolong(id directory.LeaseID, l *lease) {
	l.expires = s.world.now + l.ttl
	s.world.after(l.ttl, nil, func() {
		if !s.down && s.leases[id] == l && l.expires <= s.world.now {
			s.world.note(nil, nil, "lease %d expires", id)
			s.end(id, l)
		}
	})
}

func (s *store) end(id directory.LeaseID, l *lease) {
	delete(s.leases, id)
	for _, key := range l.keys {
		if s.records[key].Lease == id {
			s.revision++
			delete(s.records, key)
		}
	}
}

// directoryClient is one process's way to the store.
type directoryClient struct {
	*store
	process *process
}

var errAway = directory.Because(directory.ErrUnavailable, errors.New("the directory is away"))

func (d *directoryClient) away() error {
	if d.down || d.process.dead {
		d.world.tally.Unavailable++
		return errAway
	}
	return nil
}

func (d *directoryClient) Get(_ context.Context, key string) (directory.Record, error) {
	if err := d.away(); err != nil {
		return directory.Record{}, err
	}
	r, has := d.records[key]
	if !has {
		return directory.Record{}, directory.ErrNotFound
	}
	return r, nil
}

func (d *directoryClient) List(_ context.Context, prefix string) (directory.Snapshot, error) {
	if err := d.away(); err != nil {
		return directory.Snapshot{}, err
	}
	s := directory.Snapshot{Revision: d.revision}
	for key, r := range d.records {
		if strings.HasPrefix(key, prefix) {
			s.Records = append(s.Records, r)
		}
	}
	slices.SortFunc(s.Records, func(a, b directory.Record) int { return strings.Compare(a.Key, b.Key) })
	return s, nil
}

func (d *directoryClient) Write(_ context.Context, c directory.Change) (directory.Record, error) {
	if err := d.away(); err != nil {
		return directory.Record{}, err
	}
	standing, has := d.records[c.Key]
	switch l := d.leases[c.Lease]; {
	case c.While != directory.Guard{} && d.records[c.While.Key].Revision != c.While.Revision:
		return standing, directory.ErrDeposed
	case c.Delete && !has:
		return directory.Record{}, directory.ErrNotFound
	case c.At == directory.Absent && has:
		return standing, directory.ErrExists
	case c.At > 0 && (!has || standing.Revision != c.At):
		return standing, directory.ErrChanged
	case c.Lease != 0 && l == nil:
		return directory.Record{}, directory.ErrLeaseLost
	case c.Delete:
		d.revision++
		delete(d.records, c.Key)
		return directory.Record{Key: c.Key, Revision: d.revision}, nil
	case l != nil && !slices.Contains(l.keys, c.Key):
		l.keys = append(l.keys, c.Key)
	}
	d.revision++
	r := directory.Record{Key: c.Key, Value: bytes.Clone(c.Value), Revision: d.revision, Lease: c.Lease}
	d.records[c.Key] = r
	return r, nil
}

// Watch is not simulated: no agent watches.
func (d *directoryClient) Watch(context.Context, string, directory.Revision, func([]directory.Event) error) error {
	return directory.ErrUnavailable
}

func (d *directoryClient) Grant(_ context.Context, ttl time.Duration) (directory.LeaseID, time.Duration, error) {
	if err := d.away(); err != nil {
		return 0, 0, err
	}
	d.granted++
	l := &lease{ttl: ttl}
	d.leases[d.granted] = l
	d.prolong(d.granted, l)
	return d.granted, ttl, nil
}

func (d *directoryClient) Renew(_ context.Context, id directory.LeaseID) (time.Duration, error) {
	if err := d.away(); err != nil {
		return 0, err
	}
	l := d.leases[id]
	if l == nil {
		return 0, directory.ErrLeaseLost
	}
	d.prolong(id, l)
	return l.ttl, nil
}

func (d *directoryClient) Revoke(_ context.Context, id directory.LeaseID) error {
	if err := d.away(); err != nil {
		return err
	}
	if l := d.leases[id]; l != nil {
		d.end(id, l)
		return nil
	}
	return directory.ErrLeaseLost
}

func (d *directoryClient) Close(context.Context) error { return nil }

// registry is a process's directory: the product's, over the store. A lease of
// its has a goroutine, which the world wakes with the lease's timer and then
// waits for, until it sleeps again or has ended: so it runs, but never beside
// anything else.
type registry struct {
	directory.Directory
	process *process
	lease   *directory.Lease
	asleep  chan struct{}
}

func newRegistry(s *store, p *process) *registry {
	r := &registry{process: p, asleep: make(chan struct{}, 1)}
	d, err := directory.New(directory.Options{Backend: &directoryClient{s, p}, Clock: r})
	if err != nil {
		panic(err)
	}
	r.Directory = d
	return r
}

// Grant opens a lease and waits until its keeper sleeps.
func (r *registry) Grant(ctx context.Context, o directory.LeaseOptions) (*directory.Lease, error) {
	l, err := r.Directory.Grant(ctx, o)
	if err == nil {
		<-r.asleep
		r.lease = l
	}
	return l, err
}

// Now is the process's time.
func (r *registry) Now() time.Time { return r.process.clock.Now() }

// AfterFunc is called by a keeper that goes to sleep.
func (r *registry) AfterFunc(d time.Duration, f func()) (stop func() bool) {
	t := &timer{f: f}
	r.process.world.after(max(0, d), r.process, func() {
		if t.f == nil {
			return
		}
		t.fire()
		select {
		case <-r.asleep:
		case <-r.lease.Lost():
		}
	})
	r.asleep <- struct{}{}
	return t.stop
}

// held reports whether a write under the lease would find it.
func (r *registry) held(s *store) bool { return r.lease != nil && s.leases[r.lease.ID()] != nil }
