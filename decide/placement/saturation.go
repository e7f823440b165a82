package placement

// Saturation is what is known of an engine that took no more requests: how many it ran then, and
// until when that is believed. It has room again as soon as it runs fewer; as others may fill
// and leave it too, it is also asked again after a while, later each time it refuses, or when it
// says itself that it has room. The zero Full is of an engine that never refused. It is for one
// goroutine at a time.
type Saturation struct {
	running     int
	until, wait int64 // in ns
	told        bool  // running is what it ran and had room for, by its own word
	vain        int64 // when it last refused though it had said so, in ns
}

// Bounds of how long a refusal is believed, in ns.
const (
	leastFull = int64(1e9)
	mostFull  = int64(10e9)
)

// vainRest is for how long an engine's word that it has room is not taken, in ns, when it has
// refused in spite of it: others were there first, or it is never true.
const vainRest = int64(1e9)

// Refused takes in that an engine took no more while it ran so many, and for how long it says
// that this holds. Of refusals that come together the one with the fewest running counts: the
// others counted requests that were about to be refused themselves.
func (f *Saturation) Refused(running int, wait, now int64) {
	if now < f.until {
		if f.told && running < f.running {
			f.told, f.vain = false, now
		}
		f.running = min(f.running, running)
		return
	}
	wait = min(max(wait, leastFull), mostFull)
	if f.until > 0 && now-f.until < f.wait { // it was asked again, in vain
		wait = min(max(wait, 2*f.wait), mostFull)
	}
	*f = Saturation{running: running, until: now + wait, wait: wait, vain: f.vain}
}

// HasRoom takes in that an engine which runs so many says that it would begin so many more: it is
// asked until it runs them all.
func (f *Saturation) HasRoom(running, room int, now int64) {
	if now < f.until && room > 0 && running+room > f.running && (f.vain == 0 || now-f.vain >= vainRest) {
		f.running, f.told = running+room, true
	}
}

// Is tells whether an engine that runs so many is believed to take no more.
func (f *Saturation) Is(running int, now int64) bool { return now < f.until && running >= f.running }
