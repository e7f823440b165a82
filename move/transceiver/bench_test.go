package transceiver_test

import (
	"fmt"
	"testing"
	"time"

	"meridian/kv"
	"meridian/move/agent"
	"meridian/move/transceiver"
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
					in, err := d.accept(soon(b), shown{Ticket: out.Ticket, Engine: "decode", Content: content, Holding: holding(to)})
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

// BenchmarkChunks hands a long prompt over that is computed in eight chunks, a hundred
// milliseconds each: how long after its last layer it is there, when it is told of as a
// whole at the end, of the layers of its last chunk alone, and chunk by chunk. The three
// take turns.
func BenchmarkChunks(b *testing.B) {
	g := kv.Uniform(10, kv.Layer{KVHeads: 8, HeadDim: 128}, kv.BFloat16)
	const tokens, chunk, layerTakes = 8192, 1024, 10 * time.Millisecond
	cut := shape{tp: 1, pp: 1, blockTokens: 16, blocks: tokens/16 + 1, layout: "LBHNC"}
	for _, fabricName := range []string{"host", "tcp"} {
		b.Run(fabricName, func(b *testing.B) {
			x := newCell(b, fabricName)
			p, d := x.start("p"), x.start("d")
			src, dst := x.engine("prefill", g, cut, p), x.engine("decode", g, cut, d)
			from, to := src.blocksFor(tokens, 1), dst.blocksFor(tokens, 1)
			content := prompt(tokens)
			after := make(map[string]time.Duration)
			for b.Loop() {
				for _, way := range []string{"whole", "last-chunk", "chunks"} {
					out, err := p.Offer(transceiver.Offer{Transfer: agent.NewID(), Engine: "prefill", Content: content, Holding: holding(from)})
					if err != nil {
						b.Fatal(err)
					}
					in, err := d.accept(soon(b), shown{Ticket: out.Ticket, Engine: "decode", Content: content, Holding: holding(to)})
					if err != nil {
						b.Fatal(err)
					}
					var computed time.Time
					for end := chunk; end <= tokens; end += chunk {
						for layer := range len(g.Layers) {
							time.Sleep(layerTakes) // it is computed
							last := end == tokens && layer == len(g.Layers)-1
							if last {
								computed = time.Now()
							}
							if way == "chunks" || way == "last-chunk" && end == tokens || last {
								out.Progress(layer+1, end)
							}
						}
					}
					if err := in.Wait(soon(b)); err != nil {
						b.Fatal(err)
					}
					after[way] += time.Since(computed)
					if err := out.Wait(soon(b)); err != nil {
						b.Fatal(err)
					}
				}
			}
			for way, sum := range after {
				b.ReportMetric(float64(sum.Microseconds())/1000/float64(b.N), way+"-ms")
			}
		})
	}
}
