package transceiver_test

import (
	"fmt"
	"testing"

	"meridian/agent"
	"meridian/kv"
	"meridian/transceiver"
)

// BenchmarkHandOff hands 2048 tokens over, of a model with an eighth of the
// layers of a large one.
func BenchmarkHandOff(b *testing.B) {
	g := kv.Uniform(10, kv.Layer{KVHeads: 8, HeadDim: 128}, kv.BFloat16)
	const tokens = 2048
	for _, c := range []struct {
		name     string
		src, dst shape
	}{
		{"equal", shape{tp: 2, pp: 1, blockTokens: 16, layout: "LBHNC"}, shape{tp: 2, pp: 1, blockTokens: 16, layout: "LBHNC"}},
		{"heads", shape{tp: 4, pp: 1, blockTokens: 16, layout: "LBHNC"}, shape{tp: 2, pp: 2, blockTokens: 64, layout: "LBHNC"}},
		{"tokens", shape{tp: 4, pp: 1, blockTokens: 16, layout: "LBNHC"}, shape{tp: 2, pp: 1, blockTokens: 16, layout: "LBNHC"}},
		{"permute", shape{tp: 2, pp: 1, blockTokens: 16, layout: "LBNHC"}, shape{tp: 2, pp: 1, blockTokens: 16, layout: "LBHNC"}},
	} {
		for _, fabricName := range []string{"host", "tcp"} {
			b.Run(fmt.Sprintf("%s/%s", c.name, fabricName), func(b *testing.B) {
				x := newCell(b, fabricName)
				p, d := x.start("p"), x.start("d")
				c.src.blocks, c.dst.blocks = tokens/c.src.blockTokens+1, tokens/c.dst.blockTokens+1
				src, dst := x.engine("prefill", g, c.src, p), x.engine("decode", g, c.dst, d)
				from, to := src.blocksFor(tokens, 1), dst.blocksFor(tokens, 1)
				content := prompt(tokens)
				b.SetBytes(tokens * g.BytesPerToken())
				var handshake, plan, data, verify int64
				for b.Loop() {
					out, err := p.Offer(transceiver.Offer{
						Transfer: agent.NewID(), Engine: "prefill", Content: content, Holding: holding(from), Layers: len(g.Layers),
					})
					if err != nil {
						b.Fatal(err)
					}
					in, err := d.Accept(soon(b), transceiver.Accept{Ticket: out.Ticket, Engine: "decode", Content: content, Holding: holding(to)})
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
					s := r[0].Stages
					handshake, plan = handshake+int64(s.Met-s.Begun), plan+int64(s.Planned-s.Met)
					data, verify = data+int64(s.Moved-s.Moving), verify+int64(s.Ended-s.Moved)
				}
				for name, sum := range map[string]int64{"handshake-µs": handshake, "plan-µs": plan, "data-µs": data, "verify-µs": verify} {
					b.ReportMetric(float64(sum)/float64(b.N), name)
				}
			})
		}
	}
}
