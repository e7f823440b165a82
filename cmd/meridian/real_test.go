//go:build real

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"meridian/internal/require"
)

// TestRealShells loads the completion scripts into real shells and asks them,
// as a person pressing Tab would, what may follow "--tier thi" and "--tier=thi".
func TestRealShells(t *testing.T) {
	bin := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(self, filepath.Join(bin, "meridian")); err != nil {
		t.Fatal(err)
	}
	bare, flagged := []string{"think_active", "think_complete"}, []string{"--tier=think_active", "--tier=think_complete"}
	const bash = "source <(meridian completion bash)\n_meridian_asked() { COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _meridian; printf '%s\\n' \"${COMPREPLY[@]}\"; }\n"
	const zsh = "compdef() { :; }; compadd() { shift; printf '%s\\n' \"$@\"; }; _files() { :; }\nsource <(meridian completion zsh)\n"
	const fish = "meridian completion fish | source\n"
	for _, c := range []struct {
		shell, script string
		want          []string
	}{
		{"bash", bash + "COMP_WORDS=(meridian frame encode --tier thi); _meridian_asked", bare},
		{"bash", bash + "COMP_WORDS=(meridian frame encode --tier = thi); _meridian_asked", bare},
		{"zsh", zsh + "words=(meridian frame encode --tier thi); CURRENT=5; _meridian", bare},
		{"zsh", zsh + "words=(meridian frame encode --tier=thi); CURRENT=4; _meridian", flagged},
		{"fish", fish + "complete -C 'meridian frame encode --tier thi'", bare},
		{"fish", fish + "complete -C 'meridian frame encode --tier=thi'", flagged},
	} {
		t.Run(c.shell, func(t *testing.T) {
			command := exec.Command(require.Program(t, c.shell), "-c", c.script)
			command.Dir = t.TempDir() // fish offers files, too
			command.Env = append(plainEnvironment(), "PATH="+bin+":"+os.Getenv("PATH"), "HOME="+command.Dir)
			out, err := command.CombinedOutput()
			got := strings.Fields(string(out))
			slices.Sort(got) // each shell has its own idea of order
			if err != nil || !slices.Equal(got, c.want) {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
}
