package kv

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// models is the shapes that models' published config.json files name. DeepSeek
// keeps a latent of 512 and a shared rotary part of 64; the indexer of V3.2
// keeps 128 bytes in fp8 and one fp32 scale. "tiny" is no published model: four layers for
// trials.
var models = []struct {
	name     string
	geometry func() Geometry
}{
	{"llama-3.1-8b", func() Geometry { return Uniform(32, Layer{KVHeads: 8, HeadDim: 128}, BFloat16) }},
	{"llama-3.1-70b", func() Geometry { return Uniform(80, Layer{KVHeads: 8, HeadDim: 128}, BFloat16) }},
	{"llama-3.1-405b", func() Geometry { return Uniform(126, Layer{KVHeads: 8, HeadDim: 128}, BFloat16) }},
	{"qwen3-30b-a3b", func() Geometry { return Uniform(48, Layer{KVHeads: 4, HeadDim: 128}, BFloat16) }},
	{"deepseek-r1", func() Geometry {
		return Uniform(61, Layer{Attention: Latent, KVHeads: 1, HeadDim: 512 + 64}, BFloat16)
	}},
	{"deepseek-v3.2", func() Geometry {
		return Uniform(61, Layer{Attention: Latent, KVHeads: 1, HeadDim: 512 + 64, IndexBytes: 128 + 4}, BFloat16)
	}},
	{"gpt-oss-120b", func() Geometry {
		return Uniform(36, Layer{KVHeads: 8, HeadDim: 64}, BFloat16).Windowed(128, 2)
	}},
	{"gemma-3-27b", func() Geometry {
		return Uniform(62, Layer{KVHeads: 16, HeadDim: 128}, BFloat16).Windowed(1024, 6)
	}},
	{"tiny", func() Geometry { return Uniform(4, Layer{KVHeads: 2, HeadDim: 32}, Float32) }},
}

// ModelNames lists the models whose geometry is known, in alphabetical order.
func ModelNames() []string {
	names := make([]string, len(models))
	for i, m := range models {
		names[i] = m.name
	}
	slices.Sort(names)
	return names
}

// ModelGeometry returns the geometry of a model by its name.
func ModelGeometry(name string) (Geometry, error) {
	for _, m := range models {
		if m.name == strings.ToLower(name) {
			return m.geometry(), nil
		}
	}
	return Geometry{}, fmt.Errorf("kv: no geometry of a model %q is known: there are %s", name, strings.Join(ModelNames(), ", "))
}

// Windowed returns g with a sliding window on all layers but every fullEvery-th,
// as models alternate them; fullEvery of 0 leaves no layer full.
func (g Geometry) Windowed(windowTokens, fullEvery int) Geometry {
	layers := slices.Clone(g.Layers)
	for i := range layers {
		if fullEvery < 1 || (i+1)%fullEvery != 0 {
			layers[i].WindowTokens = windowTokens
		}
	}
	return Geometry{DType: g.DType, Layers: layers}
}

// ParseGeometry reads the name of a model, or its shape:
//
//	layers=7,kv_heads=4,head_dim=8,dtype=bf16
//	layers=61,latent=576,index_bytes=132,dtype=bf16
//	layers=36,kv_heads=8,head_dim=64,window=128,full_every=2
//
// Without dtype it is bf16. full_every says which layers have no window.
func ParseGeometry(text string) (Geometry, error) {
	if !strings.Contains(text, "=") {
		return ModelGeometry(text)
	}
	dtype := BFloat16
	numbers := make(map[string]int)
	var seen []string
	for part := range strings.SplitSeq(text, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		var err error
		switch {
		case slices.Contains(seen, name):
			err = fmt.Errorf("%w: it is there twice", ErrShape)
		case name == "dtype":
			dtype, err = ParseDType(value)
		case slices.Contains([]string{"layers", "kv_heads", "head_dim", "latent", "index_bytes", "window", "full_every"}, name):
			numbers[name], err = positive(value)
		default:
			err = fmt.Errorf("%w: there are layers, kv_heads, head_dim, latent, index_bytes, window, full_every and dtype", ErrShape)
		}
		if err != nil {
			return Geometry{}, fmt.Errorf("%q in %q: %w", part, text, err)
		}
		seen = append(seen, name)
	}
	layer := Layer{KVHeads: numbers["kv_heads"], HeadDim: numbers["head_dim"], IndexBytes: numbers["index_bytes"]}
	if latent, is := numbers["latent"]; is {
		if layer.KVHeads != 0 || layer.HeadDim != 0 {
			return Geometry{}, fmt.Errorf("%w: %q: a latent takes the place of kv_heads and head_dim", ErrShape, text)
		}
		layer = Layer{Attention: Latent, KVHeads: 1, HeadDim: latent, IndexBytes: layer.IndexBytes}
	}
	if numbers["layers"] > maxLayers {
		return Geometry{}, fmt.Errorf("%w: %d layers, must be 1…%d", ErrShape, numbers["layers"], maxLayers)
	}
	g := Uniform(numbers["layers"], layer, dtype)
	if window, has := numbers["window"]; has {
		g = g.Windowed(window, numbers["full_every"])
	}
	return g, g.Validate()
}

func positive(text string) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		return 0, fmt.Errorf("%w: %q is not a number from 1 on", ErrShape, text)
	}
	return n, nil
}
