package block

import "fmt"

// Memory is what an engine lent, and what kv_memory says of it.
type Memory struct {
	// LentBytes is what the engine lent, BlockBytes what a block takes by the
	// geometry that it registered.
	LentBytes, BlockBytes int64
	// SizeBytes is kv_memory.block_size_bytes, CapacityBytes kv_memory.capacity_bytes;
	// 0 means "auto".
	SizeBytes, CapacityBytes int64
}

// Options fills in the blocks of a table: all slots that were lent, of which
// capacity_bytes may be used. A block size that is not the engine's is refused.
func (m Memory) Options() (Options, error) {
	switch {
	case m.LentBytes < 0 || m.BlockBytes <= 0 || m.SizeBytes < 0 || m.CapacityBytes < 0:
		return Options{}, fmt.Errorf("block: %+v: sizes are not negative, and a block has one", m)
	case m.SizeBytes != 0 && m.SizeBytes != m.BlockBytes:
		return Options{}, fmt.Errorf(`block: kv_memory.block_size_bytes is %d, but a block of this engine has %d: set it to "auto"`, m.SizeBytes, m.BlockBytes)
	}
	o := Options{Blocks: int(m.LentBytes / m.BlockBytes), BlockBytes: m.BlockBytes}
	o.Capacity = o.Blocks
	if m.CapacityBytes != 0 {
		o.Capacity = min(o.Blocks, int(m.CapacityBytes/m.BlockBytes))
	}
	if o.Capacity == 0 {
		return Options{}, fmt.Errorf("block: %d bytes lent and %d allowed hold no block of %d bytes: lend more, or raise kv_memory.capacity_bytes", m.LentBytes, m.CapacityBytes, m.BlockBytes)
	}
	return o, nil
}
