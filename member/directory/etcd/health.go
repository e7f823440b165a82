package etcd

import (
	"context"
	"errors"
	"sync"
	"time"

	"meridian/member/directory"
)

const (
	healthInterval = time.Second
	healthTimeout  = 2 * time.Second
	// healthMisses is how many questions in a row go without an answer before the
	// directory is called silent: during one, this process itself may have stood
	// still.
	healthMisses = 2
)

// errReplaced ends the watches of a directory that another one answers for.
var errReplaced = directory.Because(directory.ErrUnavailable, errors.New("another directory answers at its endpoints"))

// clusterState is which directory answered, and how far it had come.
type clusterState struct {
	cluster  uint64
	revision int64
}

// follows tells whether b can be a later answer of the directory that gave a.
func (b clusterState) follows(a clusterState) bool {
	return a.cluster == 0 || b.cluster == a.cluster && b.revision >= a.revision
}

// healthCheck finds out what the client library hides: it resumes watches for as
// long as it takes, and a watch that waits for a revision which a directory
// that lost its data will not reach for a long time looks like a quiet one.
type healthCheck struct {
	ask    func(context.Context) (clusterState, error)
	needed chan struct{} // holds something when a watch has come
	cancel context.CancelFunc
	done   chan struct{}

	mu      sync.Mutex // protects what follows
	last    clusterState
	watches map[*context.CancelCauseFunc]struct{}
}

func startHealthCheck(ask func(context.Context) (clusterState, error)) *healthCheck {
	life, cancel := context.WithCancel(context.Background())
	p := &healthCheck{
		ask: ask, needed: make(chan struct{}, 1), cancel: cancel, done: make(chan struct{}),
		watches: make(map[*context.CancelCauseFunc]struct{}),
	}
	go p.run(life)
	return p
}

func (p *healthCheck) stop() {
	p.cancel()
	<-p.done
}

// attach returns a context that also ends when the directory is gone.
func (p *healthCheck) attach(ctx context.Context) (attached context.Context, detach func()) {
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

func (p *healthCheck) run(life context.Context) {
	defer close(p.done)
	for {
		select {
		case <-p.needed:
		case <-life.Done():
			return
		}
		for p.watched() {
			select {
			case <-time.After(healthInterval):
			case <-life.Done():
				return
			}
			p.check(life)
		}
	}
}

func (p *healthCheck) watched() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.watches) > 0
}

// saw notes who answered a watch, so that there is something to compare the
// first beat with. Whether it is still the same directory, only a beat judges:
// answers to watches overtake one another.
func (p *healthCheck) saw(b clusterState) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if b.follows(p.last) {
		p.last = b
	}
}

// clusterState asks until there is an answer or the directory is silent.
func (p *healthCheck) beat(life context.Context) (now clusterState, err error) {
	for range healthMisses {
		ctx, cancel := context.WithTimeout(life, healthTimeout)
		now, err = p.ask(ctx)
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) {
			break
		}
	}
	return now, err
}

func (p *healthCheck) check(life context.Context) {
	p.mu.Lock()
	last := p.last
	p.mu.Unlock()
	now, err := p.beat(life)
	switch {
	case life.Err() != nil:
	case errors.Is(err, context.DeadlineExceeded):
		p.end(directory.Because(directory.ErrUnavailable, errors.New("no answer within "+(healthMisses*healthTimeout).String())))
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
func (p *healthCheck) end(cause error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for cancel := range p.watches {
		(*cancel)(cause)
	}
}
