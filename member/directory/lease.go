package directory

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
)

// DefaultTTL is how long a record outlives an owner that fell silent.
const DefaultTTL = 5 * time.Second

// LeaseOptions configures Grant.
type LeaseOptions struct {
	TTL      time.Duration // 0: DefaultTTL; the directory may grant longer
	OnExpiry ExpiryPolicy
}

// ExpiryPolicy is what an owner does that was cut off until its lease expired.
type ExpiryPolicy uint8

const (
	// Restore takes a new lease and puts the records back as they were: for
	// records that say "I am here". Where another took a key meanwhile, the
	// lease is Lost and nothing is put back.
	Restore ExpiryPolicy = iota
	// Surrender gives up: for records that say "I alone may".
	Surrender
)

// LeaseState is what the owner knows of its lease.
type LeaseState uint8

const (
	Held     LeaseState = iota // renewed less than its time ago
	Doubtful                   // no answer for longer than that: unknown, not lost
	Lost
	Revoked
)

func (s LeaseState) String() string {
	if name := [...]string{"held", "doubtful", "lost", "revoked"}; int(s) < len(name) {
		return name[s]
	}
	return fmt.Sprintf("LeaseState(%d)", uint8(s))
}

const (
	renewalsPerTTL = 3  // so that one lost renewal does not cost the lease
	retriesPerTTL  = 10 // so that it survives a directory that is back just in time
	leastAttempt   = time.Second
)

var errExpiredAgain = errors.New("the lease expired again")

// Lease keeps its records in the directory for as long as its owner lives. A
// goroutine of its own renews it; Revoke, or the directory's Close, ends that.
type Lease struct {
	directory *directory
	policy    ExpiryPolicy
	asked     time.Duration
	lost      chan struct{} // closed when the lease is Lost
	hurry     chan struct{} // asks for a renewal now
	stop      context.CancelFunc
	done      chan struct{} // closed when the goroutine has ended

	mu      sync.Mutex // protects what follows; held across no call
	id      LeaseID
	ttl     time.Duration
	until   time.Time // until then it is certainly alive
	ended   LeaseState
	err     error
	moved   chan struct{} // closed when id changes or the lease ends
	records map[string]leased
}

// leased is a record as its owner last wrote it. It is in the directory if the
// lease still has that id.
type leased struct {
	value []byte
	under LeaseID
}

func (d *directory) Grant(ctx context.Context, o LeaseOptions) (*Lease, error) {
	if o.TTL < 0 || o.OnExpiry > Surrender {
		return nil, invalid("grant", "", "a lease has a positive time and a known policy", "leave both zero for the defaults")
	}
	o.TTL = cmp.Or(o.TTL, DefaultTTL)
	l := &Lease{
		directory: d, policy: o.OnExpiry, asked: o.TTL,
		lost: make(chan struct{}), hurry: make(chan struct{}, 1), done: make(chan struct{}),
		moved: make(chan struct{}), records: make(map[string]leased),
	}
	err := d.call(ctx, "grant", "", func(ctx context.Context) error {
		if err := l.grant(ctx); err != nil {
			return err
		}
		// Not the caller's context: a lease lives until it is revoked.
		life, stop := context.WithCancel(context.Background())
		l.stop = stop
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.closed {
			stop()
			return ErrClosed
		}
		d.leases[l] = struct{}{}
		d.active.Go(func() { l.keep(life) })
		return nil
	})
	if err != nil {
		return nil, err
	}
	return l, nil
}

// ID is the lease's name in the directory. It changes when the lease is restored.
func (l *Lease) ID() LeaseID {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.id
}

// TTL is the time the directory granted.
func (l *Lease) TTL() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ttl
}

func (l *Lease) State() LeaseState {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended == Held && l.certain() == 0 {
		return Doubtful
	}
	return l.ended
}

// Certain is for how long from the moment of the call the lease is alive for
// certain: its time, counted from when the last renewal that was answered was
// sent. It is 0 when that is doubtful, and when the lease has ended.
func (l *Lease) Certain() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.certain()
}

// certain runs under the lock. It believes whichever of this machine's clocks is
// ahead: the monotonic one stands still while the machine sleeps, and the other
// can be set back.
func (l *Lease) certain() time.Duration {
	if l.ended != Held {
		return 0
	}
	now := l.directory.options.Clock.Now()
	return max(0, min(l.until.Sub(now), l.until.Round(0).Sub(now.Round(0))))
}

// Lost is closed when the lease is gone for good, but not by Revoke.
func (l *Lease) Lost() <-chan struct{} { return l.lost }

// Err says why the lease is Lost; nil while it is not.
func (l *Lease) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// Revoke ends the lease: its records are gone when it returns without error.
// With an error they vanish when the lease expires; it is not renewed again.
func (l *Lease) Revoke(ctx context.Context) error {
	l.stop()
	<-l.done
	id, wasHeld := l.finish(Revoked, nil)
	if !wasHeld {
		return nil
	}
	bounded, cancel := l.directory.bound(ctx, l.directory.options.CallTimeout)
	defer cancel()
	err := l.directory.backend.Revoke(bounded, id)
	if errors.Is(err, ErrLeaseLost) {
		return nil
	}
	return l.directory.fault(ctx, "revoke", "", err)
}

