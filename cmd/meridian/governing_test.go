package main

import (
	"log/slog"
	"slices"
	"testing"

	"meridian/engine"
	"meridian/run/config"
	"meridian/serve/governing"
)

// A model that reference engines bring along is known, a table of its name goes first, and
// others are not guessed at.
func TestGovernorsKnowBuiltInModels(t *testing.T) {
	in, err := config.Parse("test", []byte("[model.small]\nthink_start_token_ids = [6]\nthink_end_token_ids = [7]\n"))
	if err != nil {
		t.Fatal(err)
	}
	builtIn, _ := engine.Thoughts("tiny")
	models := thinkers{in: in.Config, logger: slog.New(slog.DiscardHandler), known: make(map[string]governing.Model)}
	for name, want := range map[string][]uint32{"tiny": builtIn.Force(), "small": {7}, "org/tiny": nil, "other": nil} {
		m, err := models.model(name)
		if err != nil {
			t.Fatal(err)
		}
		var got []uint32
		if m.Phase != nil {
			got = m.Phase.Force()
		}
		if !slices.Equal(got, want) {
			t.Errorf("a thought of %s ends with %v, want %v", name, got, want)
		}
	}
}
