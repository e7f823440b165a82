package handoff_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"meridian/internal/mutant"
)

// A simulation that finds nothing proves little: every known bug must be caught.
func TestMutantsAreCaught(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds the tests again")
	}
	overlay, err := mutant.Overlay(filepath.Join("..", "..", ".."), t.TempDir(), mutant.OfHandOffs()...)
	if err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(t.TempDir(), "mutant.test")
	if out, err := exec.Command("go", "test", "-overlay", overlay, "-c", "-o", binary, ".").CombinedOutput(); err != nil {
		t.Fatalf("building with bugs: %v\n%s", err, out)
	}
	for _, name := range mutant.OfHandOffs() {
		t.Run(string(name), func(t *testing.T) {
			run := exec.Command(binary, "-test.run", "^TestSimulation$", "-handoff.seeds", "2000")
			run.Env = append(os.Environ(), "MERIDIAN_MUTANT="+string(name))
			out, err := run.CombinedOutput()
			at := strings.Index(string(out), "seed ")
			if err == nil || at < 0 {
				t.Fatalf("2000 worlds did not show it: %v\n%.400s", err, out)
			}
			line, _, _ := strings.Cut(string(out[at:]), "\n")
			t.Log(line)
		})
	}
}
