package transfer

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"meridian/prove/bench"
)

// What being watched costs is measured in a real cell: the page tells of the hand-offs,
// spans of them are sent, what arrives is compared, and nothing is left behind.
func TestObservedHandOffs(t *testing.T) {
	o := smallHandOff(t)
	o.Rounds, o.Round, o.Concurrent = 1, time.Second, []int{2}
	report, err := RunObserved(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if len(report.Rows) != 1 {
		t.Fatalf("%d rows", len(report.Rows))
	}
	row := report.Rows[0]
	if row.Seen.Frames < 2 || row.Seen.HandOffs == 0 || row.Seen.Batches == 0 || row.Seen.SpanBytes == 0 {
		t.Errorf("seen: %+v", row.Seen)
	}
	if row.Watched.Median <= 0 || row.Unwatched.Median <= 0 || row.Ratio.Median <= 0 || row.CPURatio.Median <= 0 || row.PerSecond <= 0 || row.Bytes == 0 {
		t.Errorf("%+v", row)
	}
	if s := report.Scrape; s.Series != scrapedSeries || s.P50Ms <= 0 || s.P99Ms < s.P50Ms || s.CPUMs <= 0 || s.Bytes == 0 {
		t.Errorf("scrape: %+v", s)
	}
	if left, err := os.ReadDir(o.Dir); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	var text, table bytes.Buffer
	if err := errors.Join(report.WriteJSON(&text), report.WriteText(&table)); err != nil {
		t.Fatal(err)
	}
	var file struct {
		Rows   []map[string]any
		Scrape map[string]any
	}
	if err := json.Unmarshal(text.Bytes(), &file); err != nil || file.Rows[0]["ratio"] == nil || file.Scrape["p99_ms"] == nil {
		t.Errorf("%v: %s", err, text.String())
	}
	if !strings.Contains(table.String(), "a scrape of 10000 series") || !strings.Contains(table.String(), "\ntcp ") {
		t.Error(table.String())
	}
}

// The interval is the narrowest of ranks that a coin's heads stay within 95 of 100 times.
func TestRatio(t *testing.T) {
	for n, want := range map[int]Ratio{
		1:  {1, 1, 1},
		5:  {3, 1, 5},
		6:  {3.5, 1, 6},
		9:  {5, 2, 8},
		40: {20.5, 14, 27},
	} {
		var rounds []float64
		for i := n; i > 0; i-- {
			rounds = append(rounds, float64(i))
		}
		if got := newRatio(rounds); got != want {
			t.Errorf("%d rounds: %v, not %v", n, got, want)
		}
	}
}

// A run in which the watcher saw nothing says nothing about being watched.
func TestObservedDemandsThatSomethingWasSeen(t *testing.T) {
	turns := [2][]turn{{{gbps: 1, cpu: 1, handOffs: 10}}, {{gbps: 1, cpu: 1, handOffs: 10}}}
	for name, seen := range map[string]Seen{
		"no page":  {Batches: 1, SpanBytes: 1},
		"too few":  {Frames: 1, HandOffs: 4, Batches: 1, SpanBytes: 1},
		"no spans": {Frames: 1, HandOffs: 10},
	} {
		row := ObservedRow{Bytes: 1, Seen: seen}
		if err := row.sum(turns); !errors.Is(err, errUnseen) {
			t.Errorf("%s: %v", name, err)
		}
	}
	row := ObservedRow{Bytes: 1, Seen: Seen{Frames: 1, HandOffs: 10, Batches: 1, SpanBytes: 1}}
	if err := row.sum(turns); err != nil {
		t.Error(err)
	}
	o := smallHandOff(t)
	o.Round = time.Millisecond
	if _, err := RunObserved(t.Context(), o); !errors.Is(err, bench.ErrOptions) {
		t.Errorf("rounds of a millisecond: %v", err)
	}
}
