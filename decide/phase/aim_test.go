package phase_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"meridian/decide/phase"
	"meridian/internal/rounds"
)

// tokensOfSequence is how long a stream is: half of it is thought.
const tokensOfSequence = 1024

// aims are how fast the phases of sequences are followed, of so many tokens a round.
func aims(sequences, tokens int) (tasks []rounds.Task, err error) {
	for _, kind := range phaseKinds {
		for _, batch := range []int{1, 8} {
			w, err := newStreams(kind, sequences, tokens, batch)
			if err != nil {
				return nil, err
			}
			task := rounds.Task{What: fmt.Sprintf("%s, %d sequences, %s", kind.name, sequences, tokensAStep(batch)), PerSecond: true, Bound: 20, Ours: w.round}
			if kind.name == "ids" {
				task.Beside, task.Theirs = "a map under a lock", w.plain
			}
			tasks = append(tasks, task)
		}
	}
	return tasks, nil
}

// BenchmarkAim is streams of 1,024 tokens, half of them a thought, through the map of one
// engine, for each way in which models mark thoughts, beside a map under a lock that knows
// single ids only, in a list.
func BenchmarkAim(b *testing.B) {
	tasks, err := aims(256, 4_000_000)
	if err != nil {
		b.Fatal(err)
	}
	rounds.RunAll(b, tasks)
}

func TestAims(t *testing.T) {
	tasks, err := aims(4, 4096)
	if err != nil || len(tasks) != 2*len(phaseKinds) {
		t.Fatalf("%d tasks, %v", len(tasks), err)
	}
	for _, task := range tasks {
		if _, err := rounds.Once(task); err != nil {
			t.Errorf("%s: %v", task.What, err)
		}
	}
}

// No tokens are nothing to measure.
func TestAimOfNoTokens(t *testing.T) {
	tasks, err := aims(4, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		if _, err := rounds.Once(task); !errors.Is(err, rounds.ErrNothing) {
			t.Errorf("%s: %v", task.What, err)
		}
	}
}

func tokensAStep(n int) string {
	if n == 1 {
		return "a token a step"
	}
	return fmt.Sprintf("%d tokens a step", n)
}

type phaseKind struct {
	name       string
	markers    phase.Markers
	start, end []uint32
	ahead      []uint32 // stands before end and begins like it
}

var phaseKinds = []phaseKind{
	{
		name:    "ids",
		markers: phase.Markers{Start: []phase.Marker{{IDs: []uint32{151667}}}, End: []phase.Marker{{IDs: []uint32{151668}}}},
		start:   []uint32{151667}, end: []uint32{151668},
	},
	{
		name:    "several ids",
		markers: phase.Markers{Start: []phase.Marker{{IDs: []uint32{27, 14023, 29}}}, End: []phase.Marker{{IDs: []uint32{522, 14023, 29}}}},
		start:   []uint32{27, 14023, 29}, ahead: []uint32{522, 14023, 522}, end: []uint32{522, 14023, 29},
	},
	{
		name: "channels",
		markers: phase.Markers{Channel: phase.Channel{
			Open: 200005, Message: 200008, Close: 200007, Think: []uint32{35644}, Answer: []uint32{17196},
		}},
		start: []uint32{200005, 35644, 200008}, end: []uint32{200007, 200006, 173781, 200005, 17196, 200008},
	},
	{
		name: "prose",
		markers: phase.Markers{
			Start: []phase.Marker{{Text: "Here is my thought process:"}}, End: []phase.Marker{{Text: "Here is my response:"}}, Prose: true, Texts: proseText,
		},
		start: []uint32{0, 1, 2, 3, 4, 5}, ahead: []uint32{0, 1, 2, 7}, end: []uint32{0, 1, 2, 6, 5},
	},
}

var prosePieces = [...]string{"Here", " is", " my", " thought", " process", ":", " response", " the", " so", " that"}

// proseText is a vocabulary of some words.
func proseText(id uint32) []byte { return proseBytes[id%uint32(len(proseBytes))] }

var proseBytes = func() (all [len(prosePieces)][]byte) {
	for i, piece := range prosePieces {
		all[i] = []byte(piece)
	}
	return all
}()

