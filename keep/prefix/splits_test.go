package prefix_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"meridian/kv"
)

// Whatever the split, block size and layout of the engine that kept a prompt, and whatever
// those of the one that finds it: every byte is where it belongs.
func TestRandomSplits(t *testing.T) { randomSplits(t, 8) }

// randomSplits draws so many pairs of engines, each for a prompt that begins like others.
func randomSplits(t *testing.T, pairs int) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	dice := rand.New(rand.NewPCG(seed, 1))
	layouts := []string{"LFBNHD", "BLNFHD", "LBHNC", "BLHNC", "LBNHC", "BLFHND"}
	anyShape := func() shape {
		block := 1 + dice.IntN(70)
		return shape{tp: 1 << dice.IntN(3), pp: 1 + dice.IntN(3), blockTokens: block, blocks: 3*(700/block) + 4, layout: layouts[dice.IntN(len(layouts))]}
	}
	c := newCell(t, "inproc")
	a, b := c.start("a", nodeOptions{keeps: arenaBytes}), c.start("b", nodeOptions{})
	for i := range pairs {
		from, to := anyShape(), anyShape()
		writer, other := c.engine(fmt.Sprint("writer-", i), from, a), c.engine(fmt.Sprint("reader-", i), to, b)
		p := prompt(64+dice.IntN(637), dice.IntN(3)) // what is kept already comes from another writer
		writer.keep(t, p)
		a.settled(t)
		present, whole := 0, len(p.Tokens)/64*64
		if whole > 64 && dice.IntN(2) == 0 {
			present = dice.IntN(whole/64) * 64 / to.blockTokens * to.blockTokens
		}
		found := other.find(t, p, present)
		if found.Tokens != whole {
			t.Fatalf("pair %d, %+v → %+v: %d tokens of %d are found: %+v", i, from, to, found.Tokens, whole, found)
		}
		blocks, err := other.accept(t, p, found)
		if err != nil {
			t.Fatalf("pair %d, %+v → %+v: %v", i, from, to, err)
		}
		if wrong := other.wrong(blocks, p, kv.TokenRange{Start: present, End: whole}); wrong > 0 {
			t.Fatalf("pair %d, %+v → %+v, %d tokens, %d present: %d bytes are wrong", i, from, to, whole, present, wrong)
		}
	}
}
