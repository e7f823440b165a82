//go:build real

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"meridian/internal/need"
)

// TestRealShells loads the completion scripts into real shells and asks them,
// as a person pressing Tab would, what may follow "meridian frame encode --tier thi".
func TestRealShells(t *testing.T) {
	bin := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(self, filepath.Join(bin, "meridian")); err != nil {
		t.Fatal(err)
	}
	for shell, script := range map[string]string{
		"bash": `source <(meridian completion bash)
COMP_WORDS=(meridian frame encode --tier thi); COMP_CWORD=4
_meridian; printf '%s\n' "${COMPREPLY[@]}"`,
		"zsh": `compdef() { :; }; compadd() { shift; printf '%s\n' "$@"; }; _files() { :; }
source <(meridian completion zsh)
words=(meridian frame encode --tier thi); CURRENT=5
_meridian`,
		"fish": `meridian completion fish | source
complete -C 'meridian frame encode --tier thi'`,
	} {
		t.Run(shell, func(t *testing.T) {
			command := exec.Command(need.Program(t, shell), "-c", script)
			command.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "HOME="+t.TempDir())
			out, err := command.CombinedOutput()
			got := strings.Fields(string(out))
			slices.Sort(got) // each shell has its own idea of order
			if err != nil || !slices.Equal(got, []string{"think_active", "think_complete"}) {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
}
