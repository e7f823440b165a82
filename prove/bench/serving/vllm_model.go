package serving

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"

	"meridian/kv"
	"meridian/prove/bench"
)

const (
	modelHidden = 128
	modelWords  = 320 // of the vocabulary; the rest of it is never chosen by a prompt
	// modelSpread is the standard deviation of weights: with large ones a model
	// chooses sharply, and another cache gives other tokens.
	modelSpread = 0.3
	// firstByteToken is the id of byte 0; those of the other bytes follow.
	firstByteToken = 3
)

// queriesPerHead is how many heads share a head of the cache.
const queriesPerHead = 2

// WriteModel writes the model whose cache has a shape, as kv.ParseGeometry takes it, and
// tells the bytes of that cache for a token.
func WriteModel(dir, shape string, context int) (bytesPerToken int64, err error) {
	g, err := kv.ParseGeometry(shape)
	if err != nil {
		return 0, fmt.Errorf("%w: %w", bench.ErrOptions, err)
	}
	return g.BytesPerToken(), writeModel(dir, g, context)
}

// writeModel writes a Llama with random weights whose cache has the geometry,
// in Hugging Face's format.
func writeModel(dir string, g kv.Geometry, context int) error {
	layer := g.Layers[0]
	if g.DType != kv.Float32 || len(g.Groups()) != 1 || layer.Attention != kv.KeyValue || layer.WindowTokens != 0 || layer.IndexBytes != 0 {
		return fmt.Errorf("%w: a model with such a cache is not made here: equal layers of kv_heads and head_dim in fp32 are", bench.ErrOptions)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	files := map[string]any{
		"config.json": map[string]any{
			"architectures": []string{"LlamaForCausalLM"}, "model_type": "llama", "vocab_size": modelWords, "hidden_size": modelHidden,
			"intermediate_size": 2 * modelHidden, "num_hidden_layers": len(g.Layers), "num_attention_heads": queriesPerHead * layer.KVHeads,
			"num_key_value_heads": layer.KVHeads, "head_dim": layer.HeadDim, "hidden_act": "silu", "max_position_embeddings": context,
			"rms_norm_eps": 1e-6, "rope_theta": 10000.0, "tie_word_embeddings": false, "bos_token_id": 1, "eos_token_id": 2, "dtype": "float32",
		},
		"tokenizer.json":        byteTokenizer(),
		"tokenizer_config.json": map[string]any{"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"},
	}
	for name, content := range files {
		text, err := json.Marshal(content)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(dir, "model.safetensors"), safetensors(weightsOf(g)), 0o600)
}

// weight is the name and shape of one tensor.
type weight struct {
	name  string
	shape []int
}

func weightsOf(g kv.Geometry) []weight {
	keys := g.Layers[0].KVHeads * g.Layers[0].HeadDim
	queries := queriesPerHead * keys
	all := []weight{{"model.embed_tokens.weight", []int{modelWords, modelHidden}}}
	for i := range g.Layers {
		for _, w := range []weight{
			{"input_layernorm", []int{modelHidden}},
			{"self_attn.q_proj", []int{queries, modelHidden}},
			{"self_attn.k_proj", []int{keys, modelHidden}},
			{"self_attn.v_proj", []int{keys, modelHidden}},
			{"self_attn.o_proj", []int{modelHidden, queries}},
			{"post_attention_layernorm", []int{modelHidden}},
			{"mlp.gate_proj", []int{2 * modelHidden, modelHidden}},
			{"mlp.up_proj", []int{2 * modelHidden, modelHidden}},
			{"mlp.down_proj", []int{modelHidden, 2 * modelHidden}},
		} {
			all = append(all, weight{fmt.Sprintf("model.layers.%d.%s.weight", i, w.name), w.shape})
		}
	}
	return append(all, weight{"model.norm.weight", []int{modelHidden}}, weight{"lm_head.weight", []int{modelWords, modelHidden}})
}

// safetensors is a file of random weights: a header in JSON, then the numbers.
// Those of norms are 1.
func safetensors(all []weight) []byte {
	chance := rand.New(rand.NewPCG(1, 2))
	header := map[string]any{"__metadata__": map[string]string{"format": "pt"}}
	var numbers []byte
	for _, w := range all {
		begin, count := len(numbers), 1
		for _, extent := range w.shape {
			count *= extent
		}
		for range count {
			value := float32(1)
			if len(w.shape) > 1 {
				value = float32(chance.NormFloat64() * modelSpread)
			}
			numbers = binary.LittleEndian.AppendUint32(numbers, math.Float32bits(value))
		}
		header[w.name] = map[string]any{"dtype": "F32", "shape": w.shape, "data_offsets": []int{begin, len(numbers)}}
	}
	text, err := json.Marshal(header)
	if err != nil {
		panic(err) // texts and numbers
	}
	text = append(text, strings.Repeat(" ", -len(text)&7)...)
	return append(append(binary.LittleEndian.AppendUint64(nil, uint64(len(text))), text...), numbers...)
}

// byteTokenizer knows the bytes and no longer words.
func byteTokenizer() map[string]any {
	words := []string{"<unk>", "<s>", "</s>"}
	spare := rune(256)
	for b := range rune(256) {
		if b > ' ' && b < 0x7f || b > 0xa0 && b != 0xad { // these stand for themselves in byte-level vocabularies
			words = append(words, string(b))
			continue
		}
		words = append(words, string(spare))
		spare++
	}
	for len(words) < modelWords {
		words = append(words, fmt.Sprintf("<unused-%d>", len(words)))
	}
	vocabulary := make(map[string]int)
	for id, word := range words {
		vocabulary[word] = id
	}
	var added []map[string]any
	for id, word := range words[:firstByteToken] {
		added = append(added, map[string]any{
			"id": id, "content": word, "special": true, "normalized": false, "single_word": false, "lstrip": false, "rstrip": false,
		})
	}
	bytes := map[string]any{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false}
	return map[string]any{
		"version": "1.0", "added_tokens": added, "pre_tokenizer": bytes, "decoder": bytes,
		"model": map[string]any{"type": "BPE", "vocab": vocabulary, "merges": []string{}},
	}
}
