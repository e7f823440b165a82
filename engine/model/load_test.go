package model

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const (
	singleModel  = "testdata/golden/llama-gqa-bf16"
	shardedModel = "testdata/golden/qwen3-sharded-f32"
)

// copyModel copies a committed model to a directory that a test may damage.
func copyModel(t *testing.T, from string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	return dir
}

func rewrite(t *testing.T, path string, change func(data []byte) []byte) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, change(data), 0o600); err != nil {
		t.Fatal(err)
	}
}

// setFields changes fields of a JSON object; nil removes one.
func setFields(t *testing.T, fields map[string]any) func([]byte) []byte {
	return func(data []byte) []byte {
		var object map[string]any
		if err := json.Unmarshal(data, &object); err != nil {
			t.Fatal(err)
		}
		for name, value := range fields {
			if object[name] = value; value == nil {
				delete(object, name)
			}
		}
		changed, err := json.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		return changed
	}
}

// editHeader changes the header of a safetensors file, and its length with it.
func editHeader(t *testing.T, change func(tensors map[string]any)) func([]byte) []byte {
	return func(data []byte) []byte {
		length := binary.LittleEndian.Uint64(data)
		header := data[8 : 8+length]
		var tensors map[string]any
		if err := json.Unmarshal(header, &tensors); err != nil {
			t.Fatal(err)
		}
		change(tensors)
		changed, err := json.Marshal(tensors)
		if err != nil {
			t.Fatal(err)
		}
		out := binary.LittleEndian.AppendUint64(nil, uint64(len(changed)))
		return append(append(out, changed...), data[8+length:]...)
	}
}

func refused(t *testing.T, dir string, kind error, wants ...string) {
	t.Helper()
	_, err := Load(dir)
	if !errors.Is(err, kind) {
		t.Fatalf("error %v, want %v", err, kind)
	}
	for _, want := range wants {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error %q does not say %q", err, want)
		}
	}
}

func TestLoadRefusesConfigs(t *testing.T) {
	for name, c := range map[string]struct {
		fields map[string]any
		want   string
	}{
		"another family":      {map[string]any{"model_type": "mixtral"}, `model_type "mixtral"`},
		"another head":        {map[string]any{"architectures": []string{"LlamaForSequenceClassification"}}, "LlamaForCausalLM can be computed"},
		"another activation":  {map[string]any{"hidden_act": "gelu"}, `hidden_act "gelu"`},
		"biases":              {map[string]any{"attention_bias": true}, "no biases"},
		"a window":            {map[string]any{"use_sliding_window": true}, "sliding-window"},
		"windows by layer":    {map[string]any{"layer_types": []string{"sliding_attention", "full_attention"}}, "sliding-window"},
		"quantized":           {map[string]any{"quantization_config": map[string]any{"bits": 4}}, "quantization_config"},
		"no hidden size":      {map[string]any{"hidden_size": nil}, "hidden size is 0"},
		"uneven heads":        {map[string]any{"num_key_value_heads": 4}, "6 heads cannot share 4 KV heads"},
		"huge":                {map[string]any{"vocab_size": 1 << 40}, "vocabulary is"},
		"odd head":            {map[string]any{"head_dim": 7}, "odd"},
		"partly turned":       {map[string]any{"partial_rotary_factor": 0.5}, "partial_rotary_factor 0.5"},
		"yarn":                {map[string]any{"rope_parameters": nil, "rope_scaling": map[string]any{"type": "yarn", "factor": 4}}, `rope type "yarn"`},
		"half of llama3":      {map[string]any{"rope_parameters": map[string]any{"rope_type": "llama3", "factor": 8}}, "low_freq_factor 0"},
		"theta below nothing": {map[string]any{"rope_parameters": nil, "rope_theta": -1}, "rope theta -1"},
		"BOS beyond":          {map[string]any{"bos_token_id": 128}, "BOS token 128"},
		"EOS beyond":          {map[string]any{"eos_token_id": []int{2, 500}}, "EOS token 500"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := copyModel(t, singleModel)
			if err := os.Remove(filepath.Join(dir, "generation_config.json")); err != nil {
				t.Fatal(err)
			}
			rewrite(t, filepath.Join(dir, "config.json"), setFields(t, c.fields))
			refused(t, dir, ErrConfig, c.want, "config.json")
		})
	}
}

