package gpu

import (
	"bytes"
	"strings"
	"testing"

	"meridian/move/cuda/cudatest"
	"meridian/move/mem/vram"
	"meridian/prove/bench"
)

// Every row is measured, on a GPU made of host memory, and who cannot be measured
// beside them is named.
func TestRunOnAModel(t *testing.T) {
	machine := cudatest.NewMachine(1, 1<<32)
	near, far := vram.NewPool(machine.Process()), vram.NewPool(machine.Process())
	t.Cleanup(func() {
		for _, p := range []*vram.Pool{near, far} {
			if err := p.Close(); err != nil {
				t.Error(err)
			}
		}
		if machine.Taken(0) != 0 {
			t.Errorf("%d bytes are still taken", machine.Taken(0))
		}
	})
	r, err := Run(t.Context(), Options{
		Blocks: []bench.Size{{Text: "16KiB", Bytes: 16 << 10}}, Total: bench.Size{Text: "1MiB", Bytes: 1 << 20}, Rounds: 1,
		near: near, far: far, Python: "/nowhere/python3",
	})
	if err != nil {
		t.Fatal(err)
	}
	var text, rows bytes.Buffer
	if err := r.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	if err := r.WriteJSON(&rows); err != nil {
		t.Fatal(err)
	}
	absent := len(contenders) + 1
	if want := 4 + len(r.options.cases()) + 1; strings.Count(rows.String(), "\n") != want+absent || len(r.Rows) != want-5 {
		t.Errorf("%d rows, not %d:\n%s", strings.Count(rows.String(), "\n"), want, text.String())
	}
	if strings.Count(text.String(), " is absent: /nowhere/python3: ") != absent || strings.Count(rows.String(), `"absent":`) != absent {
		t.Errorf("the report does not say who is absent:\n%s", text.String())
	}
	for _, row := range r.Rows {
		if row.Median <= 0 {
			t.Errorf("%s: %v", row.Case, row.Figure)
		}
	}
	if _, err := Run(t.Context(), Options{}); err == nil {
		t.Error("nothing was measured, and that is fine")
	}
}
