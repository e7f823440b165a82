package transfer

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"meridian/prove/bench"
)

// actor is a contender that only remembers what it was asked.
type actor struct {
	title     string
	diary     *[]string
	likesPins bool
	failAt    string // what it fails at
	awake     bool
}

func (a *actor) note(what string) error {
	*a.diary = append(*a.diary, a.title+" "+what)
	if !a.awake {
		return errors.New("asked while others had their turn")
	}
	if what == a.failAt {
		return errors.New("no luck")
	}
	return nil
}

func (a *actor) Name() string                     { return a.title }
func (a *actor) load(context.Context, Case) error { return a.note("load") }
func (a *actor) clear(context.Context) error      { return a.note("clear") }
func (a *actor) verify(context.Context) error     { return a.note("verify") }
func (a *actor) rest()                            { a.awake = false }
func (a *actor) wake()                            { a.awake = true }
func (a *actor) PIDs() []int                      { return nil }
func (a *actor) Close(context.Context) error      { return a.note("close") }

func (a *actor) round(_ context.Context, pinned bool) (float64, error) {
	if pinned == a.likesPins {
		return 2, a.note("round")
	}
	return 1, a.note("round")
}

func TestPeersTakeTurns(t *testing.T) {
	var diary []string
	a := &actor{title: "a", diary: &diary, likesPins: true}
	b := &actor{title: "b", diary: &diary}
	f := newField(&Report{})
	f.Peers = []contender{a, b}
	h := &heat{field: f, rounds: 3, progress: func(int, string) {}, scores: map[contender][]float64{}, pinned: map[contender]bool{}}
	if err := h.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	rounds := diary[slices.Index(diary, "b load")+1+1+2*trials:]
	want := "a round, b round, a round, b round, a clear, a round, a verify, b clear, b round, b verify"
	if got := strings.Join(rounds, ", "); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if !h.pinned[a] || h.pinned[b] {
		t.Errorf("pinned %v, each contender that likes it must be", h.pinned)
	}
	if got := bench.NewFigure(h.scores[a]); got != (bench.Figure{Median: 2, Min: 2, Max: 2}) {
		t.Errorf("a scored %+v", got)
	}
}

// A peer that fails is named and left out; the others go on.
func TestPeerThatFails(t *testing.T) {
	for _, at := range []string{"load", "round", "clear", "verify"} {
		var diary []string
		bad := &actor{title: "bad", diary: &diary, failAt: at}
		good := &actor{title: "good", diary: &diary}
		f := newField(&Report{})
		f.Peers = []contender{bad, good}
		h := &heat{field: f, rounds: 2, progress: func(int, string) {}, scores: map[contender][]float64{}, pinned: map[contender]bool{}}
		if err := h.run(t.Context()); err != nil {
			t.Fatal(err)
		}
		if len(f.Peers) != 1 || len(h.scores) != 1 || len(h.scores[good]) != 2 {
			t.Errorf("%s: %d peers, scores %v", at, len(f.Peers), h.scores)
		}
		if len(f.report.Absent) != 1 || f.report.Absent[0].String() != "bad is absent: it failed: no luck" {
			t.Errorf("%s: %v", at, f.report.Absent)
		}
		if !slices.Contains(diary, "bad close") {
			t.Errorf("%s: it was not closed", at)
		}
	}
}

func TestFigure(t *testing.T) {
	if got := bench.NewFigure([]float64{3, 1, 2}); got != (bench.Figure{Median: 2, Min: 1, Max: 3}) {
		t.Errorf("%+v", got)
	}
	if got := bench.NewFigure([]float64{4, 1, 2, 3}); got != (bench.Figure{Median: 2.5, Min: 1, Max: 4}) {
		t.Errorf("%+v", got)
	}
}
