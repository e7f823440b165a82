package storesim_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"meridian/internal/mutant"
)

// shownBy names, of the bugs that few worlds show, a world that does. The search
// begins there, and where that world shows nothing any more it goes through them all.
var shownBy = map[mutant.Name]uint64{
	mutant.OldMasterLocates: 953,
	mutant.LeaseFromLater:   368,
	mutant.LateClaimCounts:  358,
	mutant.LateDropObeyed:   314,
	mutant.TierGivenUp:      273,
	mutant.HoldIsEvicted:    145,
	mutant.FreesUnfetched:   96,
	mutant.ServesUnleased:   93,
	mutant.GivenForgotten:   53,
}

// A simulation that finds nothing proves little: every known bug must be caught.
func TestMutantsAreCaught(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds the tests again")
	}
	overlay, err := mutant.Overlay(filepath.Join("..", "..", ".."), t.TempDir(), mutant.OfStore()...)
	if err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(t.TempDir(), "mutant.test")
	if out, err := exec.Command("go", "test", "-overlay", overlay, "-c", "-o", binary, ".").CombinedOutput(); err != nil {
		t.Fatalf("building with bugs: %v\n%s", err, out)
	}
	for _, name := range mutant.OfStore() {
		t.Run(string(name), func(t *testing.T) {
			if world := shownBy[name]; world > 0 {
				if told, _ := caught(binary, name, world, 1); told != "" {
					t.Log(told)
					return
				}
				t.Logf("world %d does not show it any more: shownBy wants another", world)
			}
			told, out := caught(binary, name, 1, 2000)
			if told == "" {
				t.Fatalf("2000 worlds did not show it\n%.400s", out)
			}
			t.Log(told)
		})
	}
}

// caught runs worlds with one bug in them, until one shows it: what was told of that
// one, or "" with all that was said.
func caught(binary string, name mutant.Name, from, worlds uint64) (told, out string) {
	run := exec.Command(binary, "-test.run", "^TestSimulation$", "-store.from", fmt.Sprint(from), "-store.seeds", fmt.Sprint(worlds), "-store.tell", "0")
	run.Env = append(os.Environ(), "MERIDIAN_MUTANT="+string(name))
	said, err := run.CombinedOutput()
	at := strings.Index(string(said), "seed ")
	if err == nil || at < 0 {
		return "", fmt.Sprintf("%v: %s", err, said)
	}
	told, _, _ = strings.Cut(string(said[at:]), "\n")
	return told, string(said)
}