// finish ends the lease once; the first caller does.
func (l *Lease) finish(state LeaseState, err error) (id LeaseID, wasHeld bool) {
	l.directory.mu.Lock()
	delete(l.directory.leases, l)
	l.directory.mu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended != Held {
		return l.id, false
	}
	l.ended, l.err = state, err
	close(l.moved)
	return l.id, true
}

// keep renews the lease until its life ends or it is Lost.
func (l *Lease) keep(life context.Context) {
	defer close(l.done)
	defer l.stop()
	pause := l.TTL() / renewalsPerTTL
	for sleep(life, l.directory.options.Clock, pause, l.hurry) {
		err := l.renew(life)
		pause = l.TTL() / renewalsPerTTL
		switch {
		case life.Err() != nil:
		case errors.Is(err, ErrLeaseLost):
			l.lose(life, err)
			return
		case err != nil:
			pause = l.TTL() / retriesPerTTL
		default:
			l.directory.count.renewals.Add(1)
		}
	}
}

// renew returns ErrLeaseLost when the lease cannot be had back; any other
// error is worth another try.
func (l *Lease) renew(life context.Context) error {
	ctx, cancel := l.directory.bound(life, min(l.directory.options.CallTimeout, max(l.TTL()/renewalsPerTTL, leastAttempt)))
	defer cancel()
	sent := l.directory.options.Clock.Now()
	ttl, err := l.directory.backend.Renew(ctx, l.ID())
	switch {
	case errors.Is(err, ErrLeaseLost) && l.policy == Restore:
		if err := l.grant(ctx); err != nil {
			return err
		}
		l.directory.count.restored.Add(1)
	case err != nil:
		return err
	default:
		l.confirm(l.ID(), ttl, sent)
	}
	return l.putBack(ctx)
}

// grant gives the lease a name in the directory, at first or anew.
func (l *Lease) grant(ctx context.Context) error {
	sent := l.directory.options.Clock.Now()
	id, ttl, err := l.directory.backend.Grant(ctx, l.asked)
	if err == nil {
		l.confirm(id, ttl, sent)
	}
	return err
}

// confirm notes an answer. The time runs from when the question was sent, so
// that the owner is never surer than the directory.
func (l *Lease) confirm(id LeaseID, ttl time.Duration, sent time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ttl, l.until = ttl, sent.Add(ttl)
	if l.id != id {
		l.id = id
		close(l.moved)
		l.moved = make(chan struct{})
	}
}

// putBack writes every record that went with an earlier id. Interrupted, it
// goes on at the next renewal.
func (l *Lease) putBack(ctx context.Context) error {
	l.mu.Lock()
	names := slices.Sorted(maps.Keys(l.records))
	l.mu.Unlock()
	for _, key := range names {
		if err := l.putBackOne(ctx, key); err != nil {
			return err
		}
	}
	return nil
}

func (l *Lease) putBackOne(ctx context.Context, key string) error {
	giveBack, err := l.directory.turns.take(ctx, key)
	if err != nil {
		return err
	}
	defer giveBack()
	l.mu.Lock()
	record, ours := l.records[key]
	id := l.id
	l.mu.Unlock()
	if !ours || record.under == id {
		return nil
	}
	standing, err := l.directory.backend.Write(ctx, Change{Key: key, Value: record.value, Lease: id, At: Absent})
	switch {
	case errors.Is(err, ErrExists) && standing.Lease == id: // written before, the answer was lost
	case errors.Is(err, ErrExists):
		return &Error{
			Op: "restore", Subject: key, Err: Because(ErrLeaseLost, err),
			Hint: "another owner took the key while this owner was cut off; a new start takes a new incarnation",
		}
	case errors.Is(err, ErrLeaseLost):
		return errExpiredAgain // not ErrLeaseLost: the next renewal starts over
	case err != nil:
		return err
	}
	l.remember(key, record.value, id)
	return nil
}

// lose ends the lease. What it may have put back already goes again before the
// owner hears of it.
func (l *Lease) lose(life context.Context, err error) {
	id, wasHeld := l.finish(Lost, l.directory.fault(context.Background(), "renew", "", err))
	if !wasHeld {
		return
	}
	l.directory.count.lost.Add(1)
	if l.policy == Restore {
		ctx, cancel := l.directory.bound(life, leastAttempt)
		defer cancel()
		_ = l.directory.backend.Revoke(ctx, id) // unanswered, it expires by itself
	}
	close(l.lost)
}

// under writes with the lease's id, again when the directory says that the id
// has expired and the lease was restored under another.
func (l *Lease) under(ctx context.Context, write func(LeaseID) error) error {
	for {
		l.mu.Lock()
		id, ended, moved := l.id, l.ended, l.moved
		l.mu.Unlock()
		if ended != Held {
			return Because(ErrLeaseLost, errors.New("it is "+ended.String()))
		}
		if err := write(id); !errors.Is(err, ErrLeaseLost) {
			return err
		}
		select {
		case l.hurry <- struct{}{}:
		default: // asked for already
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (l *Lease) remember(key string, value []byte, under LeaseID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.records[key] = leased{value: value, under: under}
}

func (l *Lease) forget(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.records, key)
}
