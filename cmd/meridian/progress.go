package main

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// progress draws a bar on a terminal, and nothing anywhere else.
type progress struct {
	w     io.Writer
	name  string
	total uint64
	start time.Time
	drawn bool
}

func newProgress(w io.Writer, name string, total uint64) *progress {
	if !onTerminal(w) {
		w = nil
	}
	return &progress{w: w, name: name, total: total, start: time.Now()}
}

const barWidth = 30

// set draws how much is done, as far as a peer's word can be true.
func (p *progress) set(done uint64) {
	if p.w == nil {
		return
	}
	done = min(done, p.total)
	p.drawn = true
	share := float64(done) / float64(p.total)
	filled := int(barWidth * share)
	rate := float64(done) / time.Since(p.start).Seconds() / 1e6
	fmt.Fprintf(p.w, "\r%s [%s%s] %3d%% %6.0f MB/s", p.name, strings.Repeat("█", filled), strings.Repeat("·", barWidth-filled), int(100*share), rate)
}

func (p *progress) finish() {
	if p.drawn {
		fmt.Fprintln(p.w)
	}
	p.drawn = false
}

// waiting tells on a terminal what is waited for, once that takes a second, and
// nothing anywhere else.
type waiting struct {
	over, quiet chan struct{}
}

func newWaiting(w io.Writer, what string) *waiting {
	a := &waiting{over: make(chan struct{}), quiet: make(chan struct{})}
	if !onTerminal(w) {
		close(a.quiet)
		return a
	}
	go a.draw(w, what, waitingAfter)
	return a
}

const (
	waitingAfter = time.Second
	waitingPause = 200 * time.Millisecond
)

func (a *waiting) draw(w io.Writer, what string, pause time.Duration) {
	defer close(a.quiet)
	start := time.Now()
	for step := 0; ; step++ {
		select {
		case <-a.over:
			if step > 0 {
				fmt.Fprint(w, "\r\x1b[K")
			}
			return
		case <-time.After(pause):
		}
		pause = waitingPause
		at := step % barWidth
		fmt.Fprintf(w, "\r%s [%s█%s] %.0f s", what, strings.Repeat("·", at), strings.Repeat("·", barWidth-1-at), time.Since(start).Seconds())
	}
}

// stop ends it, and clears the line.
func (a *waiting) stop() {
	close(a.over)
	<-a.quiet
}
