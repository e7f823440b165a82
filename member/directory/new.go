package directory

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"sync"
	"time"
)

// DefaultCallTimeout is what Options mean when they say nothing.
const DefaultCallTimeout = 5 * time.Second

// WatchQueue is how many events are kept for a consumer that is slow: few, because falling
// behind costs little, a watch goes on from where it was.
const WatchQueue = 64

// Options configures New.
type Options struct {
	Backend     Backend // owned by the directory, which closes it
	Clock       Clock   // nil: WallClock
	CallTimeout time.Duration
}

func (o Options) defaulted() Options {
	o.Clock = cmp.Or[Clock](o.Clock, WallClock{})
	if o.CallTimeout <= 0 {
		o.CallTimeout = DefaultCallTimeout
	}
	return o
}

// directory is the one Directory: every backend behind the same promises.
type directory struct {
	options Options
	backend Backend
	turns   keyLocks
	count   counters

	life   context.Context // ends when Close has revoked the leases
	end    context.CancelFunc
	gone   chan struct{}  // closed when Close has finished
	active sync.WaitGroup // calls under way, and the goroutines of leases and watches

	mu      sync.Mutex // protects what follows; held across no call
	closed  bool
	leases  map[*Lease]struct{}
	watches map[*Watch]struct{}
}

// New makes a Directory of a Backend. It asks nothing yet: a directory that is
// away now is one that is unknown now.
func New(o Options) (Directory, error) {
	if o.Backend == nil {
		return nil, invalid("new", "", "there is no backend", "open a directory through one of the alcoves")
	}
	d := &directory{
		options: o.defaulted(), backend: o.Backend,
		turns:   keyLocks{taken: make(map[string]chan struct{})},
		gone:    make(chan struct{}),
		leases:  make(map[*Lease]struct{}),
		watches: make(map[*Watch]struct{}),
	}
	d.life, d.end = context.WithCancel(context.Background())
	return d, nil
}

// enter counts a call that Close waits for.
func (d *directory) enter() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return ErrClosed
	}
	d.active.Add(1)
	return nil
}

// call runs one conversation with the backend: bounded, counted, its error
// dressed.
func (d *directory) call(ctx context.Context, op, key string, do func(context.Context) error) error {
	if err := d.enter(); err != nil {
		return &Error{Op: op, Subject: key, Err: err}
	}
	defer d.active.Done()
	bounded, cancel := d.bound(ctx, d.options.CallTimeout)
	defer cancel()
	err := bounded.Err()
	if err == nil {
		err = do(bounded)
	}
	err = d.fault(ctx, op, key, err)
	if errors.Is(err, ErrUnavailable) {
		d.count.failures.Add(1)
	}
	return err
}

// bound limits a wait by the caller, by time, and by the directory's life.
func (d *directory) bound(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	bounded, cancel := context.WithTimeout(ctx, limit)
	stop := context.AfterFunc(d.life, cancel)
	return bounded, func() { stop(); cancel() }
}

func (d *directory) Get(ctx context.Context, key string) (record Record, err error) {
	if err := CheckKey(key); err != nil {
		return Record{}, err
	}
	err = d.call(ctx, "get", key, func(ctx context.Context) (err error) {
		record, err = d.backend.Get(ctx, key)
		return err
	})
	return record, err
}

func (d *directory) List(ctx context.Context, prefix string) (snapshot Snapshot, err error) {
	if err := CheckPrefix(prefix); err != nil {
		return Snapshot{}, err
	}
	err = d.call(ctx, "list", prefix, func(ctx context.Context) (err error) {
		snapshot, err = d.backend.List(ctx, prefix)
		return err
	})
	return snapshot, err
}

func (d *directory) Create(ctx context.Context, e Entry) (Record, error) {
	return d.write(ctx, "create", e, Absent)
}

func (d *directory) Put(ctx context.Context, e Entry) (Record, error) {
	return d.write(ctx, "put", e, Any)
}

func (d *directory) Swap(ctx context.Context, e Entry, at Revision) (Record, error) {
	if at <= 0 {
		return Record{}, invalid("swap", e.Key, "there is no revision to swap at", "take it from the record that was read, or create the record")
	}
	return d.write(ctx, "swap", e, at)
}

func (d *directory) write(ctx context.Context, op string, e Entry, at Revision) (record Record, err error) {
	if err := checkEntry(d, e); err != nil {
		return Record{}, err
	}
	e.Value = bytes.Clone(e.Value)
	err = d.call(ctx, op, e.Key, func(ctx context.Context) (err error) {
		if e.Lease == nil {
			record, err = d.writeUnder(ctx, e, at, 0)
			return err
		}
		return e.Lease.under(ctx, func(id LeaseID) (err error) {
			record, err = d.writeUnder(ctx, e, at, id)
			return err
		})
	})
	return record, err
}

// writeUnder writes and, when that is done, lets the leases know who answers
// for the record from now on.
func (d *directory) writeUnder(ctx context.Context, e Entry, at Revision, id LeaseID) (Record, error) {
	giveBack, err := d.turns.take(ctx, e.Key)
	if err != nil {
		return Record{}, err
	}
	defer giveBack()
	record, err := d.backend.Write(ctx, Change{Key: e.Key, Value: e.Value, Lease: id, At: at, While: e.While})
	if err != nil {
		return record, err
	}
	d.forget(e.Key)
	if e.Lease != nil {
		e.Lease.remember(e.Key, e.Value, id)
	}
	return record, nil
}

func (d *directory) Delete(ctx context.Context, key string, at Revision) error {
	if err := CheckKey(key); err != nil {
		return err
	}
	if at < 0 {
		return invalid("delete", key, "that is no revision", "take it from the record that was read, or delete Any")
	}
	return d.call(ctx, "delete", key, func(ctx context.Context) error {
		giveBack, err := d.turns.take(ctx, key)
		if err != nil {
			return err
		}
		defer giveBack()
		_, err = d.backend.Write(ctx, Change{Key: key, Delete: true, At: at})
		if err == nil || errors.Is(err, ErrNotFound) {
			d.forget(key)
		}
		return err
	})
}

// forget tells every lease that it no longer answers for key.
func (d *directory) forget(key string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for l := range d.leases {
		l.forget(key)
	}
}

func (d *directory) Close(ctx context.Context) error {
	d.mu.Lock()
	first := !d.closed
	d.closed = true
	leases, watches := keys(d.leases), keys(d.watches)
	d.mu.Unlock()
	if !first {
		select {
		case <-d.gone:
			return nil
		case <-ctx.Done():
			return &Error{Op: "close", Err: context.Cause(ctx)}
		}
	}
	defer close(d.gone)
	errs := make([]error, len(leases)+1)
	var revoking sync.WaitGroup
	for i, l := range leases {
		revoking.Go(func() { errs[i] = l.Revoke(ctx) })
	}
	revoking.Wait()
	d.end()
	for _, w := range watches {
		w.Close()
	}
	d.active.Wait()
	errs[len(leases)] = d.backend.Close(ctx)
	return errors.Join(errs...)
}

func keys[K comparable](set map[K]struct{}) []K {
	members := make([]K, 0, len(set))
	for k := range set {
		members = append(members, k)
	}
	return members
}