// stream is a sequence's tokens: half of them a thought.
func (k *phaseKind) stream() []uint32 {
	ordinary := []uint32{7, 8, 9, 17, 18, 19}
	half := tokensOfSequence / 2
	thought := slices.Repeat(ordinary, half/len(ordinary))
	out := slices.Concat(k.start, thought, k.ahead, k.end)
	for i := 0; len(out) < tokensOfSequence; i++ {
		out = append(out, ordinary[i%len(ordinary)])
	}
	return out
}

// streams are sequences of an engine that all move on by some tokens a step.
type streams struct {
	engine            *phase.Map
	kind              phaseKind
	stream            []uint32
	sequences, tokens int
	batch             int
	events            []phase.Event
}

func newStreams(kind phaseKind, sequences, tokens, batch int) (*streams, error) {
	model, err := phase.NewModel(kind.markers)
	if err != nil {
		return nil, err
	}
	return &streams{phase.NewMap(model), kind, kind.stream(), sequences, tokens, batch, make([]phase.Event, 0, 64)}, nil
}

// round feeds streams from their beginning to their end, all sequences side by
// side, as often as it takes.
func (w *streams) round() (rounds.Lap, error) {
	var took time.Duration
	fed, thoughts := 0, 0
	for fed < w.tokens {
		for s := range w.sequences {
			if err := w.engine.Begin(0, phase.Sequence(s), phase.Prompt{}); err != nil {
				return rounds.Lap{}, err
			}
		}
		start := time.Now()
		for at := 0; at < len(w.stream); at += w.batch {
			for s := range w.sequences {
				var err error
				if w.events, err = w.engine.Step(int64(at), phase.Sequence(s), w.stream[at:at+w.batch], w.events[:0]); err != nil {
					return rounds.Lap{}, err
				}
				thoughts += len(w.events)
			}
		}
		took += time.Since(start)
		fed += w.sequences * len(w.stream)
		for s := range w.sequences {
			w.events, _ = w.engine.End(phase.Sequence(s), w.events[:0])
		}
	}
	if want := 2 * fed / len(w.stream); thoughts != want {
		return rounds.Lap{}, fmt.Errorf("%d beginnings and ends of thoughts, want %d", thoughts, want)
	}
	return rounds.Lap{Operations: fed, Took: took}, nil
}

// plainPhases is the least that the same takes with a map that all share: one id
// for each end of a thought, no state that goes elsewhere, no time.
type plainPhases struct {
	mu        sync.Mutex
	sequences map[uint64]*plainPhase
	start     []uint32
	end       []uint32
}

type plainPhase struct {
	phase  string
	tokens int
}

func (p *plainPhases) feed(sequence uint64, id uint32) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.sequences[sequence]
	switch {
	case s.phase == "prefill" && slices.Contains(p.start, id):
		s.phase = "think"
		return true
	case s.phase == "prefill":
		s.phase = "output"
	case s.phase == "think" && slices.Contains(p.end, id):
		s.phase = "output"
		return true
	case s.phase == "think":
		s.tokens++
	}
	return false
}

func (w *streams) plain() (rounds.Lap, error) {
	var took time.Duration
	fed, thoughts := 0, 0
	for fed < w.tokens {
		p := plainPhases{sequences: make(map[uint64]*plainPhase), start: w.kind.start, end: w.kind.end}
		for s := range uint64(w.sequences) {
			p.sequences[s] = &plainPhase{phase: "prefill"}
		}
		start := time.Now()
		for at := 0; at < len(w.stream); at += w.batch {
			for s := range uint64(w.sequences) {
				for _, id := range w.stream[at : at+w.batch] {
					if p.feed(s, id) {
						thoughts++
					}
				}
			}
		}
		took += time.Since(start)
		fed += w.sequences * len(w.stream)
	}
	if want := 2 * fed / len(w.stream); thoughts != want {
		return rounds.Lap{}, fmt.Errorf("%d beginnings and ends of thoughts, want %d", thoughts, want)
	}
	return rounds.Lap{Operations: fed, Took: took}, nil
}
