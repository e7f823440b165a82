package transceiver_test

import (
	"math/rand/v2"
	"testing"

	"meridian/kv"
	"meridian/move/agent"
	"meridian/move/transceiver"
)

// BenchmarkAgreement is the handshake and the plan of a long prompt with sliced
// heads. The heads are small: what both sides say and compute is as for large ones.
func BenchmarkAgreement(b *testing.B) {
	const tokens = 8192
	g := kv.Uniform(32, kv.Layer{KVHeads: 8, HeadDim: 2}, kv.Int8)
	from := shape{tp: 4, pp: 1, blockTokens: 16, blocks: tokens/16 + 100, layout: "LBHNC"}
	to := shape{tp: 2, pp: 2, blockTokens: 64, blocks: tokens/64 + 100, layout: "LBHNC"}
	for _, fabricName := range []string{"host", "tcp"} {
		b.Run(fabricName, func(b *testing.B) {
			c := newCell(b, fabricName)
			p, d := c.start("p"), c.start("d")
			src, dst := c.engine("prefill", g, from, p), c.engine("decode", g, to, d)
			offer := transceiver.Offer{Engine: "prefill", Content: prompt(tokens), Holding: holding(scattered(src, tokens)), Layers: len(g.Layers)}
			accept := shown{Engine: "decode", Content: prompt(tokens), Holding: holding(scattered(dst, tokens))}
			var handshake, plan int64
			for b.Loop() {
				offer.Transfer = agent.NewID()
				out, err := p.Offer(offer)
				if err != nil {
					b.Fatal(err)
				}
				accept.Ticket = out.Ticket
				in, err := d.accept(soon(b), accept)
				if err == nil {
					err = in.Wait(soon(b))
				}
				if err == nil {
					err = out.Wait(soon(b))
				}
				if err != nil {
					b.Fatal(err)
				}
				r, err := d.Explain(in.Transfer)
				if err != nil {
					b.Fatal(err)
				}
				handshake, plan = handshake+int64(r[0].Stages.Met-r[0].Stages.Begun), plan+int64(r[0].Stages.Planned-r[0].Stages.Met)
			}
			b.ReportMetric(float64(handshake)/float64(b.N), "handshake-µs")
			b.ReportMetric(float64(plan)/float64(b.N), "plan-µs")
		})
	}
}

// scattered is blocks for so many tokens that lie anywhere in an engine's memory.
func scattered(e *engine, tokens int) []uint32 {
	blocks := make([]uint32, tokens/e.Side.BlockTokens)
	for i, at := range rand.New(rand.NewPCG(1, 2)).Perm(e.Side.Blocks)[:len(blocks)] {
		blocks[i] = uint32(at)
	}
	return blocks
}