func TestLoadRefusesFiles(t *testing.T) {
	const norm = "model.layers.1.input_layernorm.weight"
	tensorOf := func(tensors map[string]any, name string) map[string]any { return tensors[name].(map[string]any) }
	for name, c := range map[string]struct {
		model, file string
		change      func(data []byte) []byte
		wants       []string
	}{
		"no JSON":         {singleModel, "config.json", func([]byte) []byte { return []byte("{") }, []string{"config.json"}},
		"a text for size": {singleModel, "config.json", setFields(t, map[string]any{"hidden_size": "48"}), []string{"config.json", "hidden_size"}},
		"missing tensor": {
			singleModel, "model.safetensors", editHeader(t, func(all map[string]any) { delete(all, norm) }),
			[]string{norm, "is missing"},
		},
		"wrong shape": {singleModel, "model.safetensors", editHeader(t, func(all map[string]any) {
			tensorOf(all, norm)["shape"] = []int{6, 8}
		}), []string{norm, "[6 8]", "[48]"}},
		"shape beyond data": {singleModel, "model.safetensors", editHeader(t, func(all map[string]any) {
			tensorOf(all, norm)["shape"] = []int{49}
		}), []string{norm, "takes 98 bytes", "name 96"}},
		"shape that overflows": {singleModel, "model.safetensors", editHeader(t, func(all map[string]any) {
			tensorOf(all, norm)["shape"] = []int64{1 << 62, 1 << 62}
		}), []string{norm, "impossible shape"}},
		"negative shape": {singleModel, "model.safetensors", editHeader(t, func(all map[string]any) {
			tensorOf(all, norm)["shape"] = []int64{-48}
		}), []string{norm, "impossible shape"}},
		"offsets beyond the file": {singleModel, "model.safetensors", editHeader(t, func(all map[string]any) {
			tensorOf(all, norm)["data_offsets"] = []int{1 << 40, 1<<40 + 96}
		}), []string{norm, "truncated"}},
		"one offset": {singleModel, "model.safetensors", editHeader(t, func(all map[string]any) {
			tensorOf(all, norm)["data_offsets"] = []int{0}
		}), []string{norm, "data_offsets are [0]"}},
		"another type": {singleModel, "model.safetensors", editHeader(t, func(all map[string]any) {
			tensorOf(all, norm)["dtype"] = "F8_E4M3"
		}), []string{norm, "F8_E4M3", "BF16"}},
		"header too long": {singleModel, "model.safetensors", func(data []byte) []byte {
			binary.LittleEndian.PutUint64(data, maxHeaderBytes+1)
			return data
		}, []string{"at most 100000000"}},
		"header beyond the file": {singleModel, "model.safetensors", func(data []byte) []byte { return data[:100] }, []string{"truncated"}},
		"data cut off":           {singleModel, "model.safetensors", func(data []byte) []byte { return data[:len(data)-1] }, []string{"truncated"}},
		"empty":                  {singleModel, "model.safetensors", func([]byte) []byte { return nil }, []string{"0 bytes are too few"}},
		"header of another kind": {singleModel, "model.safetensors", func(data []byte) []byte { data[8] = '['; return data }, []string{"not a JSON object"}},
		"no map in the index":    {shardedModel, "model.safetensors.index.json", setFields(t, map[string]any{"weight_map": nil}), []string{"weight_map"}},
		"a shard elsewhere": {shardedModel, "model.safetensors.index.json", setFields(t, map[string]any{
			"weight_map": map[string]string{norm: "../model.safetensors"},
		}), []string{norm, "not a file of that directory"}},
		"index that lies": {shardedModel, "model-00001-of-00002.safetensors", editHeader(t, func(all map[string]any) {
			for name := range all {
				if name != "__metadata__" {
					delete(all, name)
				}
			}
		}), []string{"though the index says"}},
		"tokens of another kind": {singleModel, "generation_config.json", setFields(t, map[string]any{"eos_token_id": "end"}), []string{"generation_config.json"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := copyModel(t, c.model)
			rewrite(t, filepath.Join(dir, c.file), c.change)
			refused(t, dir, ErrFile, c.wants...)
		})
	}
}

