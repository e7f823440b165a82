package cell

import (
	"strings"
	"testing"
)

func TestParseCut(t *testing.T) {
	got, err := ParseCut("tp=4, pp=2,block=64")
	if want := (Cut{TP: 4, PP: 2, BlockTokens: 64, Layout: "LBHNC"}); err != nil || got != want {
		t.Errorf("%+v, %v", got, err)
	}
	if again, err := ParseCut(got.String()); err != nil || again != got {
		t.Errorf("%+v, %v", again, err)
	}
	for text, want := range map[string]string{
		"":              "want NAME=VALUE",
		"tp":            "want NAME=VALUE",
		"tp=2,tp=4":     "at most once",
		"tp=0":          "not a number from 1",
		"block=-1":      "not a number from 1",
		"layout=LLLLL":  "layout",
		"tensor=2":      `unknown name "tensor"`,
		"tp=2,block=1e": "not a number from 1",
	} {
		if _, err := ParseCut(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

func TestParseWorkers(t *testing.T) {
	if got, err := ParseWorkers("2x3"); err != nil || got != (Workers{Prefill: 2, Decode: 3}) || got.String() != "2x3" {
		t.Errorf("%+v, %v", got, err)
	}
	for _, text := range []string{"", "2", "0x1", "1x0", "1x2x3", "axb", "1x1000"} {
		if got, err := ParseWorkers(text); err == nil {
			t.Errorf("%q is %+v", text, got)
		}
	}
}

func TestEnginesRegisterWithTheAgentOfTheirSide(t *testing.T) {
	s := DefaultSpec()
	s.Workers = Workers{Prefill: 1, Decode: 3}
	stages, err := s.stages(places{state: "/state"})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, plan := range stages[2] {
		names = append(names, plan.Name+"@"+flagOf(plan.Args, "--agent")+" tp="+flagOf(plan.Args, "--tp")+" block="+flagOf(plan.Args, "--block"))
	}
	want := "prefill-0@prefill tp=2 block=16, decode-0@decode tp=4 block=64, decode-1@decode tp=4 block=64, decode-2@decode tp=4 block=64"
	if got := strings.Join(names, ", "); got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
}

func TestAgentsKeepObjectsWhenTold(t *testing.T) {
	for store, want := range map[string]string{"": "", "64MiB": "64MiB"} {
		s := DefaultSpec()
		s.Store = store
		stages, err := s.stages(places{state: "/state"})
		if err != nil {
			t.Fatal(err)
		}
		for _, plan := range stages[1] {
			if got := flagOf(plan.Args, "--store"); got != want {
				t.Errorf("%s has --store %q, want %q", plan.Name, got, want)
			}
		}
	}
}

func TestEnginesAreAsLargeAsTold(t *testing.T) {
	for running, want := range map[int]string{0: "", 6: "6"} {
		s := DefaultSpec()
		s.MaxRunning = running
		stages, err := s.stages(places{state: "/state"})
		if err != nil {
			t.Fatal(err)
		}
		for _, plan := range stages[2] {
			if got := flagOf(plan.Args, "--max-running"); got != want {
				t.Errorf("%s has --max-running %q, want %q", plan.Name, got, want)
			}
		}
	}
}
