package replay

import (
	"fmt"
	"math"
)

// model is what a roofline needs to know of weights and attention.
type model struct {
	name string
	// shared parameters take part in every token; routed ones are those of
	// experts, of which a token uses chosen of experts.
	shared, routed  float64
	chosen, experts float64
	bytesPerParam   float64
	layers          int
	hidden          int
	// kvBytes is the cache of a token in all layers; pairFlops is what attending to
	// one token costs, in all layers and heads.
	kvBytes   int64
	pairFlops float64
	// decodeFlops is the same for one that is decoded, where that differs.
	decodeFlops float64
	// kvCopies: every GPU holds the whole cache (latent attention, cut by heads).
	kvCopies bool
}

// gpu is a kind of accelerator, by its data sheet, and how much of it is used.
type gpu struct {
	name             string
	bytes, bandwidth float64 // of its memory
	flops            map[float64]float64
	linkBandwidth    float64 // to its neighbours, in one direction
}

// Parts of the data sheet that well-made kernels reach, and what a step costs
// beside its kernels. These are assumptions, stated once, for all profiles.
const (
	bandwidthReached = 0.8
	flopsReached     = 0.6
	memoryUsed       = 0.9
	activationBytes  = 4e9  // a GPU, beside weights and cache
	stepOverheadNs   = 1e6  // scheduler, launch, sampling, detokenizer
	sequenceNs       = 5e3  // of that, for each sequence
	reduceLatencyNs  = 10e3 // one all-reduce of a layer's halves
)

// h200: 141 GB of HBM3e at 4.8 TB/s; 989 TFLOPS of dense bf16, 1979 of fp8; NVLink
// 4, 450 GB/s in one direction. NVIDIA H200 Tensor Core GPU data sheet.
var h200 = gpu{
	name: "h200", bytes: 141e9, bandwidth: 4.8e12, flops: map[float64]float64{2: 989e12, 1: 1979e12}, linkBandwidth: 450e9,
}

// The models, by their config.json. qwen3-32b: 64 layers, 64 heads, 8 KV heads of
// 128, 32.8 G parameters. llama-3.1-70b: 80 layers, 64 heads, 8 KV heads of 128,
// 70.6 G parameters. deepseek-r1: 61 layers, 58 of them with 256 experts of
// 3·7168·2048 parameters of which a token uses 8; the rest of its 671 G is
// shared; a latent of 512 + 64 a token and layer; 128 heads.
var (
	qwen3    = model{name: "qwen3-32b", shared: 32.8e9, bytesPerParam: 2, layers: 64, hidden: 5120, kvBytes: 64 * 2 * 8 * 128 * 2, pairFlops: 4 * 64 * 64 * 128}
	llama70b = model{name: "llama-3.1-70b", shared: 70.6e9, bytesPerParam: 2, layers: 80, hidden: 8192, kvBytes: 80 * 2 * 8 * 128 * 2, pairFlops: 4 * 80 * 64 * 128}
	deepseek = model{
		name: "deepseek-r1", shared: 671e9 - 58*256*3*7168*2048, routed: 58 * 256 * 3 * 7168 * 2048, chosen: 8, experts: 256, bytesPerParam: 1,
		layers: 61, hidden: 7168, kvBytes: 61 * (512 + 64) * 2, pairFlops: 2 * 61 * 128 * (192 + 128), decodeFlops: 2 * 61 * 128 * (576 + 512), kvCopies: true,
	}
)

// Profiles lists the built-in profiles.
func Profiles() []Profile {
	return []Profile{
		roofline(qwen3, h200, 1), roofline(qwen3, h200, 2), roofline(llama70b, h200, 2), roofline(deepseek, h200, 8),
	}
}

// roofline makes the profile of a model cut over so many GPUs; the package's
// comment has the formulas.
func roofline(m model, g gpu, gpus int) Profile {
	n := float64(gpus)
	p := Profile{
		Name:   fmt.Sprintf("%s-%dx%s", m.name, gpus, g.name),
		Source: fmt.Sprintf("roofline: %g of the bandwidth and %g of the FLOPS in the data sheet, tensor parallel over %d", bandwidthReached, flopsReached, gpus),
		StepNs: stepOverheadNs, SequenceNs: sequenceNs,
		KVBytesPerToken: m.kvBytes, BlockTokens: 16, MaxTokens: 8192, MaxSequences: 1024,
	}
	flops := g.flops[m.bytesPerParam] * flopsReached * n
	attention := g.flops[2] * flopsReached * n
	kvBandwidth := g.bandwidth * bandwidthReached * n
	if m.kvCopies {
		kvBandwidth /= n
	}
	decodeFlops := max(m.decodeFlops, m.pairFlops)
	p.ContextNs = 1e9 * max(float64(m.kvBytes)/kvBandwidth, decodeFlops/attention)
	p.PairNs = 1e9 * m.pairFlops / attention
	for tokens := int32(1); tokens <= p.MaxTokens; tokens = max(tokens+1, tokens*17/16) {
		p.Dense = append(p.Dense, Point{Tokens: tokens, Ns: 1e9 * m.dense(float64(tokens), g, n, flops)})
	}
	weights := (m.shared + m.routed) * m.bytesPerParam
	room := n*(g.bytes*memoryUsed-activationBytes) - weights
	if m.kvCopies {
		room /= n
	}
	p.Blocks = int32(room / float64(m.kvBytes) / float64(p.BlockTokens))
	return p
}

// dense is the time, in seconds, of everything but attention: weights are read
// once, or multiplied by tokens, whichever takes longer; and halves of layers are
// summed up between GPUs.
func (m model) dense(tokens float64, g gpu, gpus, flops float64) float64 {
	touched := m.shared
	active := m.shared
	if m.experts > 0 {
		touched += m.routed * (1 - math.Pow(1-m.chosen/m.experts, tokens))
		active += m.routed * m.chosen / m.experts
	}
	read := touched * m.bytesPerParam / (g.bandwidth * bandwidthReached * gpus)
	computed := 2 * active * tokens / flops
	reduced := 0.0
	if gpus > 1 {
		moved := 2 * (gpus - 1) / gpus * tokens * float64(m.hidden) * 2
		reduced = 2 * float64(m.layers) * (reduceLatencyNs/1e9 + moved/(g.linkBandwidth*bandwidthReached))
	}
	return max(read, computed) + reduced
}
