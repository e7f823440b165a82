//go:build accel

package doorserver_test

import (
	"testing"

	"meridian/internal/require"
	"meridian/internal/until"
	"meridian/move/agent"
	"meridian/move/cuda"
	"meridian/move/mem/vram"
	"meridian/serve/doorserver"
)

// Two engines in processes of their own, with their caches on a real GPU, hand
// requests over through two agents; what one of them has lent is let go when it is
// killed.
func TestGPUHandOff(t *testing.T) {
	if _, err := cuda.List(nil); err != nil {
		require.Skip(t, "gpu", err.Error())
	}
	c := newCell(t, "tcp")
	var pools []*vram.Pool
	start := func(name string) *node {
		pool := vram.NewPool(nil)
		pools = append(pools, pool)
		t.Cleanup(func() {
			if err := pool.Close(); err != nil {
				t.Error(err)
			}
		})
		return c.start(name, func(o *doorserver.Options) { o.VRAM = pool })
	}
	inVRAM := func(o *puppetOptions) { o.VRAM = true }
	p, d := start("p"), start("d")
	from, to := c.process("prefill", p, prefillCut, inVRAM), c.process("decode", d, decodeCut, inVRAM)
	onHost := c.process("host", d, decodeCut)
	for _, taker := range []*process{to, onHost} {
		for _, tokens := range []int{1, 90} { // so few that all may be held at a time
			id := agent.NewID()
			offered := from.do(order{Do: "offer", ID: id[:], Tokens: tokens, Layers: len(model.Layers)})
			taker.do(order{Do: "accept", Ticket: offered.Ticket, Tokens: tokens})
			until.True(t, "every byte is right", func() bool { return taker.do(order{Do: "wrong", Tokens: tokens}).Wrong == 0 })
		}
	}
	if n := pools[0].Counts().Imports; n != prefillCut.tp {
		t.Errorf("%d imports of %d ranks", n, prefillCut.tp)
	}
	from.kill()
	until.True(t, "the dead engine's memory is let go", func() bool { return pools[0].Counts().Imports == 0 })
}
