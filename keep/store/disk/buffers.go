package disk

import (
	"math/bits"
	"sync"
)

// buffers are memory for direct I/O, to be used again: by size, each class twice the one
// before. Memory that the system has to find first costs more than what is written to it.
type buffers struct {
	mu    sync.Mutex
	free  [32][][]byte
	bytes int // of free
	most  int // of bytes
}

func classOf(size int) int { return bits.Len(uint((size - 1) / page)) }

// get is memory for a record of a size, a multiple of page.
func (b *buffers) get(size int) []byte {
	class := classOf(size)
	b.mu.Lock()
	defer b.mu.Unlock()
	if free := b.free[class]; len(free) > 0 {
		b.free[class] = free[:len(free)-1]
		b.bytes -= page << class
		return free[len(free)-1][:size]
	}
	return aligned(page << class)[:size]
}

func (b *buffers) put(buffer []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.bytes+cap(buffer) <= b.most {
		b.free[classOf(cap(buffer))] = append(b.free[classOf(cap(buffer))], buffer)
		b.bytes += cap(buffer)
	}
}
