package mrdn

import (
	"encoding/binary"
	"fmt"
)

const (
	// ChunkHeaderSize is the prefix and the fixed fields before a payload.
	ChunkHeaderSize = PrefixSize + 8
	// ChunkTrailerSize is the checksum behind a payload.
	ChunkTrailerSize = 8
	// MaxChunk is the longest payload of one chunk.
	MaxChunk = 4 << 20
)

// Chunk is the next Length bytes of a part, in the part's own order. Behind
// them comes their checksum, a u64: XXH3-64 over the XXH3-64s of their 4 KiB
// segments (docs/wire.md), computed where the bytes lay in memory. It is behind
// them because the core that has just written the bytes has them in its cache.
type Chunk struct {
	Handle uint32
	Length uint32
}

// Put writes c into the first ChunkHeaderSize bytes of b.
func (c Chunk) Put(b []byte) {
	binary.LittleEndian.PutUint32(b[8:], c.Handle)
	binary.LittleEndian.PutUint32(b[12:], c.Length)
	putPrefix(b, ChunkFrame, b[PrefixSize:ChunkHeaderSize])
}

// ParseChunk reads a frame's own bytes.
func ParseChunk(b []byte) (Chunk, error) {
	r := reader{b: b}
	c := Chunk{Handle: r.u32(), Length: r.u32()}
	if c.Length == 0 || c.Length > MaxChunk {
		return Chunk{}, fmt.Errorf("%w: a chunk of %d bytes", ErrLinkFrame, c.Length)
	}
	return c, r.end("chunk")
}
