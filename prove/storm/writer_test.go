package storm

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"
)

// Writer is a client of a cache that puts and removes objects of its own, and reads
// those of all others.
type Writer struct {
	Checker *Checker
	Cache   Cache
	// Number is its own, of Count.
	Number, Count int
	// Owners are the names of those that may be killed, as Checker.Killed has them.
	Owners []string
	// Ask is how long one request may take.
	Ask time.Duration
}

// Run works until ctx ends. What is wrong or lost is told.
func (w *Writer) Run(ctx context.Context, tell func(error)) {
	random := rand.New(rand.NewPCG(rand.Uint64(), uint64(w.Number)))
	slots := &w.Checker.live[w.Number]
	for i := range slots {
		if id := slots[i].Load(); id == 0 || w.inDoubt(id) {
			w.replace(ctx, i)
		}
	}
	for ctx.Err() == nil {
		slot := random.IntN(liveEntries)
		id := slots[slot].Load()
		if random.IntN(3) > 0 {
			if id = w.Checker.live[random.IntN(w.Count)][slot].Load(); id != 0 {
				w.read(ctx, id, tell)
			}
			continue
		}
		if err := w.write(ctx, id, random.IntN(4) > 0, tell); err != nil && ctx.Err() == nil {
			w.replace(ctx, slot)
			rest(ctx)
		}
	}
}

func (w *Writer) read(ctx context.Context, id uint64, tell func(error)) {
	asking, cancel := context.WithTimeout(ctx, w.Ask)
	defer cancel()
	answered, err := w.Checker.Read(asking, w.Cache, id)
	if err != nil {
		tell(err)
	}
	if !answered {
		rest(ctx)
	}
}

// rest waits a moment before a cache is asked again that did not answer.
func rest(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(100 * time.Millisecond):
	}
}

// inDoubt reports whether the writer died in the middle of something.
func (w *Writer) inDoubt(id uint64) bool {
	e := &w.Checker.entries[id]
	return e.begun.Load() > e.settled.Load() || e.removing.Load() > e.removed.Load()
}

// replace retires the object of a slot, and takes one that was never used.
func (w *Writer) replace(ctx context.Context, slot int) {
	at := &w.Checker.live[w.Number][slot]
	was := at.Load()
	next := was + uint64(liveEntries*w.Count)
	if was == 0 {
		next = uint64(liveEntries*(w.Number+1) + slot) // 0 is none
	} else {
		w.Checker.entries[was].retired.Store(1)
		w.Checker.Tallied[Retired].Add(1)
	}
	at.Store(next % maxEntries)
	if was != 0 {
		asking, cancel := context.WithTimeout(ctx, w.Ask)
		defer cancel()
		_ = w.Cache.Remove(asking, keyOf(was)) // else it takes room until it is evicted
	}
}

// write removes an object that is there, and puts the next version of it. An error says
// that it is not known what happened.
func (w *Writer) write(ctx context.Context, id uint64, put bool, tell func(error)) error {
	e := &w.Checker.entries[id]
	ctx, cancel := context.WithTimeout(ctx, 2*w.Ask)
	defer cancel()
	if acked, removed := e.acked.Load(), e.removed.Load(); acked > removed {
		err := w.remove(ctx, id, acked, tell)
		if err != nil || !put {
			return err
		}
	}
	version := e.begun.Add(1)
	deaths := w.Checker.deaths()
	lives := make([]uint64, len(w.Owners))
	for i := range lives {
		lives[i] = w.Checker.lives[i].Load()
	}
	err := w.Cache.Put(ctx, keyOf(id), valueOf(id, version))
	switch {
	case errors.Is(err, ErrRefused):
		w.Checker.Tallied[Refused].Add(1)
		e.settled.Store(version)
		return nil
	case err != nil:
		return err
	}
	home := uint64(Owners)<<32 | uint64(deaths)
	if name, err := w.Cache.Owner(ctx, keyOf(id)); err == nil {
		if at := slices.Index(w.Owners, name); at >= 0 {
			home = uint64(at)<<32 | uint64(uint32(lives[at]))
		}
	}
	e.home.Store(home)
	e.settled.Store(version)
	e.acked.Store(version)
	w.Checker.Tallied[Puts].Add(1)
	return nil
}

func (w *Writer) remove(ctx context.Context, id, version uint64, tell func(error)) error {
	e := &w.Checker.entries[id]
	e.removing.Store(version)
	err := w.Cache.Remove(ctx, keyOf(id))
	if errors.Is(err, ErrMissing) {
		if err := w.Checker.lose(id, version, e.home.Load()); err != nil {
			tell(err)
		}
		err = nil
	}
	if err == nil {
		w.Checker.Tallied[Removes].Add(1)
		e.removed.Store(version)
	}
	return err
}
