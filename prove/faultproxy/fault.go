package faultproxy

import (
	"sync"
	"sync/atomic"
	"time"
)

// Way is one direction of the proxy.
type Way uint8

// The ways.
const (
	Forward Way = iota // from the dialer to the target
	Back
)

// Fault is what is wrong with one way. The zero Fault carries bytes as they
// come.
type Fault struct {
	// Delay is how long each byte is under way.
	Delay time.Duration
	// BytesPerSecond, where not 0, is shared by all connections.
	BytesPerSecond int64
	// Strike happens once After bytes have passed since the fault was set, on
	// whatever connection the next byte comes.
	Strike Strike
	After  int64
}

// Strike is what happens at one point of what passes.
type Strike uint8

// The strikes.
const (
	Nothing Strike = iota
	// Flip changes one bit of the next byte.
	Flip
	// Truncate ends the connection, both ways, as if both had hung up there.
	Truncate
	// Reset ends it with a reset.
	Reset
	// Swallow takes everything from then on, on every connection, and delivers
	// nothing: a black hole, or a half-open connection where it is set one way.
	// What has lost a byte never recovers.
	Swallow
	// Stall holds everything back, on every connection, until another fault is
	// set: then it goes on as if it had only been slow.
	Stall
)

// way is the state of one direction, for all connections.
type way struct {
	passed atomic.Int64

	mu      sync.Mutex // protects the rest
	fault   Fault
	since   int64         // bytes claimed since the fault was set
	struck  chan struct{} // closed when since reaches After
	changed chan struct{} // closed when the fault is replaced
	free    time.Time     // when the wire is free again, under BytesPerSecond
}

func newWay() *way {
	w := &way{changed: make(chan struct{})}
	w.set(Fault{})
	return w
}

func (w *way) set(f Fault) <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	close(w.changed)
	w.fault, w.since, w.struck, w.changed = f, 0, make(chan struct{}), make(chan struct{})
	if f.After == 0 && f.Strike == Nothing {
		close(w.struck)
	}
	return w.struck
}

func (w *way) delay() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.fault.Delay
}

// lasting is the strike that is in force now and stays: Swallow, Stall, or
// Nothing. changed is closed when that changes.
func (w *way) lasting() (Strike, <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.since < w.fault.After || w.fault.Strike != Swallow && w.fault.Strike != Stall {
		return Nothing, w.changed
	}
	return w.fault.Strike, w.changed
}

func (w *way) swallows() bool {
	strike, _ := w.lasting()
	return strike == Swallow
}

// claim is what may happen to the next of n bytes: pass of them may be written,
// none means that strike comes first. A stall waits for changed.
type claim struct {
	pass    int
	strike  Strike
	changed <-chan struct{}
	at      time.Time // not before this
}

func (w *way) claim(n int) claim {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := claim{pass: n, changed: w.changed, at: time.Now()}
	if left := w.fault.After - w.since; left > 0 {
		c.pass = int(min(int64(n), left))
	} else if w.fault.Strike != Nothing {
		return w.hit(c)
	}
	if rate := w.fault.BytesPerSecond; rate > 0 {
		c.pass = min(c.pass, int(max(1, rate/100))) // a hundred steps a second
		if w.free.After(c.at) {
			c.at = w.free
		}
		w.free = c.at.Add(time.Duration(c.pass) * time.Second / time.Duration(rate))
	}
	w.since += int64(c.pass)
	if w.since == w.fault.After && w.fault.Strike == Nothing {
		close(w.struck)
	}
	return c
}

// hit strikes. What happens once is over with that; what lasts stays.
func (w *way) hit(c claim) claim {
	c.pass, c.strike = 0, w.fault.Strike
	select {
	case <-w.struck:
	default:
		close(w.struck)
	}
	if c.strike != Swallow && c.strike != Stall {
		w.fault.Strike = Nothing
	}
	return c
}
