package doorserver

import (
	"testing"

	"meridian/serve/door"
)

// Every code that is answered is one of those that programs may look at.
func TestCodesAreTheDoors(t *testing.T) {
	known := make(map[string]bool)
	for _, c := range door.Codes {
		known[c.Code] = true
	}
	for _, c := range codes {
		if !known[c.code] {
			t.Errorf("%s, of %v, is not among door.Codes", c.code, c.err)
		}
	}
}
