package storm

import (
	"bytes"
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// fakeCache is a cache that may be broken.
type fakeCache struct {
	values map[string][]byte
	old    map[string][]byte // the version before
	spoil  func(c *fakeCache, key string) ([]byte, error)
	left   int    // gets until
	tired  func() // is called
}

func (c *fakeCache) Put(_ context.Context, key string, value []byte) error {
	if c.values[key] != nil {
		return ErrRefused
	}
	c.values[key] = value
	return nil
}

func (c *fakeCache) Get(_ context.Context, key string) ([]byte, error) {
	if c.left--; c.left == 0 {
		c.tired()
	}
	if c.spoil != nil {
		return c.spoil(c, key)
	}
	if value := c.values[key]; value != nil {
		return value, nil
	}
	return nil, ErrMissing
}

func (c *fakeCache) Remove(_ context.Context, key string) error {
	if c.values[key] == nil {
		return ErrMissing
	}
	c.old[key] = c.values[key]
	delete(c.values, key)
	return nil
}

func (c *fakeCache) Owner(context.Context, string) (string, error) { return "b", nil }

// The checker must see what a cache must not do, and excuse what it may.
func TestChecker(t *testing.T) {
	missing := func(*fakeCache, string) ([]byte, error) { return nil, ErrMissing }
	for name, test := range map[string]struct {
		spoil  func(c *fakeCache, key string) ([]byte, error)
		before func(w *Checker)
		wrong  string // part of what is said; empty where all is well
		tally  int
	}{
		"right": {tally: Right},
		"torn": {
			spoil: func(c *fakeCache, key string) ([]byte, error) {
				torn := bytes.Clone(c.values[key])
				torn[len(torn)-1] ^= 1
				return torn, nil
			},
			wrong: "is torn", tally: Wrong,
		},
		"cut short": {
			spoil: func(c *fakeCache, key string) ([]byte, error) { return c.values[key][:valueHead], nil },
			wrong: "is torn", tally: Wrong,
		},
		"another's": {
			spoil: func(*fakeCache, string) ([]byte, error) { return valueOf(9, 1), nil },
			wrong: "of another object", tally: Wrong,
		},
		"stale": {
			spoil: func(c *fakeCache, key string) ([]byte, error) { return c.old[key], nil },
			wrong: "after 2 was acknowledged", tally: Wrong,
		},
		"never put": {
			spoil: func(*fakeCache, string) ([]byte, error) { return valueOf(1, 3), nil },
			wrong: "only 2 was begun", tally: Wrong,
		},
		"risen": {
			before: func(w *Checker) { w.entries[1].removed.Store(2) },
			wrong:  "after it was removed", tally: Wrong,
		},
		"lost":                   {spoil: missing, wrong: "is missing, and owner 1 lives", tally: Lost},
		"another owner died":     {spoil: missing, before: func(w *Checker) { w.Killed(0) }, wrong: "is missing", tally: Lost},
		"died with its owner":    {spoil: missing, before: func(w *Checker) { w.Killed(1) }, tally: Died},
		"its owner is away":      {spoil: missing, before: func(w *Checker) { w.Still(1, true) }, tally: Away},
		"removed meanwhile":      {spoil: missing, before: func(w *Checker) { w.entries[1].removing.Store(2) }, tally: Absent},
		"its writer is in doubt": {spoil: missing, before: func(w *Checker) { w.entries[1].retired.Store(1) }, tally: Absent},
		"no answer": {
			spoil: func(*fakeCache, string) ([]byte, error) { return nil, context.DeadlineExceeded }, tally: Unanswered,
		},
	} {
		t.Run(name, func(t *testing.T) {
			checker, err := OpenChecker(filepath.Join(t.TempDir(), "checker"))
			if err != nil {
				t.Fatal(err)
			}
			defer checker.Close()
			cache := &fakeCache{values: map[string][]byte{}, old: map[string][]byte{}}
			w := Writer{Checker: checker, Cache: cache, Count: 1, Owners: []string{"a", "b"}, Ask: time.Second}
			for range 2 { // the second removes, and puts the next version
				if err := w.write(t.Context(), 1, true, func(err error) { t.Error(err) }); err != nil {
					t.Fatal(err)
				}
			}
			if test.before != nil {
				test.before(checker)
			}
			cache.spoil = test.spoil
			_, err = checker.Read(t.Context(), cache, 1)
			if said := ""; err != nil {
				said = err.Error()
				if test.wrong == "" || !strings.Contains(said, test.wrong) {
					t.Errorf("said %q, want %q", said, test.wrong)
				}
			} else if test.wrong != "" {
				t.Errorf("nothing was said, want %q", test.wrong)
			}
			if checker.Tallied[test.tally].Load() != 1 {
				t.Errorf("tallied: %v", checker)
			}
		})
	}
}

// A writer that died in the middle of something leaves its object alone when it comes
// back.
func TestWriterComesBack(t *testing.T) {
	checker, err := OpenChecker(filepath.Join(t.TempDir(), "checker"))
	if err != nil {
		t.Fatal(err)
	}
	defer checker.Close()
	cache := &fakeCache{values: map[string][]byte{}, old: map[string][]byte{}}
	w := Writer{Checker: checker, Cache: cache, Count: 1, Owners: []string{"a", "b"}, Ask: time.Minute}
	run := func() {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		cache.left, cache.tired = 200, cancel
		w.Run(ctx, func(err error) { t.Error(err) })
	}
	run()
	dying, sound := checker.live[0][0].Load(), checker.live[0][1].Load()
	checker.entries[dying].begun.Add(1) // and nothing more is known of it
	run()
	if now := checker.live[0][0].Load(); now == dying || checker.entries[dying].retired.Load() == 0 {
		t.Errorf("object %d is used though it is in doubt", now)
	}
	if now := checker.live[0][1].Load(); now != sound {
		t.Errorf("object %d was given up, and nothing is in doubt", sound)
	}
	if checker.Tallied[Right].Load() == 0 || checker.Tallied[Puts].Load() == 0 || checker.Tallied[Removes].Load() == 0 {
		t.Errorf("nothing happened: %v", checker)
	}
}
