package keys

// BreakEven tells whether an engine is faster with what it fetches than with what it
// computes: from how long fetches of it took, and from what it says a token costs it. The
// zero value has seen nothing, and says that everything is worth it.
//
//	time │        ╱ computed: a token's time × tokens
//	     │    ___╱__---- fetched: the same for any, and more for each token
//	     │---╱
//	     └──┴────────── tokens
//	     break-even
type BreakEven struct {
	// Sums over fetches, of which older ones count less: 1, tokens, time, tokens²,
	// tokens × time.
	n, x, y, xx, xy float64
	seen            int
	refused         int
}

const (
	// decay is how much less a fetch counts with each that comes after it.
	decay = 0.9
	// fewFetches is how many must have been seen before anything is refused.
	fewFetches = 4
	// explored is which of those that are not worth it is fetched all the same: else a
	// cell that got faster would never be noticed.
	explored = 16
)

// Fetched notes that a fetch of so many tokens took so long.
func (b *BreakEven) Fetched(tokens int, micros float64) {
	t := float64(tokens)
	b.n, b.x, b.y = decay*b.n+1, decay*b.x+t, decay*b.y+micros
	b.xx, b.xy = decay*b.xx+t*t, decay*b.xy+t*micros
	b.seen++
}

// Micros is how long a fetch of so many tokens is thought to take; 0 while that is not
// known.
func (b *BreakEven) Micros(tokens int) float64 {
	if b.seen < fewFetches {
		return 0
	}
	meanX, meanY := b.x/b.n, b.y/b.n
	slope := meanY / (2 * meanX) // where all were of one length: half of it is for the tokens
	if spread := b.xx/b.n - meanX*meanX; spread > 0.01*meanX*meanX {
		slope = (b.xy/b.n - meanX*meanY) / spread
	}
	slope = min(max(slope, 0), meanY/meanX) // no fetch takes less than nothing
	return meanY + slope*(float64(tokens)-meanX)
}

// Worth says whether so many tokens are better fetched, by an engine that computes one in
// such a time; 0 says that the engine does not know.
func (b *BreakEven) Worth(tokens int, tokenMicros float64) bool {
	if tokenMicros <= 0 || b.Micros(tokens) <= tokenMicros*float64(tokens) {
		return true
	}
	b.refused++
	return b.refused%explored == 0
}

// Tokens is from how many on it is worth it, up to a bound that is returned where it never
// is.
func (b *BreakEven) Tokens(tokenMicros float64, most int) int {
	if tokenMicros <= 0 {
		return 0
	}
	low, high := 0, most
	for low < high {
		if at := (low + high) / 2; b.Micros(at) <= tokenMicros*float64(at) {
			high = at
		} else {
			low = at + 1
		}
	}
	return low
}
