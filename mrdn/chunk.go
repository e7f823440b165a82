package mrdn

import (
	"encoding/binary"
	"fmt"
)

const (
	// ChunkHeaderSize is the prefix and the fixed fields before a payload.
	ChunkHeaderSize = PrefixSize + 16
	// MaxChunk is the longest payload of one chunk.
	MaxChunk = 4 << 20
)

// Chunk is the next Length bytes of a part, in the part's own order. Checksum
// is XXH3-64 over the XXH3-64s of their 4 KiB segments (docs/wire.md), computed
// where the bytes lay in memory.
type Chunk struct {
	Handle   uint32
	Length   uint32
	Checksum uint64
}

// Put writes c into the first ChunkHeaderSize bytes of b.
func (c Chunk) Put(b []byte) {
	binary.LittleEndian.PutUint32(b, ChunkHeaderSize-PrefixSize)
	binary.LittleEndian.PutUint32(b[4:], uint32(ChunkFrame))
	binary.LittleEndian.PutUint32(b[8:], c.Handle)
	binary.LittleEndian.PutUint32(b[12:], c.Length)
	binary.LittleEndian.PutUint64(b[16:], c.Checksum)
}

// ParseChunk reads a frame's own bytes.
func ParseChunk(b []byte) (Chunk, error) {
	r := reader{b: b}
	c := Chunk{Handle: r.u32(), Length: r.u32(), Checksum: r.u64()}
	if c.Length == 0 || c.Length > MaxChunk {
		return Chunk{}, fmt.Errorf("%w: a chunk of %d bytes", ErrLinkFrame, c.Length)
	}
	return c, r.end("chunk")
}
