package etcd

import (
	"context"
	"errors"
	"sync"
	"time"

	"meridian/member/directory"
)

const (
	pulseInterval = time.Second
	pulseTimeout  = 2 * time.Second
	// pulseMisses is how many questions in a row go without an answer before the
	// directory is called silent: during one, this process itself may have stood
	// still.
	pulseMisses = 2
)

// errReplaced ends the watches of a directory that another one answers for.
var errReplaced = directory.Because(directory.ErrUnavailable, errors.New("another directory answers at its endpoints"))

// beat is which directory answered, and how far it had come.
type beat struct {
	cluster  uint64
	revision int64
}

// follows tells whether b can be a later answer of the directory that gave a.
func (b beat) follows(a beat) bool {
	return a.cluster == 0 || b.cluster == a.cluster && b.revision >= a.revision
}

// pulse finds out what the client library hides: it resumes watches for as
// long as it takes, and a watch that waits for a revision which a directory
// that lost its data will not reach for a long time looks like a quiet one.
type pulse struct {
	ask    func(context.Context) (beat, error)
	needed chan struct{} // holds something when a watch has come
	cancel context.CancelFunc
	done   chan struct{}

	mu      sync.Mutex // protects what follows
	last    beat
	watches map[*context.CancelCauseFunc]struct{}
}

func startPulse(ask func(context.Context) (beat, error)) *pulse {
	life, cancel := context.WithCancel(context.Background())
	p := &pulse{
		ask: ask, needed: make(chan struct{}, 1), cancel: cancel, done: make(chan struct{}),
		watches: make(map[*context.CancelCauseFunc]struct{}),
	}
	go p.run(life)
	return p
}

func (p *pulse) stop() {
	p.cancel()
	<-p.done
}

// attach returns a context that also ends when the directory is gone.
func (p *pulse) attach(ctx context.Context) (attached context.Context, detach func()) {
	attached, cancel := context.WithCancelCause(ctx)
	p.mu.Lock()
	p.watches[&cancel] = struct{}{}
	p.mu.Unlock()
	select {
	case p.needed <- struct{}{}:
	default:
	}
	return attached, func() {
		p.mu.Lock()
		delete(p.watches, &cancel)
		p.mu.Unlock()
		cancel(nil)
	}
}

func (p *pulse) run(life context.Context) {
	defer close(p.done)
	for {
		select {
		case <-p.needed:
		case <-life.Done():
			return
		}
		for p.watched() {
			select {
			case <-time.After(pulseInterval):
			case <-life.Done():
				return
			}
			p.check(life)
		}
	}
}

func (p *pulse) watched() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.watches) > 0
}

// saw notes who answered a watch, so that there is something to compare the
// first beat with. Whether it is still the same directory, only a beat judges:
// answers to watches overtake one another.
func (p *pulse) saw(b beat) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if b.follows(p.last) {
		p.last = b
	}
}

// beat asks until there is an answer or the directory is silent.
func (p *pulse) beat(life context.Context) (now beat, err error) {
	for range pulseMisses {
		ctx, cancel := context.WithTimeout(life, pulseTimeout)
		now, err = p.ask(ctx)
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) {
			break
		}
	}
	return now, err
}

func (p *pulse) check(life context.Context) {
	p.mu.Lock()
	last := p.last
	p.mu.Unlock()
	now, err := p.beat(life)
	switch {
	case life.Err() != nil:
	case errors.Is(err, context.DeadlineExceeded):
		p.end(directory.Because(directory.ErrUnavailable, errors.New("no answer within "+(pulseMisses*pulseTimeout).String())))
	case err != nil:
		p.end(err)
	case !now.follows(last):
		p.mu.Lock()
		p.last = now
		p.mu.Unlock()
		p.end(errReplaced)
	default:
		p.saw(now)
	}
}

// end breaks off the watches that are under way.
func (p *pulse) end(cause error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for cancel := range p.watches {
		(*cancel)(cause)
	}
}
