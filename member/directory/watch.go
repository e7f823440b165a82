package directory

import (
	"context"
	"errors"
	"time"
)

// How long a watch waits before it asks an absent directory again.
const (
	firstRetry   = 100 * time.Millisecond
	longestRetry = time.Second
)

// errBehind ends a stream whose consumer does not keep up.
var errBehind = errors.New("the consumer is behind")

// Watch is an open watch. A consumer that falls behind holds up no other: its
// queue fills, its stream ends, and when it has caught up the watch goes on
// from there, with a Resync only where the directory has forgotten meanwhile.
type Watch struct {
	directory *directory
	prefix    string
	events    chan Event
	stop      context.CancelFunc
	done      chan struct{} // closed when the goroutine has ended

	// These belong to the watch's goroutine.
	after     Revision // the consumer was sent everything up to here; 0: nothing
	away      bool     // the consumer has heard Unavailable last
	leftovers []Event  // of a revision that did not fit into the queue
}

func (d *directory) Watch(ctx context.Context, prefix string, after Revision) (*Watch, error) {
	if err := CheckPrefix(prefix); err != nil {
		return nil, err
	}
	if after < 0 {
		return nil, invalid("watch", prefix, "that is no revision", "take it from a snapshot or an event, or use 0 for everything")
	}
	if ctx.Err() != nil {
		return nil, d.fault(ctx, "watch", prefix, ctx.Err())
	}
	life, stop := context.WithCancel(ctx)
	w := &Watch{
		directory: d, prefix: prefix, after: after,
		events: make(chan Event, WatchQueue),
		stop:   stop, done: make(chan struct{}),
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		stop()
		return nil, &Error{Op: "watch", Subject: prefix, Err: ErrClosed}
	}
	d.watches[w] = struct{}{}
	d.active.Go(func() { w.run(life) })
	return w, nil
}

// Events is closed when the watch has ended.
func (w *Watch) Events() <-chan Event { return w.events }

// Close ends the watch and waits until it has.
func (w *Watch) Close() {
	w.stop()
	<-w.done
}

func (w *Watch) run(life context.Context) {
	defer close(w.done)
	defer close(w.events)
	defer w.stop()
	defer func() {
		w.directory.mu.Lock()
		delete(w.directory.watches, w)
		w.directory.mu.Unlock()
	}()
	retry := firstRetry
	for life.Err() == nil {
		began := w.directory.options.Clock.Now()
		err := w.follow(life)
		switch {
		case life.Err() != nil:
			return
		case errors.Is(err, errBehind):
			w.directory.count.lapses.Add(1)
			w.catchUp(life)
			continue
		case errors.Is(err, ErrCompacted):
			w.after = 0
			continue
		}
		if w.directory.options.Clock.Now().Sub(began) > longestRetry {
			retry = firstRetry
		}
		w.after = 0 // what comes back may be another directory: start over
		w.report(life, err)
		sleep(life, w.directory.options.Clock, retry, nil)
		retry = min(2*retry, longestRetry)
	}
}

// follow sends what the consumer does not know yet, until it cannot go on.
func (w *Watch) follow(life context.Context) error {
	if w.after == 0 {
		if err := w.resync(life); err != nil {
			return err
		}
	}
	return w.directory.backend.Watch(life, w.prefix, w.after, w.emit)
}

func (w *Watch) resync(life context.Context) error {
	ctx, cancel := w.directory.bound(life, w.directory.options.CallTimeout)
	defer cancel()
	snapshot, err := w.directory.backend.List(ctx, w.prefix)
	if err != nil {
		return err
	}
	kind := Resync
	if w.away {
		kind = Available
	}
	if w.send(life, Event{Kind: kind, Revision: snapshot.Revision, Records: snapshot.Records}) {
		w.after, w.away = snapshot.Revision, false
	}
	return life.Err()
}

// report tells the consumer of an outage, once.
func (w *Watch) report(life context.Context, err error) {
	if w.away {
		return
	}
	w.away = true
	w.directory.count.outages.Add(1)
	w.send(life, Event{Kind: Unavailable, Err: w.directory.fault(life, "watch", w.prefix, err)})
}

// emit queues whole revisions without waiting. What does not fit is left over
// for catchUp, and the stream ends.
func (w *Watch) emit(events []Event) error {
	for i, e := range events {
		select {
		case w.events <- e:
			w.after = max(w.after, e.Revision)
		default:
			w.leftovers = events[i:]
			return errBehind
		}
	}
	return nil
}

// catchUp waits for the consumer to make room for what was left over.
func (w *Watch) catchUp(life context.Context) {
	for _, e := range w.leftovers {
		if !w.send(life, e) {
			return
		}
		w.after = max(w.after, e.Revision)
	}
	w.leftovers = nil
}

func (w *Watch) send(life context.Context, e Event) bool {
	select {
	case w.events <- e:
		return true
	case <-life.Done():
		return false
	}
}
