package block

import (
	"testing"
	"unsafe"
)

func TestMemory(t *testing.T) {
	for name, c := range map[string]struct {
		memory           Memory
		blocks, capacity int
	}{
		"auto":              {Memory{LentBytes: 1000, BlockBytes: 64}, 15, 15},
		"the same size":     {Memory{LentBytes: 640, BlockBytes: 64, SizeBytes: 64}, 10, 10},
		"another size":      {Memory{LentBytes: 640, BlockBytes: 64, SizeBytes: 32}, 0, 0},
		"a part":            {Memory{LentBytes: 640, BlockBytes: 64, CapacityBytes: 200}, 10, 3},
		"more than lent":    {Memory{LentBytes: 640, BlockBytes: 64, CapacityBytes: 64000}, 10, 10},
		"less than a block": {Memory{LentBytes: 640, BlockBytes: 64, CapacityBytes: 63}, 0, 0},
		"nothing":           {Memory{LentBytes: 63, BlockBytes: 64}, 0, 0},
		"no size":           {Memory{LentBytes: 640}, 0, 0},
		"negative":          {Memory{LentBytes: 640, BlockBytes: 64, CapacityBytes: -1}, 0, 0},
	} {
		o, err := c.memory.Options()
		if (err != nil) != (c.blocks == 0) || o.Blocks != c.blocks || o.Capacity != c.capacity {
			t.Errorf("%s: %+v, %v", name, o, err)
		}
	}
}

func TestOptions(t *testing.T) {
	for _, o := range []Options{{}, {Blocks: -1}, {Blocks: 1 << 40}, {Blocks: 4, Capacity: 5}, {Blocks: 4, Capacity: -1}, {Blocks: 4, ThinkFraction: 1}} {
		if _, err := New(o); err == nil {
			t.Errorf("%+v makes a table", o)
		}
	}
}

// A slot is one line of the processor's caches: no more has to come from memory.
func TestSlotIsACacheLine(t *testing.T) {
	if size := unsafe.Sizeof(slot{}); size != 64 {
		t.Errorf("a slot has %d bytes", size)
	}
}
