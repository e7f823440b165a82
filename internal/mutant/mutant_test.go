package mutant

import (
	"os"
	"testing"
)

func TestNames(t *testing.T) {
	seen := make(map[Name]bool)
	for _, n := range Names() {
		if seen[n] || n == "" {
			t.Errorf("%q is listed twice, or has no name", n)
		}
		seen[n] = true
		if Is(n) != (os.Getenv("MERIDIAN_MUTANT") == string(n)) {
			t.Errorf("this build has %s: %t", n, Is(n))
		}
	}
	if len(seen) < 20 {
		t.Errorf("only %d bugs are listed", len(seen))
	}
}
