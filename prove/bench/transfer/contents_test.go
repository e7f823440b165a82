package transfer

import (
	"errors"
	"testing"
)

// moved is a destination into which every block was copied as it should be.
func moved(c Case) []byte {
	source, pool := make([]byte, poolBytes(c.Total)), make([]byte, poolBytes(c.Total))
	to := c.destination()
	fill(source, to.other(), 0)
	from := c.offsets(to.other())
	for i, offset := range c.offsets(to) {
		copy(pool[offset:offset+c.Block], source[from[i]:])
	}
	return pool
}

func inMemory(pool []byte) func(offset, length uint64) ([]byte, error) {
	return func(offset, length uint64) ([]byte, error) { return pool[offset:][:length], nil }
}

func swap(a, b []byte) {
	for i := range a {
		a[i], b[i] = b[i], a[i]
	}
}

func TestWhatACheckCatches(t *testing.T) {
	faults := map[string]func(c Case, pool []byte){
		"two blocks swapped": func(c Case, pool []byte) {
			at := c.offsets(c.destination())
			swap(pool[at[3]:at[3]+c.Block], pool[at[9]:at[9]+c.Block])
		},
		"a block twice": func(c Case, pool []byte) {
			at := c.offsets(c.destination())
			copy(pool[at[0]:at[0]+c.Block], pool[at[1]:])
		},
		"a block missing": func(c Case, pool []byte) {
			last := c.offsets(c.destination())[c.Total/c.Block-1]
			clear(pool[last : last+c.Block])
		},
		"a block shifted": func(c Case, pool []byte) {
			at := c.offsets(c.destination())[5]
			copy(pool[at:at+c.Block-wordBytes], pool[at+wordBytes:])
		},
		"the last byte": func(c Case, pool []byte) { pool[c.offsets(c.destination())[7]+c.Block-1] ^= 1 },
		"the other side's contents": func(c Case, pool []byte) {
			c.Op = map[string]string{"read": "write", "write": "read"}[c.Op]
			copy(pool, moved(c))
		},
	}
	for _, op := range []string{"read", "write"} {
		for _, layout := range []Layout{Scattered, Dense} {
			c := Case{Op: op, Block: 256, Total: 16 << 10, Layout: layout}
			if err := c.check(inMemory(moved(c))); err != nil {
				t.Errorf("%v: %v", c, err)
			}
			for name, fault := range faults {
				pool := moved(c)
				fault(c, pool)
				if err := c.check(inMemory(pool)); !errors.Is(err, ErrContents) {
					t.Errorf("%v: %s went unseen: %v", c, name, err)
				}
			}
		}
	}
	c := Case{Op: "write", Block: 256, Total: 16 << 10, Layout: Scattered}
	pool := moved(c)
	pool[c.offsets(serving)[4]+c.Block+100] = 1
	if err := c.check(inMemory(pool)); !errors.Is(err, ErrContents) {
		t.Errorf("a byte behind a block went unseen: %v", err)
	}
}

func TestScatteredMeansScattered(t *testing.T) {
	c := Case{Op: "write", Block: 4096, Total: 1 << 20, Layout: Scattered}
	near, err := c.list(posting)
	if err != nil {
		t.Fatal(err)
	}
	far, err := c.list(serving)
	if err != nil {
		t.Fatal(err)
	}
	if near.Pieces() != 256 || far.Pieces() != 256 || near.Bytes() != c.Total {
		t.Errorf("%d and %d pieces, %d bytes", near.Pieces(), far.Pieces(), near.Bytes())
	}
	if near[0].Spans.Runs()[0] == far[0].Spans.Runs()[0] && near[0].Spans.Runs()[1] == far[0].Spans.Runs()[1] {
		t.Error("both sides have the same order")
	}
	c.Layout = Dense
	if dense, _ := c.list(posting); dense.Pieces() != 1 {
		t.Errorf("%d pieces in a dense layout", dense.Pieces())
	}
}
