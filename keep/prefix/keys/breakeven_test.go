package keys_test

import (
	"testing"

	"pgregory.net/rapid"

	"meridian/keep/prefix/keys"
)

// Where fetches take a fixed time and some more for each token, the break-even is where
// that line meets the engine's.
func TestBreakEven(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		fixed, each := rapid.Float64Range(0, 5000).Draw(t, "fixed"), rapid.Float64Range(0.1, 50).Draw(t, "each")
		token := rapid.Float64Range(0.2, 500).Draw(t, "token")
		var b keys.BreakEven
		if !b.Worth(1, token) {
			t.Fatal("it says no before it has seen anything")
		}
		for i := range 40 {
			tokens := 64 * (1 + (i*7)%16)
			b.Fetched(tokens, fixed+each*float64(tokens))
		}
		for _, tokens := range []int{16, 64, 300, 1024, 5000} {
			fetched, computed := fixed+each*float64(tokens), token*float64(tokens)
			if fetched > 1.05*computed || fetched < 0.95*computed {
				worth := 0
				for range 16 {
					if b.Worth(tokens, token) {
						worth++
					}
				}
				if want := map[bool]int{true: 16, false: 1}[fetched < computed]; worth != want {
					t.Fatalf("%d tokens in %g µs, computed in %g: fetched %d times of 16", tokens, fetched, computed, worth)
				}
			}
		}
		if at := b.Tokens(token, 1<<20); at > 1 && at < 1<<20 && (b.Micros(at) > token*float64(at) || b.Micros(at-1) <= token*float64(at-1)) {
			t.Fatalf("the break-even is not at %d", at)
		}
	})
}

// Whatever was measured, a fetch of more tokens never is thought to take less, nor less
// than nothing; and an engine that does not know its speed fetches.
func TestBreakEvenOfAnything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var b keys.BreakEven
		for range rapid.IntRange(0, 20).Draw(t, "fetches") {
			b.Fetched(rapid.IntRange(1, 100000).Draw(t, "tokens"), rapid.Float64Range(1, 1e7).Draw(t, "micros"))
		}
		last := 0.0
		for _, tokens := range []int{1, 64, 1000, 100000} {
			micros := b.Micros(tokens)
			if micros < last-1e-6*last || micros < 0 {
				t.Fatalf("%d tokens take %g µs, fewer %g", tokens, micros, last)
			}
			if last = micros; !b.Worth(tokens, 0) {
				t.Fatal("it says no to an engine that said nothing")
			}
		}
	})
}
