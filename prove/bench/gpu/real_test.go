//go:build real

package gpu

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"meridian/internal/require"
	"meridian/move/cuda/cudatest"
	"meridian/move/mem/vram"
	"meridian/prove/bench"
)

// Contenders move what they are to, and matrices are multiplied beside transfers: here
// in host memory, which is all that differs on a GPU.
func TestRealContenders(t *testing.T) {
	for _, peer := range []string{"vllm", "nixl"} {
		if absence := bench.WithoutPython("../../../.peers", peer); absence != nil {
			require.Skip(t, peer, absence.Why)
		}
	}
	nixl, err := filepath.Glob("../../../.peers/nixl/lib/python*/site-packages")
	if err != nil || len(nixl) != 1 {
		t.Fatalf("%v, %v", nixl, err)
	}
	path, err := filepath.Abs(nixl[0])
	if err != nil {
		t.Fatal(err)
	}
	python, err := filepath.Abs(bench.Interpreter("../../../.peers", "vllm"))
	if err != nil {
		t.Fatal(err)
	}
	// NIXL's own name for itself asks for the CUDA that torch was built for.
	shim := t.TempDir()
	if err := errors.Join(os.Mkdir(shim+"/nixl", 0o755), os.WriteFile(shim+"/nixl/__init__.py", nil, 0o644),
		os.WriteFile(shim+"/nixl/_api.py", []byte("from nixl_cu12._api import nixl_agent, nixl_agent_config\n"), 0o644)); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PYTHONPATH", shim+":"+path)
	machine := cudatest.NewMachine(1, 1<<32)
	near, far := vram.NewPool(machine.Process()), vram.NewPool(machine.Process())
	t.Cleanup(func() {
		for _, p := range []*vram.Pool{near, far} {
			if err := p.Close(); err != nil {
				t.Error(err)
			}
		}
	})
	r, err := Run(t.Context(), Options{
		Blocks: []bench.Size{{Text: "16KiB", Bytes: 16 << 10}}, Total: bench.Size{Text: "1MiB", Bytes: 1 << 20}, Rounds: 1,
		near: near, far: far,
		Python: python, torchDevice: "cpu", matmulSize: 64, matmulPeriod: 100 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range r.Absent {
		t.Error(a)
	}
	measured := map[string]int{}
	for _, row := range r.Rows {
		if measured[row.Fabric]++; row.Median <= 0 {
			t.Errorf("%s: %v", row.Case, row.Figure)
		}
	}
	for _, p := range contenders {
		if want := len(p.cases(r.options)); measured[p.name] != want {
			t.Errorf("%d rows of %s, not %d", measured[p.name], p.name, want)
		}
	}
	if len(r.Matmuls) != 8 {
		t.Errorf("%d rows of a matmul loop", len(r.Matmuls))
	}
	for _, m := range r.Matmuls {
		if m.Tflops <= 0 || (m.Gbps > 0) == (m.Beside == "nothing") {
			t.Errorf("%+v", m)
		}
	}
}
