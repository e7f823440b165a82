package model

import (
	"testing"

	"meridian/kv"
)

// benchmark runs steps of streams texts, each of chunk new tokens, at contexts
// that grow from 0 to limit and begin again.
func benchmark(b *testing.B, name string, streams, chunk, limit int) {
	m := builtin(b, name)
	const block = 16
	perText := limit / block
	e := newEngine(b, m, Cut{
		Parallelism: kv.Split(m.config.Layers, 1, 1), Layout: layout(b, "LBHNC"), BlockTokens: block, Blocks: perText * streams,
	})
	batch := make([]Slice, streams)
	for i := range batch {
		batch[i] = Slice{Blocks: e.blocks[i*perText:][:perText], Tokens: make([]uint32, chunk), Logits: make([]float32, m.config.Vocab)}
		for t := range batch[i].Tokens {
			batch[i].Tokens[t] = uint32(t*7+i) % 256
		}
	}
	for i := range batch { // at the longest context, so that buffers have grown
		batch[i].Start = limit - chunk
	}
	if err := e.runner.Step(batch); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		for i := range batch {
			if s := &batch[i]; s.Start+2*chunk <= limit {
				s.Start += chunk
			} else {
				s.Start = 0
			}
		}
		if err := e.runner.Step(batch); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N*streams*chunk)/b.Elapsed().Seconds(), "tokens/s")
}

var models = []string{"tiny", "small"}

func BenchmarkDecode1(b *testing.B) {
	for _, name := range models {
		b.Run(name, func(b *testing.B) { benchmark(b, name, 1, 1, 256) })
	}
}

func BenchmarkDecode8(b *testing.B) {
	for _, name := range models {
		b.Run(name, func(b *testing.B) { benchmark(b, name, 8, 1, 256) })
	}
}

func BenchmarkPrefill(b *testing.B) {
	for _, name := range models {
		b.Run(name, func(b *testing.B) { benchmark(b, name, 1, 256, 1024) })
	}
}
