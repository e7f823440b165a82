// Package seeded is what simulations have in common whose worlds come from a seed:
// events in one order, chance, a story, and counts of what was exercised. The same
// seed gives the same events in the same order.
package seeded

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"meridian/kv"
)

// Process is what events happen to. The zero one stands for the world itself.
type Process interface {
	comparable
	// Dead processes have nothing happen to them any more.
	Dead() bool
	// Still is until when the process stands still: what would happen to it before
	// happens then, in the same order.
	Still() kv.Instant
	// Before and After are called around every event.
	Before()
	After()
}

// World is a clock, what is to come, chance, and what was said of it all.
type World[P Process] struct {
	Draw   *rand.Rand // what there is and what is wanted
	Chance *rand.Rand // what goes wrong
	Now    kv.Instant
	Calm   bool // nothing goes wrong any more
	Events uint64
	Story  []Entry
	Broken *Violation // the first promise that was broken

	most   uint64
	queue  Queue[kv.Instant, P]
	serial uint64
}

// New makes the world of a seed, which needs far fewer events than most.
func New[P Process](seed, most uint64) World[P] {
	return World[P]{Draw: rand.New(rand.NewPCG(seed, 1)), Chance: rand.New(rand.NewPCG(seed, 2)), most: most}
}

// After has something happen, on a process if it still lives then.
func (w *World[P]) After(d kv.Instant, on P, run func()) {
	w.queue.Push(Event[kv.Instant, P]{w.Now + max(0, d), w.Number(), on, run})
}

// Number is one that no event has, nor anything else.
func (w *World[P]) Number() uint64 {
	w.serial++
	return w.serial
}

// RunUntil lets events happen until the time is over, or a promise is broken.
func (w *World[P]) RunUntil(end kv.Instant) {
	var none P
	for w.Broken == nil && len(w.queue) > 0 && w.queue[0].At <= end {
		e := w.queue.Pop()
		w.Now = e.At
		if e.On != none && e.On.Dead() {
			continue
		}
		if e.On != none && e.On.Still() > w.Now {
			e.At = e.On.Still()
			w.queue.Push(e)
			continue
		}
		if w.Events++; w.Events > w.most {
			w.Violate("worlds end", "%d events", w.Events)
			return
		}
		if e.On == none {
			e.Run()
			continue
		}
		e.On.Before()
		e.Run()
		e.On.After()
	}
	if w.Broken == nil {
		w.Now = max(w.Now, end)
	}
}

// Live plays a world. A panic breaks a promise, too.
func (w *World[P]) Live(play func()) {
	defer func() {
		if cause := recover(); cause != nil {
			w.Violate("nothing panics", "%v", cause)
		}
	}()
	play()
}

// Violate notes the first promise that is broken.
func (w *World[P]) Violate(rule, format string, args ...any) {
	if w.Broken == nil {
		w.Broken = &Violation{Rule: rule, What: fmt.Sprintf(format, args...), At: Duration(w.Now), Event: len(w.Story)}
	}
}

// Note adds to the story.
func (w *World[P]) Note(format string, args ...any) {
	w.Story = append(w.Story, Entry{Duration(w.Now), format, args})
}

// Span draws a time, short ones as likely as long ones.
func (w *World[P]) Span(low, high kv.Instant) kv.Instant {
	for high > 2*low+2 && w.Chance.IntN(3) > 0 {
		high = low + (high-low)/4
	}
	return low + kv.Instant(w.Chance.Int64N(int64(high-low)+1))
}

// ID draws an id.
func (w *World[P]) ID() (id kv.ID) {
	for i := range id {
		id[i] = byte(w.Draw.Uint32())
	}
	return id
}

// Duration is a span as people read it.
func Duration(i kv.Instant) time.Duration { return time.Duration(i) * time.Microsecond }

// Trouble is which kinds of it a world has.
type Trouble []struct {
	Name string
	Has  bool
}

func (t Trouble) String() string {
	var names []string
	for _, kind := range t {
		if kind.Has {
			names = append(names, kind.Name)
		}
	}
	return strings.Join(names, ", ")
}
