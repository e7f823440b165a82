package cuda

import (
	"errors"
	"fmt"
)

// Work is what is done with moves.
type Work uint8

// The kinds of work.
const (
	Copying    Work = 1 << iota // bytes go to where they are to be
	Summing                     // XXH3-64 of every segment of the source
	Rereading                   // and of what lies at the destination, which is compared
	CopySummed = Copying | Summing
	Verified   = CopySummed | Rereading
)

// Difference is a segment whose sum at the destination is not the source's.
type Difference struct{ Segment uint64 }

func (d *Difference) Error() string {
	return fmt.Sprintf("cuda: segment %d is not at its destination what it was at its source", d.Segment)
}

// Kernels are the kernels of a device, loaded.
type Kernels struct {
	device    *Device
	module    ModuleHandle
	functions map[string]FunctionHandle
}

// kernelNames are those in kernels.cu.
var kernelNames = []string{
	"copy_whole", "copy16", "copy8", "copy4", "copy1",
	"sum_whole", "sum8", "sum1", "copysum_whole", "copysum8", "copysum1", "placed_whole", "placed8", "placed1",
}

// loaded loads the kernels when they are first asked for. They stay until the
// device is closed.
func (d *Device) loaded() (*Kernels, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, ErrClosed
	}
	if d.kernels != nil {
		return d.kernels, nil
	}
	k := &Kernels{device: d, functions: make(map[string]FunctionHandle, len(kernelNames))}
	var err error
	if k.module, err = d.driver.ModuleLoad(d.context, kernelsPTX); err != nil {
		return nil, failed(err, "load the kernels")
	}
	for _, name := range kernelNames {
		if k.functions[name], err = d.driver.Function(d.context, k.module, name); err != nil {
			return nil, errors.Join(failed(err, "find the kernel %s", name), d.driver.ModuleUnload(d.context, k.module))
		}
	}
	d.counts.Modules++
	d.kernels = k
	return k, nil
}

func (k *Kernels) close() error {
	k.device.gone(&k.device.counts.Modules)
	return failed(k.device.driver.ModuleUnload(k.device.context, k.module), "unload the kernels")
}

// kernel names the kernel for a launch.
func (l *launch) kernel(w Work) string {
	name, width := "copy", l.width()
	if w&Summing != 0 {
		// The hash takes words of eight bytes, or bytes.
		name = map[Work]string{Summing: "sum", CopySummed: "copysum", Rereading | Summing: "placed"}[w]
		if width = min(width, 8); width < 8 {
			width = 1
		}
	}
	if l.whole && (width == 16 || (width == 8 && w&Summing != 0)) {
		return name + "_whole"
	}
	return fmt.Sprint(name, width)
}

const (
	threads = 256
	// blocksEach is how many blocks a multiprocessor gets when there is enough to
	// do; the kernels walk on from there.
	blocksEach = 8
)

// start queues the kernel of a launch whose table is there.
func (k *Kernels) start(s *Stream, l *launch, w Work, table, sums Pointer) error {
	each := threads / 32 // segments of a block at a time: a warp for each
	parameters := []uint64{uint64(table + rowsAt), uint64(table), l.bytes, l.each, uint64(table + shiftsAt), l.period}
	if w&Summing != 0 {
		each = threads / 8
		parameters = append(parameters, uint64(sums))
	}
	name := l.kernel(w)
	err := k.device.driver.Launch(k.device.context, s.handle, Launch{
		Function: k.functions[name], Threads: threads, Parameters: parameters,
		Grid: min((l.segments()+each-1)/each, k.device.Multiprocessors*blocksEach),
	})
	return failed(err, "launch %s over %d bytes", name, l.bytes)
}
