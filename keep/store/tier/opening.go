package tier

import (
	"context"
	"errors"
	"sync"
	"time"

	"meridian/internal/join"
)

const (
	firstPause = time.Second
	maxPause   = 30 * time.Second
)

// Opening is a tier that comes when it can. Until then its owner serves with misses: a
// disk that hangs or is large, a folder that cannot be written, a server that is gone keep
// no process from starting.
type Opening struct {
	name   string
	open   opens
	tell   func(error)
	ctx    context.Context
	cancel context.CancelFunc
	wait   sync.WaitGroup // the tries

	mu     sync.Mutex // protects the rest
	tier   Tier       // nil: it is not open
	closed bool
	failed error // of the last try
	read   int   // of the parts that it reads while it is opened
	parts  int   // so many
	before Stats // what was asked of it before it was open
}

var _ Tier = (*Opening)(nil)

// opens opens a tier. It may say how far it has come.
type opens func(ctx context.Context, progress func(read, of int)) (Tier, error)

// Open begins to open a tier, and tries again until it is closed. Tell hears why each try
// failed, and nil when the tier is open.
func Open(name string, tell func(error), open opens) *Opening {
	o := &Opening{name: name, open: open, tell: tell}
	o.ctx, o.cancel = context.WithCancel(context.Background())
	o.wait.Go(o.keepTrying)
	return o
}

func (o *Opening) keepTrying() {
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		tier, err := o.open(o.ctx, o.note)
		if err == nil {
			if o.take(tier) {
				o.tell(nil)
			} else { // closed meanwhile
				_ = tier.Close(o.ctx)
			}
			return
		}
		if o.ctx.Err() != nil {
			return
		}
		o.mu.Lock()
		o.before.Failed++
		o.failed, o.read, o.parts = err, 0, 0
		o.mu.Unlock()
		o.tell(err)
		select {
		case <-time.After(pause):
		case <-o.ctx.Done():
			return
		}
	}
}

// note keeps how far it is.
func (o *Opening) note(read, of int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.read, o.parts = read, of
}

// Progress is how many of its parts were read by the try that runs, as far as it says so.
func (o *Opening) Progress() (read, of int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.read, o.parts
}

// take lets the tier be used, if it is not too late.
func (o *Opening) take(tier Tier) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.closed {
		o.tier = tier
	}
	return !o.closed
}

// opened is the tier, if it is open; what is asked of it meanwhile is counted.
func (o *Opening) opened(count *uint64) Tier {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.tier == nil && count != nil {
		*count++
	}
	return o.tier
}

// Opened reports whether it is open, and if not why the last try failed, if there was one.
func (o *Opening) Opened() (is bool, why error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.tier != nil {
		return true, nil
	}
	return false, o.failed
}

// Name implements Tier.
func (o *Opening) Name() string { return o.name }

// Takes implements Tier.
func (o *Opening) Takes(bytes uint64) error {
	if t := o.opened(&o.before.PutsDropped); t != nil {
		return t.Takes(bytes)
	}
	return ErrDown
}

// Put implements Tier.
func (o *Opening) Put(object Object) error {
	if t := o.opened(&o.before.PutsDropped); t != nil {
		return t.Put(object)
	}
	return ErrDown
}

// Get implements Tier.
func (o *Opening) Get(ctx context.Context, key []byte, into func(header []byte, size int) []byte) ([]byte, error) {
	if t := o.opened(&o.before.Misses); t != nil {
		return t.Get(ctx, key, into)
	}
	return nil, errors.Join(ErrMissing, ErrDown)
}

// Has implements Tier.
func (o *Opening) Has(keys [][]byte) []bool {
	if t := o.opened(nil); t != nil {
		return t.Has(keys)
	}
	return make([]bool, len(keys))
}

// Drop implements Tier.
func (o *Opening) Drop(key []byte) {
	if t := o.opened(nil); t != nil {
		t.Drop(key)
	}
}

// Flush implements Tier.
func (o *Opening) Flush(ctx context.Context) error {
	if t := o.opened(nil); t != nil {
		return t.Flush(ctx)
	}
	return nil
}

// Stats implements Tier. A tier that is not open is down.
func (o *Opening) Stats() Stats {
	t := o.opened(nil)
	s := Stats{Down: true}
	if t != nil {
		s = t.Stats()
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	s.Failed, s.PutsDropped, s.Misses = s.Failed+o.before.Failed, s.PutsDropped+o.before.PutsDropped, s.Misses+o.before.Misses
	return s
}

// Close implements Tier. A try that hangs keeps it waiting as long as ctx lasts.
func (o *Opening) Close(ctx context.Context) error {
	o.mu.Lock()
	o.closed = true
	o.mu.Unlock()
	o.cancel()
	if err := join.Within(ctx, "tier: "+o.name+": opening", o.wait.Wait); err != nil {
		return err
	}
	if t := o.opened(nil); t != nil {
		return t.Close(ctx)
	}
	return nil
}
