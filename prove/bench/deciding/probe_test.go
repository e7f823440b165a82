package deciding

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"meridian/prove/bench"
)

func TestProbeBesideTheDefinition(t *testing.T) {
	r, err := RunProbe(t.Context(), ProbeOptions{Options: Options{Rounds: 3}, Vocabulary: 3000, Rows: 8, PeersDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range r.Rows {
		if row.Allocations > 0.2 { // the median: the runtime has its own, now and then
			t.Errorf("%s allocates %v times", row.What, row.Allocations)
		}
	}
	if len(r.Rows) != 4 || r.Rows[0].Beside != "the definition in float64" || r.Rows[0].Bound != nil {
		t.Errorf("%+v", r.Rows)
	}
	var text strings.Builder
	if err := r.WriteText(&text); err != nil || !strings.Contains(text.String(), "torch is absent: it is not in ") {
		t.Errorf("%v\n%s", err, text.String())
	}
}

// TestProbeBesideABrokenTorch: what stands in torch's place and does not work is
// an absence with its words, not a failure.
func TestProbeBesideABrokenTorch(t *testing.T) {
	python := filepath.Join(t.TempDir(), "vllm", "bin", "python")
	if err := os.MkdirAll(filepath.Dir(python), 0o755); err != nil {
		t.Fatal(err)
	}
	script := "#!/bin/sh\nread line\necho '{\"error\": \"no module named torch\"}'\ncat >/dev/null\n"
	if err := os.WriteFile(python, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	peers := filepath.Dir(filepath.Dir(filepath.Dir(python)))
	r, err := RunProbe(t.Context(), ProbeOptions{Options: Options{Rounds: 1}, Vocabulary: 64, Rows: 1, PeersDir: peers})
	if err != nil || len(r.Absent) != 1 || !strings.Contains(r.Absent[0].String(), "no module named torch") {
		t.Errorf("%v, %+v", err, r)
	}
}

func TestProbeRefuses(t *testing.T) {
	for _, o := range []ProbeOptions{{Vocabulary: 63, Rows: 1}, {Vocabulary: 64}, {Vocabulary: 64, Rows: 5000}, {Vocabulary: 1 << 22, Rows: 1}} {
		o.Rounds = 1
		if _, err := RunProbe(t.Context(), o); !errors.Is(err, bench.ErrOptions) {
			t.Errorf("%+v: %v", o, err)
		}
	}
}
