package model

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// hfConfig is config.json, as far as it bears on what is computed. A field that
// would change the result and is not understood is an error, not a default.
type hfConfig struct {
	Architectures         []string        `json:"architectures"`
	ModelType             string          `json:"model_type"`
	VocabSize             int             `json:"vocab_size"`
	HiddenSize            int             `json:"hidden_size"`
	IntermediateSize      int             `json:"intermediate_size"`
	NumHiddenLayers       int             `json:"num_hidden_layers"`
	NumAttentionHeads     int             `json:"num_attention_heads"`
	NumKeyValueHeads      int             `json:"num_key_value_heads"`
	HeadDim               int             `json:"head_dim"`
	HiddenAct             string          `json:"hidden_act"`
	RMSNormEps            *float32        `json:"rms_norm_eps"`
	TieWordEmbeddings     bool            `json:"tie_word_embeddings"`
	MaxPositionEmbeddings int             `json:"max_position_embeddings"`
	RopeTheta             float64         `json:"rope_theta"`
	RopeScaling           *hfRope         `json:"rope_scaling"`
	RopeParameters        *hfRope         `json:"rope_parameters"`
	AttentionBias         bool            `json:"attention_bias"`
	MLPBias               bool            `json:"mlp_bias"`
	UseSlidingWindow      bool            `json:"use_sliding_window"`
	LayerTypes            []string        `json:"layer_types"`
	PartialRotaryFactor   *float64        `json:"partial_rotary_factor"`
	QuantizationConfig    json.RawMessage `json:"quantization_config"`
	hfTokens
}

// hfTokens is in config.json and, with precedence, in generation_config.json.
type hfTokens struct {
	BOS      *int     `json:"bos_token_id"`
	EOS      tokenIDs `json:"eos_token_id"`
	Suppress []uint32 `json:"suppress_tokens"`
}

// hfRope is rope_scaling of older files, rope_parameters of newer ones.
type hfRope struct {
	RopeType            string   `json:"rope_type"`
	Type                string   `json:"type"` // its name before rope_type
	RopeTheta           float64  `json:"rope_theta"`
	Factor              float64  `json:"factor"`
	LowFreqFactor       float64  `json:"low_freq_factor"`
	HighFreqFactor      float64  `json:"high_freq_factor"`
	OriginalContext     int      `json:"original_max_position_embeddings"`
	PartialRotaryFactor *float64 `json:"partial_rotary_factor"`
}

// tokenIDs is null, a number or a list of them.
type tokenIDs []uint32

func (ids *tokenIDs) UnmarshalJSON(data []byte) error {
	var one *uint32
	if json.Unmarshal(data, &one) == nil {
		if *ids = nil; one != nil {
			*ids = tokenIDs{*one}
		}
		return nil
	}
	return json.Unmarshal(data, (*[]uint32)(ids))
}

func readConfig(dir string) (Config, error) {
	path := filepath.Join(dir, "config.json")
	var h hfConfig
	if err := readJSON(path, &h); err != nil {
		return Config{}, err
	}
	generation := filepath.Join(dir, "generation_config.json")
	if err := readJSON(generation, &h.hfTokens); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return Config{}, err
	}
	c, err := h.config()
	if err == nil {
		err = c.Validate()
	}
	if err != nil {
		return Config{}, fmt.Errorf("%s: %w", path, err)
	}
	return c, nil
}

func readJSON(path string, into any) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrFile, err)
	}
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("%w: %s: %w", ErrFile, path, err)
	}
	return nil
}

func (h *hfConfig) config() (Config, error) {
	c := Config{
		Vocab: h.VocabSize, Hidden: h.HiddenSize, Intermediate: h.IntermediateSize, Layers: h.NumHiddenLayers,
		Heads: h.NumAttentionHeads, KVHeads: h.NumKeyValueHeads, HeadDim: h.HeadDim,
		NormEpsilon: 1e-6, Tied: h.TieWordEmbeddings, Context: h.MaxPositionEmbeddings,
		BOS: -1, EOS: h.EOS, Suppressed: h.Suppress,
	}
	if err := h.refusal(); err != nil {
		return Config{}, err
	}
	c.HeadNorms = h.ModelType == "qwen3"
	c.KVHeads = cmp.Or(c.KVHeads, c.Heads)
	switch { // what a file leaves out is what the family's configuration class says
	case c.HeadDim != 0 || c.Heads < 1:
	case h.ModelType == "qwen3":
		c.HeadDim = 128
	default:
		c.HeadDim = c.Hidden / c.Heads
	}
	if h.RMSNormEps != nil {
		c.NormEpsilon = *h.RMSNormEps
	}
	if h.BOS != nil && *h.BOS >= 0 {
		c.BOS = *h.BOS
	}
	var err error
	c.RoPE, err = h.rope()
	return c, err
}

// refusal names the first thing that this room does not compute.
func (h *hfConfig) refusal() error {
	architectures := map[string]string{"llama": "LlamaForCausalLM", "qwen3": "Qwen3ForCausalLM"}
	want := architectures[h.ModelType]
	switch {
	case want == "":
		return fmt.Errorf("%w: model_type %q; llama and qwen3 can be computed", ErrConfig, h.ModelType)
	case len(h.Architectures) > 0 && !slices.Contains(h.Architectures, want):
		return fmt.Errorf("%w: architectures %q; of model_type %s, %s can be computed", ErrConfig, h.Architectures, h.ModelType, want)
	case h.HiddenAct != "" && h.HiddenAct != "silu":
		return fmt.Errorf("%w: hidden_act %q; silu can be computed", ErrConfig, h.HiddenAct)
	case h.AttentionBias || h.MLPBias:
		return fmt.Errorf("%w: attention_bias %v, mlp_bias %v; projections here have no biases", ErrConfig, h.AttentionBias, h.MLPBias)
	case h.UseSlidingWindow || slices.ContainsFunc(h.LayerTypes, func(t string) bool { return t != "full_attention" }):
		return fmt.Errorf("%w: sliding-window attention; every layer here attends to everything", ErrConfig)
	case len(h.QuantizationConfig) > 0 && string(h.QuantizationConfig) != "null":
		return fmt.Errorf("%w: quantization_config; take a checkpoint with F32, BF16 or F16 weights", ErrConfig)
	}
	return nil
}

func (h *hfConfig) rope() (RoPE, error) {
	r := RoPE{Theta: h.RopeTheta}
	p := h.RopeParameters
	if p == nil {
		p = h.RopeScaling
	}
	if p == nil {
		p = &hfRope{}
	}
	if p.RopeTheta != 0 {
		r.Theta = p.RopeTheta
	}
	r.Theta = cmp.Or(r.Theta, 10000)
	for _, partial := range []*float64{h.PartialRotaryFactor, p.PartialRotaryFactor} {
		if partial != nil && *partial != 1 {
			return RoPE{}, fmt.Errorf("%w: partial_rotary_factor %v; whole heads are turned here", ErrConfig, *partial)
		}
	}
	kind := cmp.Or(p.RopeType, p.Type)
	switch kind {
	case "", "default":
	case "linear":
		r.Scaling, r.Factor = LinearScaling, p.Factor
	case "llama3":
		r.Scaling, r.Factor = Llama3Scaling, p.Factor
		r.LowFrequency, r.HighFrequency, r.OriginalContext = p.LowFreqFactor, p.HighFreqFactor, p.OriginalContext
	default:
		return RoPE{}, fmt.Errorf("%w: rope type %q; default, linear and llama3 can be computed", ErrConfig, kind)
	}
	return r, nil
}
