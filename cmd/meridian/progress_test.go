package main

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// How far a peer is, the peer says.
func TestProgressIsNeverMoreThanAll(t *testing.T) {
	var out strings.Builder
	p := &progress{w: &out, name: "f", total: 10, start: time.Now().Add(-time.Second)}
	for _, done := range []uint64{0, 5, 10, 11, 1<<64 - 1} {
		p.set(done)
	}
	if text := out.String(); strings.Count(text, "100%") != 3 || !strings.Contains(text, " 50%") {
		t.Errorf("%q", text)
	}
}

// What takes a second is told, and leaves no trace when it is over.
func TestWaitingTellsAfterASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		a := &waiting{over: make(chan struct{}), quiet: make(chan struct{})}
		go a.draw(&out, "joining the cell", time.Millisecond)
		time.Sleep(100 * time.Millisecond)
		a.stop()
		if text := out.String(); !strings.HasPrefix(text, "\rjoining the cell [█") || !strings.HasSuffix(text, "\r\x1b[K") {
			t.Errorf("%q", text)
		}
		out.Reset()
		a = &waiting{over: make(chan struct{}), quiet: make(chan struct{})}
		go a.draw(&out, "joining the cell", time.Hour)
		a.stop()
		if text := out.String(); text != "" {
			t.Errorf("%q", text)
		}
	})
}
