package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"meridian/internal/require"
)

// plainEnvironment is the environment without settings of the person who runs the tests.
func plainEnvironment() []string {
	return slices.DeleteFunc(os.Environ(), func(entry string) bool { return strings.HasPrefix(entry, "MERIDIAN_") })
}

// TestReadmeTour types what the README's console blocks show, in order, and
// demands what they promise. "…" stands for anything to the end of the line.
func TestReadmeTour(t *testing.T) {
	bash := require.Program(t, "bash")
	repository, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile(filepath.Join(repository, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	// testscript.Main makes this test binary act as the command it is named after.
	if err := os.Symlink(self, filepath.Join(bin, "meridian")); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	steps, moved := 0, false
	for _, block := range regexp.MustCompile("(?s)```console\n(.*?)```").FindAllSubmatch(readme, -1) {
		for _, step := range strings.Split("\n"+string(block[1]), "\n$ ")[1:] {
			typed, promised, _ := strings.Cut(step, "\n")
			moved = moved || typed == `cd "$(mktemp -d)"`
			if strings.HasPrefix(typed, "make ") || strings.HasPrefix(typed, "export PATH=") || strings.HasPrefix(typed, "cd ") {
				continue // the test has its own binary and its own directory
			}
			if !moved {
				t.Errorf("$ %s\nis typed in the repository, and leaves its files there", typed)
			}
			steps++
			command := exec.Command(bash, "-c", typed)
			command.Dir = dir
			command.Env = append(plainEnvironment(), "PATH="+bin+":"+os.Getenv("PATH"), "HOME="+dir)
			out, _ := command.CombinedOutput() // some steps are meant to fail
			pattern := strings.ReplaceAll(regexp.QuoteMeta(strings.TrimSpace(promised)), "…", "[^\n]*")
			if !regexp.MustCompile("^" + pattern + "$").MatchString(strings.TrimSpace(string(out))) {
				t.Errorf("$ %s\nprints\n%s\nREADME.md promises\n%s", typed, out, promised)
			}
		}
	}
	if steps < 8 {
		t.Errorf("only %d steps were found in README.md", steps)
	}
}
