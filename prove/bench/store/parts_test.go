package store

import (
	"errors"
	"testing"

	"meridian/prove/bench"
)

func TestParts(t *testing.T) {
	report, err := RunParts(t.Context(), PartsOptions{Options: bench.Options{Rounds: 2, Setting: bench.Setting{Version: "test"}}, Objects: 10_000, OwnCommand: smallRun(t).OwnCommand})
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range report.Rows {
		if row.Score.Median <= 0 || row.Bound == nil || row.Kept == nil {
			t.Errorf("%+v", row)
		}
	}
	if len(report.Rows) != 6 || report.Rows[0].Unit != "bytes an object" {
		t.Errorf("%+v", report.Rows)
	}
	_, err = RunParts(t.Context(), PartsOptions{Options: bench.Options{Rounds: 2}, Objects: 1})
	if !errors.Is(err, bench.ErrOptions) {
		t.Error(err)
	}
}
