package host

import (
	"bytes"
	"fmt"
	"sync"

	"meridian/fabric"
	"meridian/kv"
)

// job is the copying of one transfer: from what a peer has lent to memory of
// our own. Several hands may work on it at a time.
type job struct {
	id       kv.ID
	grant    kv.ID // of a write
	shelf    *shelf
	loans    []*loan // of the source, by part
	write    flag    // the peer's flag of the whole transfer; none for a read
	to       *fabric.Bound
	bytes    uint64
	compare  bool
	begin    func() bool // called once, before the first byte; false stops the job
	ended    func(error) // called once, when no hand is at work any more
	beginner sync.Once

	mu         sync.Mutex // protects the rest up to err
	fromWalk   fabric.Walk
	toWalk     fabric.Walk
	unfinished int // quanta
	err        error

	placing sync.RWMutex // read-held while bytes are placed; protects stopped
	stopped bool
}

const (
	// pieceBytes are taken under one pin.
	pieceBytes = 64 << 10
	// stepBytes stay in a core's first cache, on both sides, from the copy to the
	// comparison.
	stepBytes = 8 << 10
	// quantum is what a hand copies before it looks for another job.
	quantum = 1 << 20
)

// cut is some contiguous bytes on both sides.
type cut struct {
	from, to fabric.Cut
}

// maxCuts bounds a piece of many small ones.
const maxCuts = 512

func (j *job) quanta() int { return int(max(1, (j.bytes+quantum-1)/quantum)) }

// quiet stops the job. When it returns no hand writes to the destination.
func (j *job) quiet() {
	j.placing.Lock()
	j.stopped = true
	j.placing.Unlock()
}

func (j *job) isStopped() bool {
	j.placing.RLock()
	defer j.placing.RUnlock()
	return j.stopped
}

// work copies a quantum.
func (j *job) work(h hand, cuts []cut) {
	j.beginner.Do(func() {
		if j.begin != nil && !j.isStopped() && !j.begin() {
			j.quiet()
		}
	})
	for done := uint64(0); done < quantum; {
		var n uint64
		if cuts, n = j.next(cuts[:0]); n == 0 {
			break
		}
		err := j.piece(h, cuts)
		h.unpin()
		if err != nil {
			j.fail(err)
			break
		}
		done += n
	}
	j.retire(1)
}

// next hands out a piece.
func (j *job) next(cuts []cut) ([]cut, uint64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.err != nil {
		return cuts, 0
	}
	taken := uint64(0)
	for taken < pieceBytes && len(cuts) < maxCuts {
		from := j.fromWalk.Next(pieceBytes - taken)
		if from.Length == 0 {
			break
		}
		taken += from.Length
		for from.Length > 0 {
			to := j.toWalk.Next(from.Length)
			cuts = append(cuts, cut{fabric.Cut{Part: from.Part, Offset: from.Offset, Length: to.Length}, to})
			from.Offset += to.Length
			from.Length -= to.Length
		}
	}
	return cuts, taken
}

// piece takes and places a piece, unless somebody wants quiet.
func (j *job) piece(h hand, cuts []cut) error {
	j.placing.RLock()
	defer j.placing.RUnlock()
	if j.stopped {
		return fabric.ErrCancelled
	}
	if j.write.turn != 0 {
		h.write.Store(j.write.turn)
	}
	pinned := (*loan)(nil)
	for i := range cuts {
		c := &cuts[i]
		if l := j.loans[c.from.Part]; l != pinned {
			// The pin is in place before the flag is looked at: whoever takes
			// the flag down first is seen here, and sees the pin else.
			h.region.Store(l.flag.turn)
			pinned = l
			if err := j.holds(l); err != nil {
				return err
			}
		}
		source := pinned.arena.Bytes(c.from.Offset, c.from.Length)
		placed := j.to.Section(c.to.Part).Bytes(c.to.Offset, c.to.Length)
		if !j.place(placed, source) {
			if err := j.holds(pinned); err != nil {
				return err
			}
			name := j.to.List[c.to.Part].Region
			return fmt.Errorf("%w: region %d at [%d,+%d) is not what its source is", fabric.ErrChecksum, name, c.to.Offset, c.to.Length)
		}
	}
	return nil
}

// place copies, and reports whether the bytes that lie there are the source's.
func (j *job) place(placed, source []byte) bool {
	if !j.compare {
		copy(placed, source)
		return true
	}
	for len(placed) > 0 {
		n := min(stepBytes, len(placed))
		copy(placed[:n], source)
		if !bytes.Equal(placed[:n], source[:n]) {
			return false
		}
		placed, source = placed[n:], source[n:]
	}
	return true
}

// holds reports whether the peer still lends.
func (j *job) holds(l *loan) error {
	if !l.flies() {
		return fmt.Errorf("%w: region %d was fenced", fabric.ErrStaleEpoch, l.part.Region)
	}
	if j.write.turn != 0 && !l.board.flies(j.write) {
		return fmt.Errorf("%w: by the poster", fabric.ErrCancelled)
	}
	return nil
}

func (j *job) fail(err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.err == nil {
		j.err = err
	}
}

// retire ends so many quanta; the last one ends the job. What was copied counts
// only if the source held to the end.
func (j *job) retire(quanta int) {
	j.mu.Lock()
	j.unfinished -= quanta
	over, err := j.unfinished == 0, j.err
	j.mu.Unlock()
	if !over {
		return
	}
	if err == nil && j.isStopped() {
		err = fabric.ErrCancelled
	}
	for i := 0; err == nil && i < len(j.loans); i++ {
		err = j.holds(j.loans[i])
	}
	j.shelf.release(j.loans)
	j.ended(err)
}
