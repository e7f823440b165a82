package cudatest

import (
	"encoding/binary"
	"regexp"
	"strconv"
	"strings"

	"github.com/zeebo/xxh3"

	"meridian/move/cuda"
)

// ModuleLoad takes any PTX: what it has is what cuda's kernels.cu has.
func (p *Process) ModuleLoad(c cuda.ContextHandle, _ string) (cuda.ModuleHandle, error) {
	if err := p.enter(c); err != nil {
		return 0, err
	}
	defer p.mu.Unlock()
	m := cuda.ModuleHandle(p.name())
	p.modules[m] = true
	return m, nil
}

// ModuleUnload unloads it.
func (p *Process) ModuleUnload(_ cuda.ContextHandle, m cuda.ModuleHandle) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.modules[m] {
		return cuda.InvalidHandle
	}
	delete(p.modules, m)
	return p.lost
}

var kernelName = regexp.MustCompile(`^(copy|sum|copysum|placed)(_whole|16|8|4|1)$`)

// Function finds a kernel.
func (p *Process) Function(c cuda.ContextHandle, m cuda.ModuleHandle, name string) (cuda.FunctionHandle, error) {
	if err := p.enter(c); err != nil {
		return 0, err
	}
	defer p.mu.Unlock()
	if !p.modules[m] {
		return 0, cuda.InvalidHandle
	}
	if !kernelName.MatchString(name) {
		return 0, cuda.NotFound
	}
	f := cuda.FunctionHandle(p.name())
	p.kernels[f] = name
	return f, nil
}

// Launch queues a kernel.
func (p *Process) Launch(c cuda.ContextHandle, s cuda.StreamHandle, l cuda.Launch) error {
	p.mu.Lock()
	name := p.kernels[l.Function]
	p.launches++
	p.mu.Unlock()
	if name == "" {
		return cuda.InvalidHandle
	}
	if l.Grid < 1 || l.Threads%32 != 0 || l.Threads < 32 || l.Threads > 1024 {
		return cuda.InvalidValue
	}
	parts := kernelName.FindStringSubmatch(name)
	k := &kernel{process: p, copies: strings.HasPrefix(name, "copy"), sums: parts[1] != "copy", placed: parts[1] == "placed", whole: parts[2] == "_whole"}
	if k.width, _ = strconv.Atoi(parts[2]); k.whole {
		k.width = 16
		if k.sums {
			k.width = 8
		}
	}
	if want := 6; k.sums && len(l.Parameters) != want+1 || !k.sums && len(l.Parameters) != want {
		return cuda.InvalidValue
	}
	parameters := append([]uint64(nil), l.Parameters...)
	return p.queue(c, s, func() {
		p.waitHung()
		if err := k.run(parameters); err != nil {
			p.fail(err)
		}
	})
}

// kernel is the arithmetic of kernels.cu, a segment at a time: the same table, the
// same walk, and no access that is not a multiple of the kernel's width.
type kernel struct {
	process                     *Process
	copies, sums, whole, placed bool
	width                       int

	table   []byte    // rows and what is mapped after them
	shift   [2]uint64 // of the round, at the source and at the destination
	segment [cuda.Segment]byte
}

const rowBytes = 48

// walk is a place in the bytes of a launch.
type walk struct {
	row                   int
	from, to              uint64 // of the piece
	piece, within         uint32
	start, length, pieces uint32
}

func (k *kernel) run(parameters []uint64) error {
	bytes := parameters[2]
	segments := (bytes + cuda.Segment - 1) / cuda.Segment
	if k.table = k.process.after(cuda.Pointer(parameters[0])); k.table == nil {
		return cuda.IllegalAddress
	}
	for s := range segments {
		here := min(bytes-s*cuda.Segment, cuda.Segment)
		row, at, ok := k.find(parameters, s)
		if !ok {
			return cuda.IllegalAddress
		}
		if err := k.one(row, at, int(here)); err != nil {
			return err
		}
		if !k.sums {
			continue
		}
		sum := k.process.Bytes(cuda.Pointer(parameters[6]+8*s), 8)
		if sum == nil {
			return cuda.IllegalAddress
		}
		binary.LittleEndian.PutUint64(sum, xxh3.Hash(k.segment[:here]))
	}
	return nil
}

