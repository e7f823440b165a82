package sim

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"meridian/internal/mutant"
	"meridian/internal/require"
)

// caughtWithin is how many seeds it takes at most to catch each mutant, from seed
// 0. They are known bugs, compiled in by a build tag: the test of the test.
var caughtWithin = map[mutant.Name]int{
	mutant.NoEpochCheck:        50,
	mutant.AckEarly:            50,
	mutant.PartMiscounted:      50,
	mutant.CancelNotQuiet:      50,
	mutant.CancelDone:          50,
	mutant.DeadlineIgnored:     50,
	mutant.NotifyTwice:         50,
	mutant.NotifyEarly:         50,
	mutant.NoticeLost:          50,
	mutant.ReceiptsForgotten:   100,
	mutant.ChecksumIgnored:     100,
	mutant.StaleIncarnation:    500,
	mutant.ReferenceLeak:       50,
	mutant.FenceNotQuiet:       50,
	mutant.PreparedOutlives:    50,
	mutant.RepeatExecuted:      500,
	mutant.TouchedCalledNot:    200,
	mutant.AnswersForgotten:    50,
	mutant.AnswersKept:         50,
	mutant.GrantNotChecked:     50,
	mutant.GrantSpansIgnored:   50,
	mutant.GrantExpiryIgnored:  50,
	mutant.RevokeNotQuiet:      100,
	mutant.LostNotSubmitted:    50,
	mutant.DuplicateAckCounted: 100,
	mutant.DoneNotQuiet:        500,
	mutant.ReadKept:            3000,
	mutant.LoanKept:            50,
	mutant.LoanNotLookedAt:     500,
}

// TestMutants builds this package once with the bugs in it, and lets each of them
// try to hide.
func TestMutants(t *testing.T) {
	for _, name := range mutant.Names() {
		if caughtWithin[name] == 0 {
			t.Errorf("nothing says how soon %s is caught", name)
		}
	}
	overlay, err := mutant.Overlay("../..", t.TempDir(), mutant.Names()...)
	if err != nil {
		t.Fatal(err)
	}
	require.Reads(t, "caught_test.go") // which this build does not have
	binary := filepath.Join(t.TempDir(), "mutants")
	build := exec.Command("go", "test", "-c", "-tags", "mutant", "-overlay", overlay, "-o", binary, ".")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	t.Run("each", func(t *testing.T) {
		for name, seeds := range caughtWithin {
			t.Run(string(name), func(t *testing.T) {
				t.Parallel()
				if out, err := hide(t, binary, name, seeds); err != nil {
					t.Errorf("%s was not caught within %d seeds: %v\n%s", name, seeds, err, out)
				}
			})
		}
	})
	if out, err := hide(t, binary, "", 300); err == nil {
		t.Errorf("without a bug something was caught: %s", out)
	}
}

// hide runs the other build with one bug; it succeeds when the bug is caught.
func hide(t *testing.T, binary string, name mutant.Name, seeds int) ([]byte, error) {
	t.Helper()
	c := exec.Command(binary, "-test.run", "^TestCaught$", "-test.v")
	c.Env = append(os.Environ(), "MERIDIAN_MUTANT="+string(name), fmt.Sprintf("MERIDIAN_MUTANT_SEEDS=%d", seeds), fmt.Sprintf("GOMAXPROCS=%d", min(2, runtime.NumCPU())))
	return c.CombinedOutput()
}
