package host

import (
	"errors"
	"fmt"
	"sync"

	"meridian/move/cuda"
	"meridian/move/fabric"
	"meridian/move/fabric/link"
	"meridian/move/mem"
	"meridian/move/mem/vram"
)

// gpuJob is the copying of one part by kernels: from what a peer has lent to memory of
// our own. The kernels run on the GPU of the destination, or, where that is host
// memory, on the source's. What they read is summed as it passes, and again where it
// was placed.
type gpuJob struct {
	gpu      *gpu
	taking   *link.Taking
	borrowed *borrowed
	loans    []*loan // of the source, by part of its list
	compare  bool
	quantum  uint64 // bytes
	// rounds is of how many parts, on both sides, the places are the same; each has as
	// many bytes. Where it is 1 they are not, or are too many for a launch.
	rounds int
	each   uint64

	begin    sync.Once
	device   *cuda.Device
	refused  error          // why not even the first byte can be taken
	sections []*mem.Section // of the destination, referenced
	sources  []deviceView   // by part
	places   []deviceView
	apart    bool // some of it is seen by no GPU
	onHost   bool // all of the destination is mapped here: what lies there the CPU sums

	mu         sync.Mutex // protects the rest
	from, to   fabric.Walk
	unfinished int // quanta
	err        error
}

const (
	// A quantum is what a copier does before it looks for another job, in few launches
	// unless it is cut small. gpuRuns bounds the runs of a launch, on each side.
	leastQuantum = 8 << 20
	mostQuantum  = 4 * cuda.LaunchBytes // within a GPU
	gpuRuns      = 8 << 10
	// runsEach is how many runs keep one copier busy for as long as a GPU is with what
	// they name. Calls of CUDA's wait for each other, so that no more copiers take part
	// than that: but for host memory, which the CPU reads again.
	runsEach = 1 << 10
	// gpuTurns is how many launches a quantum may be cut into before others are due.
	gpuTurns = 4
)

// divide says how many copiers take part, and how much each has.
func (j *gpuJob) divide(onlyGPU bool) {
	bytes, copiers := j.to.Left(), uint64(gpuCopiers)
	j.rounds, j.each = 1, bytes
	runs := max(j.taking.From.Runs(), j.taking.In.Bound.List.Runs())
	if rounds := j.to.Rounds(); rounds > 1 && rounds == j.from.Rounds() && runs/rounds <= gpuRuns && bytes/uint64(rounds) <= cuda.LaunchBytes {
		j.rounds, j.each = rounds, bytes/uint64(rounds)
		runs /= rounds
	}
	most := uint64(cuda.LaunchBytes)
	if onlyGPU {
		copiers, most = min(copiers, uint64(1+runs/runsEach)), mostQuantum
	}
	const whole = 1 << 20 // so that no quantum ends within a block, which kernels copy in wide words
	j.quantum = min(max((bytes/copiers+whole-1)/whole*whole, leastQuantum), most)
	if j.rounds > 1 {
		j.quantum = max(1, j.quantum/j.each) * j.each
	}
	j.unfinished = int(max(1, (bytes+j.quantum-1)/j.quantum))
}

// work copies a quantum, and reports whether some of it is left for later, because it
// is cut small.
func (j *gpuJob) work(h copier) (more bool) {
	more, err := j.take(h)
	if err != nil {
		j.fail(err)
	} else if more {
		return true
	}
	j.retire(1)
	return false
}

func (j *gpuJob) take(h copier) (more bool, err error) {
	j.begin.Do(func() { j.refused = j.open() })
	if j.refused != nil {
		return false, j.refused
	}
	m, err := j.gpu.devices.Mover(j.device)
	if err != nil {
		return false, err
	}
	defer j.gpu.devices.GiveBack(m)
	done := uint64(0)
	for range gpuTurns {
		from, to, n := j.next()
		if n == 0 {
			return false, nil
		}
		// As in a job: the pin is in place before the flag is looked at.
		h.pin.Store(j.taking.Flag.Turn)
		err := h.gpu.copy(j, m, from, to)
		h.pin.Store(0)
		if err != nil {
			return false, err
		}
		if done += n; done >= j.quantum {
			return false, nil
		}
	}
	return true, nil
}