// find is the row of a segment, and the byte of the rows that it begins at; the shift of
// its round is kept.
func (k *kernel) find(parameters []uint64, s uint64) (row int, at uint32, ok bool) {
	each, period := parameters[3], parameters[5]
	if period > 0 {
		shift := k.process.Bytes(cuda.Pointer(parameters[4]+16*(s/period)), 16)
		if shift == nil {
			return 0, 0, false
		}
		k.shift = [2]uint64{binary.LittleEndian.Uint64(shift), binary.LittleEndian.Uint64(shift[8:])}
		s %= period
	}
	if each > 0 {
		return int(s / each), uint32(s * cuda.Segment), true
	}
	first := k.process.Bytes(cuda.Pointer(parameters[1]+4*s), 4)
	if first == nil {
		return 0, 0, false
	}
	return int(binary.LittleEndian.Uint32(first)), uint32(s * cuda.Segment), true
}

// one walks a segment piece by piece, in words that do not leave a piece.
func (k *kernel) one(row int, at uint32, bytes int) error {
	var w walk
	if !k.seek(&w, row, at) {
		return cuda.IllegalAddress
	}
	width := k.width
	if k.whole && bytes == cuda.Segment {
		// The kernel takes the pointers of the first byte for the whole segment.
		if w.within+cuda.Segment > w.length {
			return cuda.IllegalAddress
		}
		return k.words(&w, 0, cuda.Segment, width)
	}
	if k.sums && bytes < cuda.Segment {
		width = 1 // a tail
	}
	for off := 0; off < bytes; {
		n := min(bytes-off, int(w.length-w.within))
		if err := k.words(&w, off, n, width); err != nil {
			return err
		}
		if !k.skip(&w, uint32(n)) {
			return cuda.IllegalAddress
		}
		off += n
	}
	return nil
}

// words moves bytes of one piece, width of them at a time.
func (k *kernel) words(w *walk, off, bytes, width int) error {
	const misaligned cuda.Result = 716
	from, to := w.from+uint64(w.within), w.to+uint64(w.within)
	aligned := uint64(width)
	src := k.process.Bytes(cuda.Pointer(from), uint64(bytes))
	switch {
	case src == nil:
		return cuda.IllegalAddress
	case from%aligned != 0 || k.copies && to%aligned != 0 || uint64(bytes)%aligned != 0:
		return misaligned
	}
	copy(k.segment[off:], src)
	if !k.copies {
		return nil
	}
	dst := k.process.Bytes(cuda.Pointer(to), uint64(bytes))
	if dst == nil {
		return cuda.IllegalAddress
	}
	copy(dst, src)
	k.process.flip(cuda.Pointer(to), dst)
	return nil
}

// enter reads the row, and where the piece is.
func (k *kernel) enter(w *walk) bool {
	if (w.row+1)*rowBytes > len(k.table) {
		return false
	}
	r := k.table[w.row*rowBytes:]
	word := func(i int) uint64 { return binary.LittleEndian.Uint64(r[8*i:]) }
	w.start, w.length = binary.LittleEndian.Uint32(r[32:]), binary.LittleEndian.Uint32(r[36:])
	w.pieces = binary.LittleEndian.Uint32(r[40:])
	w.from, w.to = word(0)+k.shift[0]+uint64(w.piece)*word(2), word(1)+k.shift[1]+uint64(w.piece)*word(3)
	if k.placed {
		w.from = w.to
	}
	return w.length > 0
}

func (k *kernel) seek(w *walk, row int, at uint32) bool {
	for w.row = row; ; w.row++ {
		w.piece = 0
		if !k.enter(w) {
			return false
		}
		local := at - w.start
		if w.piece = local / w.length; w.piece < w.pieces {
			w.within = local - w.piece*w.length
			return k.enter(w)
		}
	}
}

func (k *kernel) skip(w *walk, bytes uint32) bool {
	w.within += bytes
	for w.within >= w.length {
		w.within -= w.length
		if w.piece++; w.piece == w.pieces {
			w.row++
			w.piece = 0
		}
		if !k.enter(w) {
			return false
		}
	}
	return true
}
