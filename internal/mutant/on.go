//go:build mutant

package mutant

import (
	"os"
	"slices"
)

var chosen = choose(Name(os.Getenv("MERIDIAN_MUTANT")))

func choose(n Name) Name {
	if n != "" && !slices.Contains(names, n) && !slices.Contains(ofHandOffs, n) {
		panic("mutant: MERIDIAN_MUTANT names no bug: " + string(n))
	}
	return n
}

// Is reports whether this is the bug that was chosen.
func Is(n Name) bool { return n == chosen }
