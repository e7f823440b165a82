package config

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestExplain(t *testing.T) {
	l, err := Parse("mine.toml", []byte("[scheduler]\nmax_think_tokens = 4096\n[model.qwen3]\nsource = \"here\"\n[model.\"a.b\"]\nsource = \"there\"\n"+
		"[[gateway.backend]]\nurl = \"http://h:1\"\n[[gateway.backend]]\nurl = \"http://h:2\"\nrole = \"prefill\"\n"))
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string][]string{
		"scheduler.max_think_tokens": {"> 0", "32768", "MERIDIAN_SCHEDULER_MAX_THINK_TOKENS", "4096 (mine.toml)"},
		"scheduler":                  {"[scheduler]", "max_think_tokens", "80.0"},
		"disagg.fabric":              {`"nixl" (not in this build)`, `"none" (default)`},
		"model":                      {"[model.<name>]", "channel.open"},
		"model.qwen3":                {"[model.<name>]"},
		"model.llama":                {"[model.<name>]"},
		"model.channel":              {"[model.<name>]", "channel.open"},
		"model.qwen3.channel":        {"channel.open"},
		"model.channel.open":         {"<|channel|>"},
		"model.qwen3.source":         {`"here" (mine.toml)`},
		`model."a.b".source`:         {`"there" (mine.toml)`},
		"gateway.backend":            {"[[gateway.backend]]", "role"},
		"gateway.backend.role":       {`"decode"`, `"both"`},
		"gateway.backend[1].role":    {`"prefill" (mine.toml)`},
		"gateway.backend[0].role":    {`"both" (default)`},
	} {
		text, err := Explain(path, l)
		if err != nil {
			t.Errorf("%s: %v", path, err)
		}
		for _, w := range want {
			if !strings.Contains(text, w) {
				t.Errorf("%s lacks %q:\n%s", path, w, text)
			}
		}
	}
	for path, want := range map[string]string{
		"schedular": "did you mean scheduler?", "scheduler.max_think_token": "did you mean scheduler.max_think_tokens?",
		"model.sourc": "did you mean model.source?", "model.channel.opn": "did you mean model.channel.open?",
		"model.qwen3.sourc": "did you mean model.source?", "": "unknown section", "enabled": "did you mean entropy.enabled or governor.enabled or disagg.enabled or store.enabled?", "gateway.backend.rol": "did you mean gateway.backend.role?",
	} {
		if _, err := Explain(path, l); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", path, err, want)
		}
	}
	if text, err := Explain("model.channel", l); err != nil || strings.Contains(text, "think_end_texts") {
		t.Errorf("%v: a table within a section is not the section:\n%s", err, text)
	}
}

// What is in force cannot be told when nothing could be loaded, and is no
// question where no table is named.
func TestExplainWithoutAConfiguration(t *testing.T) {
	for path, want := range map[string]bool{
		"scheduler.max_think_tokens": true, "model.qwen3.source": true, "model.source": false,
	} {
		text, err := Explain(path, nil)
		if told := strings.Contains(text, "unknown: the configuration cannot be used"); err != nil || told != want {
			t.Errorf("%v\n%s", err, text)
		}
	}
}

func TestShow(t *testing.T) {
	text := "[scheduler]\nmax_think_tokens = 4096\n[model.\"a b\"]\nthink_end_token_ids = [1, 2]\nchannel = {}\n" +
		"[model.\"\\u0000\\u0007\\u200b\\U000e0001\"]\nsource = \"\\u0007\\u000b\\b\\f\\u001b\\u007f\\u0085\\u202e\\\"\\\\é\"\n" +
		"[door]\nallow_uids = [0, 1000]\n[[gateway.backend]]\nurl = \"http://h:1\"\nengine = \"e0\"\n[[gateway.backend]]\nurl = \"http://h:2\"\n"
	l, err := Parse("mine.toml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if set := l.TOML(false); strings.Contains(set, "min_think") || !strings.Contains(set, "max_think_tokens = 4096") || !strings.Contains(set, "# mine.toml") {
		t.Errorf("what was set:\n%s", set)
	}
	all, err := Parse("again.toml", []byte(l.TOML(true)))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(l.Config, all.Config); diff != "" {
		t.Errorf("what is shown does not read back: %s", diff)
	}
	raw, err := l.JSON(true)
	if err != nil {
		t.Fatal(err)
	}
	var tree map[string]map[string]any
	if err := json.Unmarshal(raw, &tree); err != nil || tree["scheduler"]["max_think_tokens"] != 4096.0 || tree["kv_memory"]["capacity_bytes"] != "auto" {
		t.Errorf("%v\n%s", err, raw)
	}
}
