//go:build real

package model

import (
	"bytes"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"meridian/internal/require"
)

// TestRealTransformers has Hugging Face transformers compute anew: what is
// committed is what it says, and so is what we compute with its models.
func TestRealTransformers(t *testing.T) {
	python, err := filepath.Abs("../../.peers/vllm/bin/python")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(filepath.Dir(python), "../installed")); err != nil {
		require.Skip(t, "vllm", "transformers comes with it; to have it: make vllm")
	}
	fresh := t.TempDir()
	script := exec.CommandContext(t.Context(), python, "testdata/make_golden.py", fresh)
	script.Env = append(os.Environ(), "HF_HUB_OFFLINE=1")
	if out, err := script.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	const committed = "testdata/golden"
	names := goldenModels(t, fresh)
	if want := goldenModels(t, committed); !slices.Equal(names, want) {
		t.Fatalf("the script makes %v, committed are %v", names, want)
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			compareFiles(t, filepath.Join(fresh, name), filepath.Join(committed, name))
			compareGoldens(t, readGolden(t, filepath.Join(fresh, name)), readGolden(t, filepath.Join(committed, name)))
			compareWithGolden(t, filepath.Join(fresh, name))
		})
	}
}

// compareFiles wants equal models. Golden values may differ in their last bits:
// libraries choose their loops by the processor they find.
func compareFiles(t *testing.T, fresh, committed string) {
	entries, err := os.ReadDir(fresh)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		got, err := os.ReadFile(filepath.Join(fresh, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		want, err := os.ReadFile(filepath.Join(committed, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		if e.Name() != "golden.safetensors" && !bytes.Equal(got, want) {
			t.Errorf("%s is not what is committed", e.Name())
		}
	}
}

func compareGoldens(t *testing.T, fresh, committed golden) {
	if !slices.Equal(fresh.prompt, committed.prompt) || !slices.Equal(fresh.greedy, committed.greedy) || !slices.Equal(fresh.rows, committed.rows) {
		t.Error("tokens are not those that are committed")
	}
	for i := range fresh.logits {
		for k, v := range fresh.logits[i] {
			if math.Abs(float64(v-committed.logits[i][k])) > 1e-4 {
				t.Fatalf("logit %d after position %d is %v, committed is %v", k, fresh.rows[i], v, committed.logits[i][k])
			}
		}
	}
}

// TestRealNothingFuses looks at the code for a machine that can fuse a
// multiplication with an addition: none of ours may be.
func TestRealNothingFuses(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "model.test")
	build := exec.CommandContext(t.Context(), "go", "test", "-c", "-o", binary, ".")
	build.Env = append(os.Environ(), "GOARCH=arm64", "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	code, err := exec.CommandContext(t.Context(), "go", "tool", "objdump", "-s", `^meridian/engine/model`, binary).Output()
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(code), "FMULS") {
		t.Fatal("no multiplication was found: this test looks at the wrong code")
	}
	fused := regexp.MustCompile(`\bFN?M(ADD|SUB)[SD]\b`)
	for line := range strings.Lines(string(code)) {
		if fused.MatchString(line) && !strings.Contains(line, "_test.go:") {
			t.Errorf("fused: %s", strings.TrimSpace(line))
		}
	}
}
