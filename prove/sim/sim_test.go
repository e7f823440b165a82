package sim

import (
	"bufio"
	"context"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"meridian/internal/seeded"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// report fails the test with the story of a violation.
func report(t *testing.T, r *Result) {
	t.Helper()
	var story strings.Builder
	if err := r.Tell(&story, 200); err != nil {
		t.Fatal(err)
	}
	t.Error(story.String())
}

// Some hundred worlds, as many as there is time for in every run of the tests;
// `meridian sim` looks at more. What they exercise is demanded: a world in which
// nothing happens keeps every promise.
func TestWorlds(t *testing.T) {
	found, err := RunSeeds(t.Context(), SeedOptions{Seeds: 200})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range found.Failures {
		report(t, r)
	}
	for _, s := range found.Tally.sections() {
		for _, c := range s.Counts {
			if unknown := c.Name == seeded.OtherReason; (*c.N == 0) != unknown {
				t.Errorf("%s: %q was counted %d times; worlds exercise everything, and nothing that has no name", s.Title, c.Name, *c.N)
			}
		}
	}
}

// The same seed gives the same events, to the byte.
func TestSameSeedSameStory(t *testing.T) {
	var s reusable
	defer s.arenas.close()
	for seed := range uint64(100) {
		seed += 1000
		first, again := s.run(Options{Seed: seed}), Run(Options{Seed: seed})
		if x, y := first.Lines(), again.Lines(); !slices.Equal(x, y) {
			t.Fatalf("seed %d differs from itself:\n%s", seed, cmp.Diff(x, y))
		}
		if first.Tally != again.Tally {
			t.Errorf("seed %d counts %+v, then %+v", seed, first.Tally, again.Tally)
		}
		if len(first.story) < 20 {
			t.Errorf("seed %d has %d events", seed, len(first.story))
		}
	}
}

// Seeds that once broke a promise. A world that another change has made
// different may show nothing any more; it does no harm either.
func TestSeedsThatFailed(t *testing.T) {
	f, err := os.Open("testdata/seeds.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	seeds := 0
	for lines := bufio.NewScanner(f); lines.Scan(); {
		text, _, _ := strings.Cut(lines.Text(), "#")
		if text = strings.TrimSpace(text); text == "" {
			continue
		}
		seed, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		seeds++
		if r := Run(Options{Seed: seed}); r.Violation != nil {
			report(t, r)
		}
	}
	if seeds == 0 {
		t.Error("no seeds were found")
	}
}

func TestFaultsAreChosen(t *testing.T) {
	for _, c := range []struct {
		faults []Fault
		may    []Fault
	}{{[]Fault{}, nil}, {[]Fault{Crash, Delay}, []Fault{Crash, Delay}}} {
		found, err := RunSeeds(t.Context(), SeedOptions{Seeds: 40, Faults: c.faults})
		if err != nil || len(found.Failures) > 0 {
			t.Fatalf("%v: %v, %d failures", c.faults, err, len(found.Failures))
		}
		for f, n := range found.Tally.Faults {
			if (n > 0) != slices.Contains(c.may, Fault(f)) {
				t.Errorf("with %v, %v happened %d times", c.faults, Fault(f), n)
			}
		}
		if found.Tally.Ends[0][0] == 0 || found.Tally.Ends[1][0] == 0 {
			t.Errorf("with %v nothing was done", c.faults)
		}
	}
}

func TestTraceIsReplayed(t *testing.T) {
	o := Options{Seed: 7, Faults: []Fault{Crash, Reset, Pause}}
	var trace strings.Builder
	if err := Run(o).WriteTrace(&trace); err != nil {
		t.Fatal(err)
	}
	again, err := Replay(strings.NewReader(trace.String()))
	if err != nil {
		t.Fatal(err)
	}
	if difference := cmp.Diff(o, again.Options); difference != "" {
		t.Error(difference)
	}
	lines := strings.SplitAfter(trace.String(), "\n")
	changed := slices.Clone(lines)
	changed[20] = "something else\n"
	for name, c := range map[string]struct{ trace, want string }{
		"changed":       {strings.Join(changed, ""), "event 17 differs"},
		"cut":           {strings.Join(lines[:30], ""), "ends before event 27"},
		"longer":        {trace.String() + "and then\n", "goes on after event"},
		"no trace":      {"MRDN", "not a trace"},
		"no seed":       {traceTitle + "\nseed x\n\n", "not a trace"},
		"unknown fault": {traceTitle + "\nfaults rain\n\n", `no fault "rain"`},
		"unknown field": {traceTitle + "\nweather rain\n\n", "unknown field"},
	} {
		if _, err := Replay(strings.NewReader(c.trace)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

func TestStoryOfAViolation(t *testing.T) {
	var s reusable
	defer s.arenas.close()
	w := newWorld(&s, Options{Seed: 3, Faults: []Fault{}})
	w.begin()
	w.nextErrand(w.swarm.errands)
	w.runUntil(func() bool { return len(w.posted) > 5 && w.posted[5].over }, 1<<62)
	x := w.posted[5]
	w.violate("promises are kept", x, "this one was not, by %v", x)
	w.violate("a second one", nil, "is not the first")
	w.state = w.describe()
	w.clear()
	r := &Result{Options: w.options, Violation: w.violation, about: w.about, story: w.story, world: w.swarm.String(), state: w.state}
	var b strings.Builder
	if err := r.Tell(&b, 1000); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"seed 3 breaks a promise", "promise: promises are kept", "instead: this one was not, by T5", "T5    posts a ", "T5    is ",
		"the world: ", "how things stood:\n  a#1: posted", "epoch 1, registered true", "to see it again: meridian sim --seed 3 --faults none\n",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the story does not say %q:\n%s", want, b.String())
		}
	}
	if strings.Contains(b.String(), " T4 ") {
		t.Error("the story tells of another transfer")
	}
}

func TestHuntEnds(t *testing.T) {
	if _, err := RunSeeds(t.Context(), SeedOptions{}); err == nil {
		t.Error("a run without end has begun")
	}
	ctx, cancel := context.WithCancel(t.Context())
	worlds := uint64(0)
	_, err := RunSeeds(ctx, SeedOptions{Seeds: 1 << 40, Jobs: 2, Progress: func(p Progress) {
		if worlds = p.Worlds; worlds == 5 {
			cancel()
		}
	}})
	if err == nil || worlds < 5 || worlds > 7 {
		t.Errorf("a run that was stopped after 5 worlds went on to %d: %v", worlds, err)
	}
}
