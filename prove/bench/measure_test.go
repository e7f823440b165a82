package bench

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"meridian/internal/rounds"
)

func TestBoundsAndRatios(t *testing.T) {
	took := func(d time.Duration) func() (rounds.Lap, error) {
		return func() (rounds.Lap, error) { return rounds.Lap{Operations: 1000, Took: d}, nil }
	}
	r, err := Measure(t.Context(), Options{Rounds: 3}, []rounds.Task{
		{What: "kept", Bound: 10, Ours: took(10 * time.Microsecond), Beside: "slow", Theirs: took(40 * time.Microsecond)},
		{What: "missed", Bound: 9, Ours: took(10 * time.Microsecond)},
		{What: "fast enough", PerSecond: true, Bound: 100, Ours: took(10 * time.Microsecond)},
		{What: "too slow", PerSecond: true, Bound: 101, Ours: took(10 * time.Microsecond)},
	})
	if err != nil {
		t.Fatal(err)
	}
	for i, kept := range []bool{true, false, true, false} {
		if *r.Rows[i].Kept != kept {
			t.Errorf("%s: kept %v", r.Rows[i].What, *r.Rows[i].Kept)
		}
	}
	if r.Rows[0].Score.Median != 10 || r.Rows[0].Ratio.Median != 4 || r.Rows[2].Score.Median != 100 || r.Rows[1].Ratio != nil {
		t.Errorf("%+v", r.Rows)
	}
	var text strings.Builder
	if err := r.WriteText(&text); err != nil || !strings.Contains(text.String(), "9 missed") {
		t.Errorf("%v\n%s", err, text.String())
	}
}

func TestMeasureRefuses(t *testing.T) {
	ours := func() (rounds.Lap, error) { return rounds.Lap{}, nil }
	if _, err := Measure(t.Context(), Options{}, nil); !errors.Is(err, ErrOptions) {
		t.Error("no rounds:", err)
	}
	if _, err := Measure(t.Context(), Options{Rounds: 1}, []rounds.Task{{Ours: ours}}); !errors.Is(err, ErrOptions) {
		t.Error("a lap of nothing:", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Measure(ctx, Options{Rounds: 1}, []rounds.Task{{Ours: ours}}); !errors.Is(err, context.Canceled) {
		t.Error("a run that was stopped:", err)
	}
}
