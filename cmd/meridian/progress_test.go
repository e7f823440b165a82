package main

import (
	"strings"
	"testing"
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
