package engine

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"meridian/serve/door/doorpb"
)

// Entropies are of the thought's tokens alone, and a look behind its end changes nothing.
func TestEntropiesOfThoughts(t *testing.T) {
	length := 20
	r := Request{Prompts: [][]uint32{prompt(6, 30)}, MaxTokens: 40, IgnoreEOS: true, ThinkTokens: &length, Sampling: Sampling{Temperature: 1, Seed: 4, PresencePenalty: 1}}
	want, _ := ask(t, join(t, nil, Options{Reasoning: true}), r)
	forkAlways := func(s *doorpb.Step) *doorpb.Decision { return &doorpb.Decision{Fork: s.GetSequences()} }
	measure := func(o Options) (nats, forks []float32) {
		t.Helper()
		g := newFakeGovernor(nil, forkAlways)
		o.Reasoning = true
		e := governedBy(t, o, g)
		got, _ := ask(t, e, r)
		if diff := cmp.Diff(want, got); diff != "" && o.Trace == nil { // its paragraphs are other tokens
			t.Error(diff)
		}
		g.check(t)
		if idle(t, e); e.Metrics().Forked == 0 {
			t.Error("no fork was made")
		}
		forks = g.forks[1]
		unanswered := func(nats float32) bool { return nats != nats }
		if over := slices.IndexFunc(forks, unanswered); over < 0 || slices.ContainsFunc(forks[over:], func(nats float32) bool { return !unanswered(nats) }) {
			t.Errorf("%v, of which those behind the thought are to be unanswered, and no others", forks)
		} else {
			forks = forks[:over]
		}
		return g.nats[1], forks
	}
	nats, forks := measure(Options{})
	for place, n := range nats {
		thinks := place >= 1 && place <= length+1 // the token that ended it was of a thought when it was looked for
		if measured := !math.IsNaN(float64(n)); measured != thinks || measured && !(n > 0 && n < 10) {
			t.Errorf("token %d: %g nats", place, n)
		}
	}
	if len(forks) < length-1 || slices.Max(forks) > 10 || slices.Min(forks) <= 0 {
		t.Errorf("%v", forks)
	}
	if again, forksAgain := measure(Options{BlockTokens: 8, TP: 2}); !slices.Equal(again[1:length+2], nats[1:length+2]) || !slices.Equal(forksAgain, forks) {
		t.Errorf("another cut measures %v and %v, not %v and %v", again, forksAgain, nats, forks)
	}
	trace := &Trace{Tokens: []float32{3, 2, 1}, Forks: []float32{9, 8, 7, 6, 0.5}, ParagraphTokens: 5}
	played, forked := measure(Options{Trace: trace})
	if !slices.Equal(played[1:5], []float32{3, 2, 1, 1}) || forked[0] != 9 || forked[len(forked)-1] != 0.5 {
		t.Errorf("%v and %v", played, forked)
	}
}

// A paragraph of a scripted thought ends where its trace says.
func TestTraceParagraphs(t *testing.T) {
	length := 12
	e := join(t, nil, Options{Reasoning: true, Trace: &Trace{ParagraphTokens: 5}})
	all, _ := ask(t, e, Request{Prompts: [][]uint32{prompt(6, 30)}, MaxTokens: 20, SplitThought: true, ThinkTokens: &length})
	for i, b := range []byte(all[0].Thought) {
		if ends := i%5 >= 3; (b == '\n') != ends {
			t.Fatalf("%q", all[0].Thought)
		}
	}
	if all[0].Tokens[length+1] != e.source.thinkEnd.id {
		t.Errorf("%v", all[0].Tokens)
	}
}

func TestTracesAreRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "trace.json")
	for text, want := range map[string]*Trace{
		`{"tokens":[1,0.5],"forks":[2],"paragraph_tokens":7}`: {Tokens: []float32{1, 0.5}, Forks: []float32{2}, ParagraphTokens: 7},
		`{"tokens":[-1]}`:         nil,
		`{"forks":[1e39]}`:        nil,
		`{"paragraph_tokens":1}`:  nil,
		`{"paragraph_tokens":-3}`: nil,
		`[1]`:                     nil,
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := ReadTrace(path)
		if (err == nil) != (want != nil) || cmp.Diff(want, got) != "" {
			t.Errorf("%s: %v %v", text, got, err)
		}
	}
	if _, err := ReadTrace(path + "x"); err == nil {
		t.Error("a file that is not there was read")
	}
	if _, err := prepare(Options{ID: "x", Model: "tiny", Trace: &Trace{}}); err == nil {
		t.Error("a trace is played without a script")
	}
}

// What a governor is told of a model that engines bring along is what the engine itself goes by.
func TestThoughtsOfBuiltInModels(t *testing.T) {
	s, err := openServedModel("tiny", 0)
	if err != nil {
		t.Fatal(err)
	}
	thoughts, texts := Thoughts("tiny")
	if thoughts == nil || !thoughts.Thinks() || !slices.Equal(thoughts.Force(), s.thoughts.Force()) || string(texts(s.newline.id)) != "\n" {
		t.Errorf("%+v", thoughts)
	}
	for _, name := range []string{"", "org/tiny", "qwen3"} {
		if thoughts, _ := Thoughts(name); thoughts != nil {
			t.Errorf("%q is known", name)
		}
	}
}