// next hands out what one launch copies.
func (j *gpuJob) next() (from, to fabric.Walk, n uint64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.err != nil {
		return from, to, 0
	}
	most := j.quantum
	if j.apart {
		most = vram.PinnedBytes / 4 // what comes in, what goes out, and gaps
	}
	from, to = j.from, j.to
	if j.rounds > 1 && !j.apart {
		n = min(most, to.Left())
		j.from.Skip(n)
		j.to.Skip(n)
		from.Limit(n)
		to.Limit(n)
		return from, to, n
	}
	reached := j.from.Pass(most, gpuRuns)
	if n = j.to.Pass(reached, gpuRuns); n < reached {
		j.from = from
		j.from.Skip(n)
	}
	from.Limit(n)
	to.Limit(n)
	return from, to, n
}

// open finds the GPU that copies, and how it sees the memory of both sides. The
// destination is held meanwhile.
func (j *gpuJob) open() error {
	if err := j.taking.Hold(); err != nil {
		return err
	}
	defer j.taking.Drop()
	if err := j.reference(); err != nil {
		return err
	}
	var err error
	for i := range j.sections {
		if m := vram.Of(j.sections[i]); m != nil && j.device == nil {
			j.device = m.Device
		}
	}
	for i := 0; j.device == nil && i < len(j.loans); i++ {
		if j.device, err = j.loans[i].far.device(); err != nil {
			return fmt.Errorf("%w: %w", fabric.ErrRefused, err)
		}
	}
	j.onHost = true
	for i, section := range j.sections {
		j.onHost = j.onHost && section.Mapped()
		v := deviceView{}
		switch m := vram.Of(section); {
		case m == nil:
			v, err = j.gpu.reachOf(j.taking.In.Bound.List[i].Region, section).from(j.device)
		case m.Device != j.device:
			err = errors.New("a list with memory of two GPUs")
		default:
			v = deviceView{at: m.At, seen: true}
		}
		if err != nil {
			return fmt.Errorf("%w: %w", fabric.ErrUnsupported, err)
		}
		j.places, j.apart = append(j.places, v), j.apart || !v.seen
	}
	for _, l := range j.loans {
		v, err := l.far.from(j.device)
		if err != nil {
			return fmt.Errorf("%w: the source, region %d, cannot be read by GPU %s: %w", fabric.ErrRefused, l.region, j.device.UUID, err)
		}
		j.sources, j.apart = append(j.sources, v), j.apart || !v.seen
	}
	return nil
}

// reference keeps the destination's sections for as long as a GPU may write them.
func (j *gpuJob) reference() error {
	if err := j.taking.Enter(); err != nil {
		return err
	}
	defer j.taking.Leave()
	for i := range j.taking.In.Bound.List {
		s := j.taking.In.Bound.Section(i)
		if err := s.Acquire(); err != nil {
			return err
		}
		j.sections = append(j.sections, s)
	}
	return nil
}

func (j *gpuJob) fail(err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.err == nil {
		j.err = err
	}
}

// retire ends so many quanta; the last one ends the job.
func (j *gpuJob) retire(quanta int) {
	j.mu.Lock()
	j.unfinished -= quanta
	over, err := j.unfinished == 0, j.err
	j.mu.Unlock()
	if !over {
		return
	}
	for _, s := range j.sections {
		s.Release()
	}
	j.gpu.over(j)
	if j.refused != nil && (errors.Is(err, fabric.ErrRefused) || errors.Is(err, fabric.ErrUnsupported)) {
		j.taking.Refuse(err)
	} else {
		j.taking.Over(err)
	}
	j.borrowed.release(j.loans)
}

// differing names the bytes of the destination whose sum is another than the source's.
func (j *gpuJob) differing(to fabric.Walk, d *cuda.Difference) error {
	to.Skip(d.Segment * cuda.Segment)
	cut := to.Next(cuda.Segment)
	return j.taking.Differs(fmt.Sprintf("region %d at [%d,+%d)", j.taking.In.Bound.List[cut.Part].Region, cut.Offset, cut.Length))
}
