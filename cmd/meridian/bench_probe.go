package main

import (
	"context"

	"meridian/prove/bench/deciding"
)

type benchProbe struct {
	benchDeciding
	Vocabulary int    `default:"151936" placeholder:"N" help:"Logits of a row; default ${default}, Qwen3's."`
	Rows       int    `default:"64" placeholder:"N" help:"Rows of a round, each read once; default ${default}."`
	PeersDir   string `default:".peers" env:"MERIDIAN_PEERS_DIR" placeholder:"DIR" help:"Where make vllm put torch; default ${default}."`
}

func (c *benchProbe) Help() string {
	return "The entropy of the same rows in this program and in torch, one thread each, round by round; of what people write in torch, the fastest. " +
		"Where torch is not at hand, the definition in float64 stands beside. Every entropy is checked.\n\n" +
		"GODEBUG=cpu.avx512f=off measures AVX2, and with cpu.avx2=off the portable form: all of them give the same bits."
}

func (c *benchProbe) Run(std *stdio) error {
	return c.run(std, "probe", func(ctx context.Context, o deciding.Options) (*deciding.Report, error) {
		return deciding.RunProbe(ctx, deciding.ProbeOptions{Options: o, Vocabulary: c.Vocabulary, Rows: c.Rows, PeersDir: c.PeersDir})
	})
}