func TestLoadRefusesMissingFiles(t *testing.T) {
	for _, c := range []struct{ model, file string }{
		{singleModel, "config.json"}, {singleModel, "model.safetensors"}, {shardedModel, "model-00002-of-00002.safetensors"},
	} {
		dir := copyModel(t, c.model)
		if err := os.Remove(filepath.Join(dir, c.file)); err != nil {
			t.Fatal(err)
		}
		refused(t, dir, ErrFile, c.file)
		if err := os.Mkdir(filepath.Join(dir, c.file), 0o700); err != nil {
			t.Fatal(err)
		}
		refused(t, dir, ErrFile, c.file)
	}
}

// TestOldAndNewRope: rope_theta and rope_scaling of older files say what
// rope_parameters says.
func TestOldAndNewRope(t *testing.T) {
	llama3 := map[string]any{
		"rope_type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4, "original_max_position_embeddings": 64,
	}
	for _, c := range []struct {
		fields map[string]any
		want   RoPE
	}{
		{map[string]any{"rope_parameters": nil, "rope_theta": 500000, "rope_scaling": llama3}, RoPE{500000, Llama3Scaling, 8, 1, 4, 64}},
		{map[string]any{"rope_parameters": nil, "rope_scaling": map[string]any{"type": "linear", "factor": 2}}, RoPE{Theta: 10000, Scaling: LinearScaling, Factor: 2}},
		{map[string]any{"rope_parameters": map[string]any{"rope_theta": 1e6, "rope_type": "default"}}, RoPE{Theta: 1e6}},
		{map[string]any{"rope_parameters": nil, "rope_scaling": nil}, RoPE{Theta: 10000}},
	} {
		dir := copyModel(t, singleModel)
		rewrite(t, filepath.Join(dir, "config.json"), setFields(t, c.fields))
		m, err := Load(dir)
		if err != nil {
			t.Fatal(err)
		}
		if m.config.RoPE != c.want {
			t.Errorf("%v: %+v, want %+v", c.fields, m.config.RoPE, c.want)
		}
	}
}

// TestFloat16 compares every half with its definition.
func TestFloat16(t *testing.T) {
	for half := range 1 << 16 {
		exponent, fraction := half>>10&31, float64(half&1023)
		want := math.Ldexp(1+fraction/1024, exponent-15)
		switch exponent {
		case 0:
			want = math.Ldexp(fraction/1024, -14)
		case 31:
			if want = math.Inf(1); fraction != 0 {
				want = math.NaN()
			}
		}
		if half>>15 == 1 {
			want = -want
		}
		got := float64(float16(uint16(half)))
		if got != want && !(math.IsNaN(got) && math.IsNaN(want)) || math.Signbit(got) != (half>>15 == 1) {
			t.Fatalf("half %04x is %v, want %v", half, got, want)
		}
	}
}

// FuzzSafetensors: whatever a file says, reading its header ends in an error or
// in tensors that lie within the file.
func FuzzSafetensors(f *testing.F) {
	for _, header := range []string{
		`{}`,
		`{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}`,
		`{"__metadata__":{"format":"pt"},"a":{"dtype":"BF16","shape":[],"data_offsets":[0,2]}}`,
		`{"a":{"dtype":"F16","shape":[9223372036854775807,2],"data_offsets":[0,8]}}`,
		`{"a":{"dtype":"F16","shape":[0,9223372036854775807,2],"data_offsets":[8,8]}}`,
		`{"a":{"dtype":"I64","shape":[-1],"data_offsets":[3,1]}}`,
		`{"a":null}`,
		`[]`,
	} {
		file := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
		f.Add(append(append(file, header...), make([]byte, 8)...))
	}
	f.Add([]byte{1, 2, 3})
	f.Add([]byte{255, 255, 255, 255, 255, 255, 255, 255, '{', '}'})
	f.Fuzz(func(t *testing.T, data []byte) {
		tensors, err := readHeader(strings.NewReader(string(data)), int64(len(data)))
		if err != nil {
			return
		}
		for name, tensor := range tensors {
			if tensor.begin < 8 || tensor.bytes < 0 || tensor.begin+tensor.bytes > int64(len(data)) {
				t.Fatalf("%q lies at %d…%d of %d bytes", name, tensor.begin, tensor.begin+tensor.bytes, len(data))
			}
			if tensor.dtype.widen == nil {
				continue
			}
			elements := int64(1)
			for _, n := range tensor.shape {
				elements *= n
			}
			if elements*tensor.dtype.bytes != tensor.bytes {
				t.Fatalf("%q of shape %v has %d bytes", name, tensor.shape, tensor.bytes)
			}
		}
	})
}
