package dash

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"
)

// Frame is what watchers are told each second.
type Frame struct {
	Number uint64  `json:"n"`
	At     int64   `json:"at"` // ms since 1970
	Rates  Rates   `json:"rates"`
	Events []Event `json:"events,omitempty"`
	View
}

// start is what who comes new is told: what is remembered, and the frame of the moment.
type start struct {
	Boot     string         `json:"boot"`
	Now      Frame          `json:"now"`
	History  []historyPoint `json:"history"`
	Requests []Request      `json:"requests"`
	HandOffs []HandOff      `json:"handoffs"`
	Events   []Event        `json:"events"`
}

// historyPoint is what charts need of a frame.
type historyPoint struct {
	At    int64 `json:"at"`
	Rates Rates `json:"rates"`
}

// Bounds of what is remembered for watchers, and of what one frame tells.
const (
	keptFrames   = 300 // five minutes; as lines, for who resumes
	keptRows     = 300
	keptEvents   = 200
	maxFrameRows = 200
)

// feed makes frames while a browser watches, and keeps the last ones.
type feed struct {
	cell     Cell
	boot     string
	interval time.Duration
	linger   time.Duration
	life     context.Context
	now      func() time.Time

	mu       sync.Mutex // protects the rest
	watchers int
	running  bool // the goroutine that looks
	closed   bool // nothing is looked at any more
	left     time.Time
	wait     sync.WaitGroup

	number   uint64   // of the next frame
	lines    [][]byte // the last frames, oldest first, the last of them number-1
	history  []historyPoint
	requests []Request
	handOffs []HandOff
	events   []Event
	last     *Frame
	lastAt   time.Time
	changed  chan struct{} // closed by the next frame
}

// keep appends within a bound.
func keep[T any](all []T, most int, more ...T) []T {
	all = append(all, more...)
	if len(all) > most {
		all = append(all[:0:0], all[len(all)-most:]...)
	}
	return all
}

// watch begins to look, if no other browser has begun it.
func (f *feed) watch() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.watchers++
	if !f.running && !f.closed {
		f.running = true
		f.wait.Go(f.run)
	}
}

func (f *feed) leave() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.watchers--
	f.left = f.now()
}

// close waits until nothing is looked at; the feed's life is over.
func (f *feed) close() {
	f.mu.Lock()
	f.closed = true
	f.mu.Unlock()
	f.wait.Wait()
}

// run looks until no browser has watched for a while: being watched costs the cell
// something, not being watched nothing.
func (f *feed) run() {
	ticks := time.NewTicker(f.interval)
	defer ticks.Stop()
	for {
		view := f.cell.Look(f.life)
		if f.life.Err() != nil || !f.add(view) {
			return
		}
		select {
		case <-ticks.C:
		case <-f.life.Done():
			return
		}
	}
}

// add makes a frame of a view. It returns false when no browser watches any more.
func (f *feed) add(view View) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	at := f.now()
	frame := Frame{Number: f.number, At: at.UnixMilli(), View: view}
	if f.last != nil {
		frame.Rates = ratesOf(&f.last.View, &view, at.Sub(f.lastAt))
		frame.Events = changes(&f.last.View, &view, at)
	} else {
		frame.Rates = Rates{P50: map[string]float64{}, P99: map[string]float64{}}
		frame.Events = troubles(&view, at)
	}
	f.requests, f.handOffs = keep(f.requests, keptRows, view.Requests...), keep(f.handOffs, keptRows, view.HandOffs...)
	if n := len(frame.Requests) - maxFrameRows; n > 0 {
		frame.Requests, frame.LeftOut.Requests = frame.Requests[n:], frame.LeftOut.Requests+uint64(n)
	}
	if n := len(frame.HandOffs) - maxFrameRows; n > 0 {
		frame.HandOffs, frame.LeftOut.HandOffs = frame.HandOffs[n:], frame.LeftOut.HandOffs+uint64(n)
	}
	if n := len(frame.Events) - keptEvents; n > 0 {
		frame.Events = frame.Events[n:]
	}
	f.events = keep(f.events, keptEvents, frame.Events...)
	f.history = keep(f.history, keptFrames, historyPoint{frame.At, frame.Rates})
	line, err := json.Marshal(frame)
	if err != nil {
		panic(err) // plain values, and no rate is infinite
	}
	f.lines = keep(f.lines, keptFrames, line)
	f.last, f.lastAt = &frame, at
	f.number++
	close(f.changed)
	f.changed = make(chan struct{})
	if f.watchers == 0 && at.Sub(f.left) > f.linger {
		f.running = false
		f.last = nil // what happened meanwhile did not happen within a second
		return false
	}
	return true
}

// cursor is where a watcher is in the feed.
type cursor struct {
	boot string
	next uint64
}

func (c cursor) String() string { return fmt.Sprintf("%s.%d", c.boot, c.next) }

// read returns the events after a cursor, as a watcher is sent them; where none has
// come yet, what tells of the next. A cursor of another boot, or of frames that are
// forgotten, starts anew.
func (f *feed) read(c cursor) (events []byte, next cursor, wait <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	oldest := f.number - uint64(len(f.lines))
	if c.boot == f.boot && c.next >= oldest && c.next <= f.number {
		if c.next == f.number {
			return nil, c, f.changed
		}
		var b bytes.Buffer
		for n := c.next; n < f.number; n++ {
			writeEvent(&b, "frame", cursor{f.boot, n + 1}, f.lines[n-oldest])
		}
		return b.Bytes(), cursor{f.boot, f.number}, nil
	}
	if f.last == nil {
		return nil, c, f.changed
	}
	line, err := json.Marshal(start{Boot: f.boot, Now: *f.last, History: f.history, Requests: f.requests, HandOffs: f.handOffs, Events: f.events})
	if err != nil {
		panic(err) // plain values
	}
	var b bytes.Buffer
	next = cursor{f.boot, f.number}
	writeEvent(&b, "start", next, line)
	return b.Bytes(), next, nil
}

// writeEvent writes one server-sent event. JSON has no line ends in it.
func writeEvent(b *bytes.Buffer, name string, id cursor, data []byte) {
	fmt.Fprintf(b, "event: %s\nid: %s\ndata: %s\n\n", name, id, data)
}
