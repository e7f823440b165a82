package place

// Full is what is known of an engine that took no more requests: how many it ran then, and
// until when that is believed. It has room again as soon as it runs fewer; as others may fill
// and leave it too, it is also asked again after a while, later each time it refuses. The zero
// Full is of an engine that never refused. It is for one goroutine at a time.
type Full struct {
	running     int
	until, wait int64 // in ns
}

// Bounds of how long a refusal is believed, in ns.
const (
	leastFull = int64(1e9)
	mostFull  = int64(10e9)
)

// Refused takes in that an engine took no more while it ran so many, and for how long it says
// that this holds. Of refusals that come together the one with the fewest running counts: the
// others counted requests that were about to be refused themselves.
func (f *Full) Refused(running int, wait, now int64) {
	if now < f.until {
		f.running = min(f.running, running)
		return
	}
	wait = min(max(wait, leastFull), mostFull)
	if f.until > 0 && now-f.until < f.wait { // it was asked again, in vain
		wait = min(max(wait, 2*f.wait), mostFull)
	}
	*f = Full{running: running, until: now + wait, wait: wait}
}

// Is tells whether an engine that runs so many is believed to take no more.
func (f *Full) Is(running int, now int64) bool { return now < f.until && running >= f.running }
