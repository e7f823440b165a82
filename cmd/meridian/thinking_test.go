package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"meridian/run/config"
	"meridian/run/models"
	"meridian/serve/gateway/thought"
)

func TestThinkingOf(t *testing.T) {
	text := ""
	for _, name := range models.Names() {
		table, err := models.Text(name)
		if err != nil {
			t.Fatal(err)
		}
		text += table
	}
	text += "[model.raw]\nthink_end_texts = [\"</t>\"]\nsplit_thoughts = \"opened\"\nthink_limit = \"thinking_token_budget\"\n" +
		"[model.off]\nthink_end_token_ids = [7]\nthink_end_texts = [\"</t>\"]\nsplit_thoughts = \"off\"\nthink_limit = \"vllm_xargs\"\n"
	l, err := config.Parse("f.toml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	of := thinkingOf(l.Config)
	start, end := []string{"<think>"}, []string{"</think>"}
	for name, want := range map[string]thought.Markers{
		"org/Qwen3":   {Starts: start, Ends: end, StartIDs: []uint32{151667}, EndIDs: []uint32{151668}},
		"DeepSeek-R1": {Starts: start, Ends: end, StartIDs: []uint32{128798}, EndIDs: []uint32{128799}, Opened: true},
		"gpt-oss":     {},
		"raw":         {Ends: []string{"</t>"}, Opened: true, Limit: thought.LimitBudget},
		"off":         {Ends: []string{"</t>"}, EndIDs: []uint32{7}, Whole: true, Limit: thought.LimitXArgs},
		"unknown":     {},
	} {
		if diff := cmp.Diff(want, of(name)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestEffortsOf(t *testing.T) {
	l, err := config.Parse("f.toml", []byte("[scheduler]\nmax_think_tokens = 10000\n[gateway.effort]\nlow = 0.25\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]int{"minimal": 1000, "low": 2500, "medium": 5000, "high": 8000, "xhigh": 10000, "max": 10000}
	if diff := cmp.Diff(want, effortsOf(l.Config)); diff != "" {
		t.Error(diff)
	}
}
