package models_test

import (
	"strings"
	"testing"

	"meridian/decide/phase"
	"meridian/run/config"
	"meridian/run/models"
)

func TestEveryTableIsCheckedAndSourced(t *testing.T) {
	if len(models.Names()) == 0 {
		t.Fatal("no tables")
	}
	for _, name := range models.Names() {
		text, err := models.Text(name)
		if err != nil {
			t.Fatal(err)
		}
		loaded, err := config.Parse(name+".toml", []byte(text))
		if err != nil {
			t.Errorf("%v", err)
			continue
		}
		m, named := loaded.Model[name]
		if !named || len(loaded.Model) != 1 {
			t.Errorf("%s.toml must hold [model.%s] and nothing else", name, name)
		}
		if m.Source == "" || m.ReasoningParser == "" || len(m.Markers.Start) == 0 || len(m.Markers.End) == 0 {
			t.Errorf("%s: source %q, parser %q, markers %+v", name, m.Source, m.ReasoningParser, m.Markers)
		}
		// Without a tokenizer, ids can be looked for, and what has none says so.
		_, err = phase.NewModel(m.Markers)
		if wants := len(m.ThinkEndTokenIDs) == 0; wants != (err != nil) || wants && !strings.Contains(err.Error(), "tokenizer.json") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The ids that other tables get wrong, pinned (see the comments in the files).
func TestPinnedIDs(t *testing.T) {
	for name, want := range map[string][2]uint32{
		"deepseek_r1":     {128798, 128799},
		"qwen3":           {151667, 151668},
		"r1_distill_qwen": {151648, 151649},
		"glm_4_5":         {151350, 151351},
	} {
		text, err := models.Text(name)
		if err != nil {
			t.Fatal(err)
		}
		loaded, err := config.Parse(name, []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		markers := loaded.Model[name].Markers
		if got := [2]uint32{markers.Start[0].IDs[0], markers.End[0].IDs[0]}; got != want {
			t.Errorf("%s: got %v, want %v", name, got, want)
		}
	}
}

func TestUnknownFamilyNamesTheKnown(t *testing.T) {
	if _, err := models.Text("../config/schema"); err == nil || !strings.Contains(err.Error(), "qwen3") {
		t.Errorf("got %v", err)
	}
}
