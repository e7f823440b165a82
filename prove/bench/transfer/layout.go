package transfer

import (
	"fmt"
	"math/rand/v2"

	"meridian/move/fabric"
)

// Layout is how a row's blocks lie in the two pools.
type Layout string

// The layouts. A pool holds twice the bytes that are moved. Scattered: every
// other block of the pool, in an order of its own on either side. Dense: one
// block behind the other, in order, on both.
const (
	Scattered Layout = "scattered"
	Dense     Layout = "dense"
)

// side is which pool: the posting side's or the serving side's.
type side uint64

const (
	posting side = iota + 1
	serving
)

func (s side) other() side { return posting + serving - s }

func (c Case) op() fabric.Op {
	if c.Op == "read" {
		return fabric.Read
	}
	return fabric.Write
}

// destination is the side that the bytes go to.
func (c Case) destination() side {
	if c.op() == fabric.Write {
		return serving
	}
	return posting
}

func (c Case) String() string { return fmt.Sprintf("%s %s, %d bytes a block", c.Op, c.Layout, c.Block) }

// offsets lists where the blocks lie in a pool: the n-th block of one side goes
// to the n-th of the other. Both processes come to the same lists.
func (c Case) offsets(of side) []uint64 {
	all := make([]uint64, c.Total/c.Block)
	if c.Layout == Dense {
		for i := range all {
			all[i] = uint64(i) * c.Block
		}
		return all
	}
	for i, k := range rand.New(rand.NewPCG(uint64(of), c.Block)).Perm(len(all)) {
		all[i] = uint64(k) * 2 * c.Block
	}
	return all
}

// gap is how many bytes behind each block must stay untouched.
func (c Case) gap() uint64 {
	if c.Layout == Dense {
		return 0
	}
	return c.Block
}

// poolBytes is how large a pool must be.
func poolBytes(total uint64) uint64 { return 2 * total }
