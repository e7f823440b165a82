package mrdn

// Frames between two agents of one machine, where no bytes travel: the owner of
// a source lends its memory, and the destination's agent copies. Those that lend
// carry a descriptor beside their bytes, with the first of them.

// FlagPage lends the page in which its sender shows what may still be taken:
// cells of 8 bytes, the first Copiers for what each of its copiers is taking.
type FlagPage struct{ Copiers uint32 }

// Append appends m in wire form.
func (m FlagPage) Append(dst []byte) []byte {
	w := begin(dst, FlagPageFrame)
	w.u32(m.Copiers)
	return w.finish()
}

// ParseFlagPage reads a frame's own bytes.
func ParseFlagPage(b []byte) (FlagPage, error) {
	r := reader{b: b}
	m := FlagPage{Copiers: r.u32()}
	return m, r.end("flag page")
}

// Lend lends a region, before the first Source that needs it.
type Lend struct {
	Region, Epoch uint64
	// Serial tells this loan from others of the region on the same link.
	Serial uint64
	// Address and SizeBytes are where a region lies in the process of an engine,
	// whose pidfd is the descriptor. With none, the descriptor is a memfd.
	Address, SizeBytes uint64
}

// Append appends m in wire form.
func (m Lend) Append(dst []byte) []byte {
	w := begin(dst, LendFrame)
	w.u64(m.Region)
	w.u64(m.Epoch)
	w.u64(m.Serial)
	w.u64(m.Address)
	w.u64(m.SizeBytes)
	return w.finish()
}

// ParseLend reads a frame's own bytes.
func ParseLend(b []byte) (Lend, error) {
	r := reader{b: b}
	m := Lend{Region: r.u64(), Epoch: r.u64(), Serial: r.u64(), Address: r.u64(), SizeBytes: r.u64()}
	return m, r.end("lend")
}

// LendGPU lends a region that lies in the memory of a GPU. It carries no descriptor:
// the handle is CUDA's own, and names an allocation to every process of the machine.
type LendGPU struct {
	Region, Epoch, Serial uint64
	// UUID is the GPU's.
	UUID   [16]byte
	Handle [64]byte
	// Offset and SizeBytes are the region, within the allocation.
	Offset, SizeBytes uint64
}

// Append appends m in wire form.
func (m LendGPU) Append(dst []byte) []byte {
	w := begin(dst, LendGPUFrame)
	w.u64(m.Region)
	w.u64(m.Epoch)
	w.u64(m.Serial)
	w.b = append(w.b, m.UUID[:]...)
	w.b = append(w.b, m.Handle[:]...)
	w.u64(m.Offset)
	w.u64(m.SizeBytes)
	return w.finish()
}

// ParseLendGPU reads a frame's own bytes.
func ParseLendGPU(b []byte) (LendGPU, error) {
	r := reader{b: b}
	m := LendGPU{Region: r.u64(), Epoch: r.u64(), Serial: r.u64(), UUID: [16]byte(r.take(16)), Handle: [64]byte(r.take(64)), Offset: r.u64(), SizeBytes: r.u64()}
	return m, r.end("lend gpu")
}

// Recall asks to unmap a region that was lent and is not registered any more.
type Recall struct{ Region, Serial uint64 }

// Append appends m in wire form.
func (m Recall) Append(dst []byte) []byte {
	w := begin(dst, RecallFrame)
	w.u64(m.Region)
	w.u64(m.Serial)
	return w.finish()
}

// ParseRecall reads a frame's own bytes.
func ParseRecall(b []byte) (Recall, error) {
	r := reader{b: b}
	m := Recall{Region: r.u64(), Serial: r.u64()}
	return m, r.end("recall")
}

// Source stands where the bytes of a part would: they may be taken out of its
// sender's memory for as long as Cell of the sender's flag page says Turn.
type Source struct {
	Handle uint32
	Cell   uint32
	Turn   uint64
	// List says where the bytes of a write are, as fabric.List encodes it. A read
	// has none: its Begin said where.
	List []byte
}

// Append appends m in wire form.
func (m Source) Append(dst []byte) []byte {
	w := begin(dst, SourceFrame)
	w.u32(m.Handle)
	w.u32(m.Cell)
	w.u64(m.Turn)
	w.bytes(m.List)
	return w.finish()
}

// ParseSource reads a frame's own bytes; List is a part of b.
func ParseSource(b []byte) (Source, error) {
	r := reader{b: b}
	m := Source{Handle: r.u32(), Cell: r.u32(), Turn: r.u64(), List: r.bytes()}
	return m, r.end("source")
}

// Taken says that the Source of a read is not needed any more. Of a write its
// Ack says that.
type Taken struct{ Handle uint32 }

// Append appends m in wire form.
func (m Taken) Append(dst []byte) []byte {
	w := begin(dst, TakenFrame)
	w.u32(m.Handle)
	return w.finish()
}

// ParseTaken reads a frame's own bytes.
func ParseTaken(b []byte) (Taken, error) {
	r := reader{b: b}
	m := Taken{Handle: r.u32()}
	return m, r.end("taken")
}
