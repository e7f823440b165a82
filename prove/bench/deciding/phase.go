package deciding

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"meridian/decide/entropy"
	"meridian/decide/governor"
	"meridian/decide/phase"
	"meridian/decide/policy"
	"meridian/prove/bench"
)

// PhaseOptions is what RunPhase measures.
type PhaseOptions struct {
	Options
	Sequences int // that an engine has at once
	Tokens    int // of a round
}

// tokensOfSequence is how long a stream is: half of it is thought.
const tokensOfSequence = 1024

// RunPhase measures how fast the phases of an engine's sequences are followed.
func RunPhase(ctx context.Context, o PhaseOptions) (*Report, error) {
	if o.Sequences < 1 || o.Sequences > 1<<16 || o.Tokens < 1<<12 || o.Tokens > 1<<30 {
		return nil, fmt.Errorf("%w: %d tokens of %d sequences; up to %d sequences, %d to %d tokens", bench.ErrOptions, o.Tokens, o.Sequences, 1<<16, 1<<12, 1<<30)
	}
	var tasks []Task
	for _, kind := range phaseKinds {
		for _, batch := range []int{1, 8} {
			w, err := newPhaseWorld(kind, o, batch)
			if err != nil {
				return nil, err
			}
			task := Task{What: fmt.Sprintf("%s, %d sequences, %s", kind.name, o.Sequences, tokensAStep(batch)), PerSecond: true, Bound: 20, Ours: w.round}
			if kind.name == "ids" {
				task.Beside, task.Theirs = "a map under a lock, ids in a list", w.plain
			}
			tasks = append(tasks, task)
		}
	}
	g := governorWorld{sequences: o.Sequences}
	tasks = append(tasks, Task{What: fmt.Sprintf("a step of the governor, %d sequences, of one of them", o.Sequences), Ours: g.round})
	return Measure(ctx, o.Options, tasks)
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

// phaseWorld is an engine whose sequences all move on by some tokens a step.
type phaseWorld struct {
	engine *phase.Map
	kind   phaseKind
	stream []uint32
	batch  int
	o      PhaseOptions
	events []phase.Event
}

func newPhaseWorld(kind phaseKind, o PhaseOptions, batch int) (*phaseWorld, error) {
	model, err := phase.NewModel(kind.markers)
	if err != nil {
		return nil, err
	}
	return &phaseWorld{engine: phase.NewMap(model), kind: kind, stream: kind.stream(), batch: batch, o: o, events: make([]phase.Event, 0, 64)}, nil
}

// round feeds streams from their beginning to their end, all sequences side by
// side, as often as it takes.
func (w *phaseWorld) round() (Lap, error) {
	var took time.Duration
	fed, thoughts := 0, 0
	for fed < w.o.Tokens {
		for s := range w.o.Sequences {
			if err := w.engine.Begin(0, phase.Sequence(s), phase.Prompt{}); err != nil {
				return Lap{}, err
			}
		}
		start := time.Now()
		for at := 0; at < len(w.stream); at += w.batch {
			for s := range w.o.Sequences {
				var err error
				if w.events, err = w.engine.Step(int64(at), phase.Sequence(s), w.stream[at:at+w.batch], w.events[:0]); err != nil {
					return Lap{}, err
				}
				thoughts += len(w.events)
			}
		}
		took += time.Since(start)
		fed += w.o.Sequences * len(w.stream)
		for s := range w.o.Sequences {
			w.events, _ = w.engine.End(phase.Sequence(s), w.events[:0])
		}
	}
	if want := 2 * fed / len(w.stream); thoughts != want {
		return Lap{}, fmt.Errorf("%d beginnings and ends of thoughts, want %d", thoughts, want)
	}
	return Lap{fed, took}, nil
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

func (w *phaseWorld) plain() (Lap, error) {
	var took time.Duration
	fed, thoughts := 0, 0
	for fed < w.o.Tokens {
		p := plainPhases{sequences: make(map[uint64]*plainPhase), start: w.kind.start, end: w.kind.end}
		for s := range uint64(w.o.Sequences) {
			p.sequences[s] = &plainPhase{phase: "prefill"}
		}
		start := time.Now()
		for at := 0; at < len(w.stream); at += w.batch {
			for s := range uint64(w.o.Sequences) {
				for _, id := range w.stream[at : at+w.batch] {
					if p.feed(s, id) {
						thoughts++
					}
				}
			}
		}
		took += time.Since(start)
		fed += w.o.Sequences * len(w.stream)
	}
	if want := 2 * fed / len(w.stream); thoughts != want {
		return Lap{}, fmt.Errorf("%d beginnings and ends of thoughts, want %d", thoughts, want)
	}
	return Lap{fed, took}, nil
}

// governorWorld is a governor with entropies for every think token.
type governorWorld struct{ sequences int }

func (w governorWorld) round() (Lap, error) {
	model, err := phase.NewModel(phaseKinds[0].markers)
	if err != nil {
		return Lap{}, err
	}
	stock, err := policy.New("stock", policy.Options{})
	if err != nil {
		return Lap{}, err
	}
	g, err := governor.New(governor.Options{
		Model: model, Policy: stock,
		Limits: policy.Limits{Tokens: 1 << 16, Sequences: int32(w.sequences), BlockTokens: 16, Blocks: 1 << 20},
		Budget: governor.Budget{MaxThinkTokens: 1 << 20, Entropy: true, Probe: entropy.Options{
			Alpha: 0.05, EATVariance: 1e-3, EATInterval: 32, RPDI: 3, Transition: 2.5, MinThinkTokens: 512,
		}},
	})
	if err != nil {
		return Lap{}, err
	}
	facts := governor.Facts{Now: 1, FreeBlocks: 1 << 19}
	for s := range w.sequences {
		facts.Arrivals = append(facts.Arrivals, governor.Arrival{Sequence: phase.Sequence(s), At: 1, PromptTokens: 16})
	}
	g.Step(&facts)
	facts.Arrivals = nil
	first, entropy := phaseKinds[0].start, []float64{0.7}
	for s := range w.sequences {
		facts.Commits = append(facts.Commits, governor.Commit{Sequence: phase.Sequence(s), Computed: 16, Tokens: first, Entropies: entropy})
	}
	for step := range 3 {
		facts.Now += policy.Millisecond
		g.Step(&facts)
		if step == 0 {
			for i := range facts.Commits {
				facts.Commits[i].Computed, facts.Commits[i].Tokens = 1, []uint32{7}
			}
		}
	}
	const steps = 200
	start := time.Now()
	for range steps {
		facts.Now += policy.Millisecond
		if d := g.Step(&facts); len(d.Order) != w.sequences {
			return Lap{}, fmt.Errorf("%d of %d sequences are in the order", len(d.Order), w.sequences)
		}
	}
	return Lap{steps * w.sequences, time.Since(start)}, nil
}
