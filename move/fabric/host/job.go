package host

import (
	"bytes"
	"fmt"
	"sync"

	"meridian/move/checksum"
	"meridian/move/fabric"
	"meridian/move/fabric/link"
	"meridian/move/mem"
)

// job is the copying of one part: from what a peer has lent to memory of our
// own. Several copiers may work on it at a time.
type job struct {
	taking   *link.Taking
	borrowed *borrowed
	loans    []*loan // of the source, by part of its list
	bytes    uint64
	compare  bool
	apart    bool // some of the source is not mapped here

	mu         sync.Mutex // protects the rest
	from       fabric.Walk
	to         fabric.Walk
	unfinished int // quanta
	err        error
}

const (
	// pieceBytes are taken under one pin.
	pieceBytes = 64 << 10
	// stepBytes stay in a core's first cache, on both sides, from the copy to the
	// comparison and the sums.
	stepBytes = 16 << 10
	// quantum is what a copier copies before it looks for another job, in quantumCuts
	// at most, because small ones take longer than their bytes. Half a megabyte is worth
	// the wake-up of a second copier.
	quantum     = 256 << 10
	quantumCuts = 1 << 13
)

// cut is some contiguous bytes on both sides.
type cut struct {
	from, to fabric.Cut
}

// maxCuts bounds a piece of many small ones.
const maxCuts = 512

func (j *job) quanta() int { return int(max(1, (j.bytes+quantum-1)/quantum)) }

// work copies a quantum, and reports whether some of it is left for later,
// because it is cut too small.
func (j *job) work(h copier) (more bool) {
	total, cuts := 0, h.cuts[:0]
	for done := uint64(0); done < quantum; {
		if total >= quantumCuts {
			return true
		}
		var n uint64
		if cuts, n = j.next(cuts[:0]); n == 0 {
			break
		}
		// The pin is in place before the flag is looked at: who takes the flag
		// down first is seen by the look, and else sees the pin.
		h.pin.Store(j.taking.Flag.Turn)
		err := j.piece(cuts)
		h.pin.Store(0)
		if err != nil {
			j.fail(err)
			break
		}
		done += n
		total += len(cuts)
	}
	j.retire(1)
	return false
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
		from := j.from.Next(pieceBytes - taken)
		if from.Length == 0 {
			break
		}
		taken += from.Length
		for from.Length > 0 {
			to := j.to.Next(from.Length)
			cuts = append(cuts, cut{fabric.Cut{Part: from.Part, Offset: from.Offset, Length: to.Length}, to})
			from.Offset += to.Length
			from.Length -= to.Length
		}
	}
	return cuts, taken
}

// between is where bytes of memory that is not mapped here pass through: what
// was read of a source, or what lies at the destination.
var between = sync.Pool{New: func() any { return new([pieceBytes]byte) }}

// piece takes and places a piece, unless one of the two owners wants quiet.
func (j *job) piece(cuts []cut) error {
	var read []byte
	if j.apart {
		buffer := between.Get().(*[pieceBytes]byte)
		defer between.Put(buffer)
		read = buffer[:]
		if err := j.readApart(cuts, read); err != nil {
			return err
		}
	}
	if err := j.taking.Enter(); err != nil {
		return err
	}
	defer j.taking.Leave()
	destination := j.taking.In.Bound
	for i := range cuts {
		c := &cuts[i]
		var source []byte
		if section := j.loans[c.from.Part].section; section.Mapped() {
			source = section.Bytes(c.from.Offset, c.from.Length)
		} else {
			source, read = read[:c.from.Length], read[c.from.Length:]
		}
		region := destination.List[c.to.Part].Region
		same, err := j.place(destination.Section(c.to.Part), region, c.to, source)
		if err == nil && !same {
			err = j.taking.Differs(fmt.Sprintf("region %d at [%d,+%d)", region, c.to.Offset, c.to.Length))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// readApart reads what of a piece lies in another process, one after the other.
// That may take as long as the process likes, so that the destination must be
// free to become quiet meanwhile: the look at the flag comes after it.
func (j *job) readApart(cuts []cut, to []byte) error {
	looked := false
	for i := range cuts {
		from := &cuts[i].from
		section := j.loans[from.Part].section
		if section.Mapped() {
			continue
		}
		if !looked { // what is over already is not read at all
			if err := j.taking.Enter(); err != nil {
				return err
			}
			j.taking.Leave()
			looked = true
		}
		if err := section.ReadAt(to[:from.Length], from.Offset); err != nil {
			return err
		}
		to = to[from.Length:]
	}
	return nil
}

// place copies, and reports whether the bytes that lie there are the source's. Where
// their sums are wanted it takes them, and where those are compared with the
// source's the bytes are not.
func (j *job) place(dst *mem.Section, region uint64, to fabric.Cut, source []byte) (same bool, err error) {
	if !dst.Mapped() {
		if err := dst.WriteAt(source, to.Offset); err != nil || !j.compare {
			return true, err
		}
		buffer := between.Get().(*[pieceBytes]byte)
		defer between.Put(buffer)
		placed := buffer[:to.Length]
		err = dst.ReadAt(placed, to.Offset)
		return bytes.Equal(placed, source), err
	}
	placed, sums := dst.Bytes(to.Offset, to.Length), j.taking.In.Sums
	summed := sums.Wants(region, to.Offset, to.Length)
	compare := j.compare && !(summed && sums.Checked())
	if !compare && !summed {
		copy(placed, source)
		return true, nil
	}
	var room [8 * pieceBytes / checksum.Segment]byte
	noted := room[:0]
	for len(placed) > 0 {
		n := min(stepBytes, len(placed))
		copy(placed[:n], source)
		if compare && !bytes.Equal(placed[:n], source[:n]) {
			return false, nil
		}
		if summed {
			noted = checksum.AppendSums(noted, placed[:n])
		}
		placed, source = placed[n:], source[n:]
	}
	if summed {
		sums.Note(to.Offset, noted)
	}
	return true, nil
}

func (j *job) fail(err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.err == nil {
		j.err = err
	}
}

// retire ends so many quanta; the last one ends the job.
func (j *job) retire(quanta int) {
	j.mu.Lock()
	j.unfinished -= quanta
	over, err := j.unfinished == 0, j.err
	j.mu.Unlock()
	if over {
		j.taking.Over(err) // which looks at the page, so that it comes first
		j.borrowed.release(j.loans)
	}
}
