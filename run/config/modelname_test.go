package config

import (
	"errors"
	"testing"
)

func TestModelOf(t *testing.T) {
	l, err := Parse("m.toml", []byte(`
[model.qwen3_32b]
think_end_token_ids = [1]
[model."Qwen/QwQ-32B"]
think_end_token_ids = [2]
[model."other/QwQ-32B"]
think_end_token_ids = [3]
[model.deepseek_r1]
think_end_token_ids = [4]
`))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"qwen3_32b": "qwen3_32b", "Qwen/Qwen3-32B": "qwen3_32b", "/data/models/Qwen3.32B": "qwen3_32b",
		"Qwen/QwQ-32B": "Qwen/QwQ-32B", "other/QwQ-32B": "other/QwQ-32B",
		"deepseek-ai/DeepSeek-R1": "deepseek_r1",
		// Another vocabulary, in which 4 means something else.
		"deepseek-ai/DeepSeek-R1-Distill-Qwen-7B": "", "qwen3": "", "": "",
	} {
		table, m, err := l.ModelOf(name)
		if err != nil || table != want || (len(m.ThinkEndTokenIDs) == 0) != (want == "") {
			t.Errorf("%q: %q, %+v, %v; want %q", name, table, m, err, want)
		}
	}
	if _, _, err := l.ModelOf("qwq-32b"); !errors.Is(err, ErrModels) {
		t.Errorf("two fit: %v", err)
	}
}
