package directorytest

import (
	"context"
	"slices"
	"sync"
	"testing"

	"meridian/internal/until"
	"meridian/member/directory"
)

// Observer is a watch with a memory. It ends with its test.
type Observer struct {
	mu     sync.Mutex // protects what follows
	view   directory.View
	events []directory.Event
}

// Observe watches everything under prefix.
func Observe(t testing.TB, d directory.Directory, prefix string) *Observer {
	t.Helper()
	return observe(t, d, prefix, 0)
}

func observe(t testing.TB, d directory.Directory, prefix string, after directory.Revision) *Observer {
	t.Helper()
	watch, err := d.Watch(context.Background(), prefix, after)
	if err != nil {
		t.Fatal(err)
	}
	o := &Observer{}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for e := range watch.Events() {
			o.take(e)
		}
	}()
	t.Cleanup(func() { watch.Close(); <-ended })
	return o
}

func (o *Observer) take(e directory.Event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.view.Apply(e)
	o.events = append(o.events, e)
}

// Known tells whether the directory confirms what the observer believes.
func (o *Observer) Known() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.view.Known()
}

// Sees tells whether the observer believes in a record with this value.
func (o *Observer) Sees(key, value string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	r, has := o.view.Get(key)
	return has && string(r.Value) == value
}

// Records is what the observer believes in.
func (o *Observer) Records() []directory.Record {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.view.Records()
}

// Heard returns the events of these kinds so far.
func (o *Observer) Heard(kinds ...directory.EventKind) []directory.Event {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(o.events), func(e directory.Event) bool { return !slices.Contains(kinds, e.Kind) })
}

// ready waits for the first full state.
func (o *Observer) ready(t *testing.T) *Observer {
	t.Helper()
	until.True(t, "a first resync", o.Known)
	return o
}

func (o *Observer) sees(key string, value []byte) func() bool {
	return func() bool { return o.Sees(key, string(value)) }
}

func (o *Observer) misses(key string) func() bool {
	return func() bool {
		o.mu.Lock()
		defer o.mu.Unlock()
		_, has := o.view.Get(key)
		return !has
	}
}
