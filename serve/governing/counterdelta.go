package governing

// maxRise is by how much a total may rise with one step, more than an engine counts
// between two: beyond that it is not believed.
const maxRise = 1 << 10

// counterDelta is a number that an engine counts up. What it counted before
// its connection was for no governor, or for one that is gone; where it falls, the engine counts anew.
type counterDelta struct {
	known bool
	last  uint64
	here  int64 // by which it rose since the connection began
}

func (t *counterDelta) take(told uint64) {
	if t.known && told > t.last {
		t.here += int64(min(told-t.last, maxRise))
	}
	t.known, t.last = true, told
}
