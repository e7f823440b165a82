package model

import (
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"meridian/kv"
)

// golden is what Hugging Face transformers computed with a model; see
// testdata/make_golden.py.
type golden struct {
	prompt, greedy []uint32
	rows           []int
	logits         [][]float32
}

func readGolden(t *testing.T, dir string) golden {
	t.Helper()
	f, err := openTensors(filepath.Join(dir, "golden.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	integers := func(name string) (all []uint32) {
		raw := make([]byte, f.tensors[name].bytes)
		if _, err := f.ReadAt(raw, f.tensors[name].begin); err != nil || len(raw) == 0 {
			t.Fatalf("%s: %v", name, err)
		}
		for i := 0; i < len(raw); i += 8 {
			all = append(all, uint32(binary.LittleEndian.Uint64(raw[i:])))
		}
		return all
	}
	g := golden{prompt: integers("prompt"), greedy: integers("greedy")}
	logits := f.tensors["logits"]
	for _, position := range integers("rows") {
		g.rows = append(g.rows, int(position))
		g.logits = append(g.logits, make([]float32, logits.shape[1]))
	}
	if err := f.read(logits, logits.shape[0], logits.shape[1], func(i int64) []float32 { return g.logits[i] }); err != nil {
		t.Fatal(err)
	}
	return g
}

// mostLikely is the first of the largest.
func mostLikely(logits []float32) uint32 {
	best := 0
	for i, v := range logits {
		if v > logits[best] {
			best = i
		}
	}
	return uint32(best)
}

// compareWithGolden computes what transformers computed: the text token by
// token for the logits, and from a chunked prompt on for the greedy tokens.
func compareWithGolden(t *testing.T, dir string) {
	m, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	g := readGolden(t, dir)
	if len(g.greedy) != 200 {
		t.Fatalf("%d greedy tokens, want 200", len(g.greedy))
	}
	cut := Cut{
		Parallelism: kv.Split(m.config.Layers, m.config.KVHeads, 2), Layout: layout(t, "LBHNC"), BlockTokens: 16, Blocks: 16,
	}
	text := slices.Concat(g.prompt, g.greedy)

	e := newEngine(t, m, cut)
	worst := 0.0
	for position, token := range text {
		logits := e.next(token)
		if at := slices.Index(g.rows, position); at >= 0 {
			for i, want := range g.logits[at] {
				worst = max(worst, math.Abs(float64(logits[i]-want)))
			}
		}
	}
	t.Logf("logits differ by %.1e at most", worst)
	if !(worst <= 1e-4) {
		t.Errorf("logits differ by %.2e, want 1e-4 at most", worst)
	}

	e = newEngine(t, m, cut)
	e.feed(g.prompt[:7], nil)
	logits := make([]float32, m.config.Vocab)
	e.feed(g.prompt[7:], logits)
	for i, want := range g.greedy {
		got := mostLikely(logits)
		if got != want {
			t.Fatalf("greedy token %d is %d, want %d", i, got, want)
		}
		logits = e.next(got)
	}
}

func goldenModels(t *testing.T, root string) []string {
	t.Helper()
	entries, err := os.ReadDir(root)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if len(names) < 4 {
		t.Fatalf("%s has only %v", root, names)
	}
	return names
}

func TestGolden(t *testing.T) {
	const root = "testdata/golden"
	for _, name := range goldenModels(t, root) {
		t.Run(name, func(t *testing.T) { compareWithGolden(t, filepath.Join(root, name)) })
	}
}

func TestGoldenTokens(t *testing.T) {
	m, err := Load("testdata/golden/llama-gqa-bf16")
	if err != nil {
		t.Fatal(err)
	}
	if bos := m.config.BOS; bos != 1 {
		t.Errorf("BOS is %d", bos)
	}
	if got := m.EOS(); !slices.Equal(got, []uint32{2, 3}) {
		t.Errorf("EOS is %v, want generation_config.json's", got)
	}
	if m.MaxContext() != 512 {
		t.Errorf("context is %d", m.MaxContext())
	}
}
