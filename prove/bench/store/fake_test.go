package store

import (
	"context"
	"errors"
	"sync"
)

// fakeStore keeps objects in a map; a spoiled one gives other bytes back.
type fakeStore struct {
	mu      sync.Mutex
	objects map[string][]byte // protected by mu
	spoiled bool
}

func newFake() *fakeStore { return &fakeStore{objects: make(map[string][]byte)} }

func (f *fakeStore) open(context.Context, Options, string) (contender, error) {
	return &caches{
		title: oursName, client: func(context.Context) (Cache, error) { return fakeClient{f}, nil },
		stop: func(context.Context) error { return nil },
	}, nil
}

type fakeClient struct{ *fakeStore }

var errFake = errors.New("fake")

func (f fakeClient) Buffer(bytes uint64) ([]byte, error) { return make([]byte, bytes), nil }

func (f fakeClient) Put(_ context.Context, key string, value []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, there := f.objects[key]; there {
		return errFake // a value never changes: keys that are used twice would fail in service
	}
	f.objects[key] = append([]byte(nil), value...)
	return nil
}

func (f fakeClient) Get(_ context.Context, key string, into []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	value, there := f.objects[key]
	if !there {
		return 0, errFake
	}
	copy(into, value)
	if f.spoiled {
		into[len(value)-1]++
	}
	return len(value), nil
}

func (f fakeClient) Remove(_ context.Context, key string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, there := f.objects[key]; !there {
		return errFake
	}
	delete(f.objects, key)
	return nil
}

func (f fakeClient) Close(context.Context) error { return nil }
