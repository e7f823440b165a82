package history

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"meridian/move/transceiver/handoff"
)

// An engine that has no use for what it found gives it back, as often as it asks: at the owner
// that is one event for who looks closely. What went wrong is a warning as before.
func TestUnusedOfferIsNoWarning(t *testing.T) {
	for _, c := range []struct {
		record handoff.Record
		says   string
	}{
		{handoff.Record{OfStore: true, Unused: true, Problem: "handoff: cancelled"}, "level=DEBUG msg=\"an offer was given back before it was taken\""},
		{handoff.Record{OfStore: true, Problem: "handoff: cancelled"}, "level=WARN msg=\"hand-off ended\""},
		{handoff.Record{}, "level=INFO msg=\"hand-off ended\""},
	} {
		var log bytes.Buffer
		r, err := Open(Options{Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))})
		if err != nil {
			t.Fatal(err)
		}
		r.HandOffEnded(&c.record)
		if text := log.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, c.says) || !strings.Contains(text, "audit=true") {
			t.Errorf("%+v: %s", c.record, text)
		}
	}
}
