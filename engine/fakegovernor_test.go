package engine

import (
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"
	"time"

	"meridian/internal/until"
	"meridian/serve/door/doorpb"
)

// fakeGovernor decides what a test says, and keeps account of what it is told.
type fakeGovernor struct {
	// decide is called with every Step; nil: it never decides. Its mu is held.
	decide func(*doorpb.Step) *doorpb.Decision

	mu         sync.Mutex // protects the rest
	terms      *doorpb.GovernorTerms
	connection uint64
	known      uint64 // connection that the engine knows of
	down       bool
	decisions  []*doorpb.Decision
	came       chan struct{} // has room for one
	number     uint64
	live       map[uint64]*toldSequence
	over       []*toldSequence
	nats       map[uint64][]float32
	forks      map[uint64][]float32
	wrong      []error
}

// toldSequence is what a governor knows of a sequence.
type toldSequence struct {
	number            uint64
	id                string
	prompt, kv, stops int
	tail, generated   []uint32
	cap               uint32
	blocks            []uint32
	// Of a test that swaps: what was asked for, and where it stands.
	asked string
	wait  int
}

func newFakeGovernor(terms *doorpb.GovernorTerms, decide func(*doorpb.Step) *doorpb.Decision) *fakeGovernor {
	return &fakeGovernor{
		decide: decide, terms: terms, connection: 1, came: make(chan struct{}, 1), live: make(map[uint64]*toldSequence),
		nats: make(map[uint64][]float32), forks: make(map[uint64][]float32),
	}
}

func (g *fakeGovernor) Terms() *doorpb.GovernorTerms {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.terms
}

func (g *fakeGovernor) Connected() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return !g.down
}

func (g *fakeGovernor) Renewed() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	renewed := !g.down && g.known < g.connection
	if renewed {
		g.known = g.connection
	}
	return renewed
}

func (g *fakeGovernor) Send(s *doorpb.Step) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.down {
		return false
	}
	g.hear(s)
	if g.decide == nil {
		return true
	}
	if d := g.decide(s); d != nil {
		d.Step = s.GetNumber()
		g.decisions = append(g.decisions, d)
		select {
		case g.came <- struct{}{}:
		default:
		}
	}
	return true
}

func (g *fakeGovernor) Take(wait time.Duration) []*doorpb.Decision {
	deadline := time.After(wait)
	for {
		g.mu.Lock()
		d := g.decisions
		g.decisions = nil
		whole := g.down || wait == 0 || len(d) > 0 && d[len(d)-1].GetStep() == g.number
		g.mu.Unlock()
		if whole {
			return d
		}
		select {
		case <-g.came:
		case <-deadline:
			return d
		}
	}
}

func (g *fakeGovernor) Close() {}

// lose ends the connection; back begins another.
func (g *fakeGovernor) lose() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.down, g.decisions = true, nil
	clear(g.live)
}

func (g *fakeGovernor) back() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.down = false
	g.connection++
}

func (g *fakeGovernor) blame(format string, args ...any) {
	g.wrong = append(g.wrong, fmt.Errorf(format, args...))
}

// hear keeps account of a Step, and notes what cannot be.
func (g *fakeGovernor) hear(s *doorpb.Step) {
	if s.GetNumber() <= g.number {
		g.blame("step %d after %d", s.GetNumber(), g.number)
	}
	g.number = s.GetNumber()
	for _, b := range s.GetBegun() {
		if g.live[b.GetSequence()] != nil {
			g.blame("sequence %d begins twice", b.GetSequence())
		}
		if len(b.GetTail()) > maxTail || b.GetCachedTokens() >= b.GetPromptTokens() {
			g.blame("%v", b)
		}
		g.live[b.GetSequence()] = &toldSequence{
			number: b.GetSequence(), id: b.GetId(), prompt: int(b.GetPromptTokens()), kv: int(b.GetCachedTokens()), tail: b.GetTail(), generated: b.GetGenerated(), cap: b.GetMaxThinkTokens(),
		}
	}
	for _, stopped := range s.GetStopped() {
		if q := g.live[stopped.GetSequence()]; q != nil {
			if stopped.GetLost() {
				q.kv, q.blocks, q.asked = 0, nil, ""
				q.stops++
			}
		} else {
			g.blame("sequence %d stopped, which had not begun", stopped.GetSequence())
		}
	}
	g.hearBlocks(s)
	tokens, nats := s.GetTokens(), s.GetEntropies()
	if len(nats) > 0 && len(nats) != len(tokens) || len(s.GetComputed()) != len(s.GetSequences()) || len(s.GetCounts()) != len(s.GetSequences()) {
		g.blame("columns of %d, %d, %d and %d, %d", len(s.GetSequences()), len(s.GetComputed()), len(s.GetCounts()), len(tokens), len(nats))
	}
	for i, number := range s.GetSequences() {
		q, count := g.live[number], int(s.GetCounts()[i])
		if q == nil {
			g.blame("sequence %d ran, which had not begun", number)
			return
		}
		q.kv += int(s.GetComputed()[i])
		q.generated = append(q.generated, tokens[:count]...)
		tokens = tokens[count:]
		if len(nats) == 0 {
			g.nats[number] = append(g.nats[number], slices.Repeat([]float32{float32(math.NaN())}, count)...)
		} else {
			g.nats[number] = append(g.nats[number], nats[:count]...)
			nats = nats[count:]
		}
		if q.kv >= q.prompt+len(q.generated) {
			g.blame("sequence %d has the KV of %d tokens, there are %d", number, q.kv, q.prompt+len(q.generated))
		}
	}
	for i, number := range s.GetForked() {
		g.forks[number] = append(g.forks[number], s.GetForkNats()[i])
	}
	for _, number := range s.GetFinished() {
		if q := g.live[number]; q != nil {
			g.over = append(g.over, q)
		} else {
			g.blame("sequence %d has ended, which had not begun", number)
		}
		delete(g.live, number)
	}
}

// hearBlocks keeps account of who has which blocks.
func (g *fakeGovernor) hearBlocks(s *doorpb.Step) {
	blocks := s.GetBlocks()
	if len(s.GetBlockCounts()) != len(s.GetSequences()) {
		g.blame("%d counts of blocks for %d sequences", len(s.GetBlockCounts()), len(s.GetSequences()))
		return
	}
	for _, c := range s.GetRecalled() {
		q := g.live[c.GetSequence()]
		switch {
		case q == nil:
		case q.asked != "recall":
			g.blame("sequence %d is back from %q", q.number, q.asked)
		case !c.GetWhole():
			q.kv, q.blocks = 0, nil
		case len(c.GetBlocks()) != len(q.blocks):
			g.blame("sequence %d had %d blocks, %d are back", q.number, len(q.blocks), len(c.GetBlocks()))
		default:
			q.blocks = slices.Clone(c.GetBlocks())
		}
	}
	gone := make(map[uint64]bool)
	for _, number := range s.GetFinished() {
		gone[number] = true
	}
	for i, number := range s.GetSequences() {
		n := int(s.GetBlockCounts()[i])
		if q := g.live[number]; q != nil {
			q.blocks = append(q.blocks, blocks[:n]...)
		}
		blocks = blocks[n:]
	}
	for _, b := range s.GetEvicted() {
		holders := 0
		for number, q := range g.live {
			if q.asked != "away" && q.asked != "recall" && !gone[number] && slices.Contains(q.blocks, b) {
				holders++
			}
		}
		if holders > 1 {
			g.blame("block %d is used for something else, and %d have it", b, holders)
		}
	}
}

// check demands that nothing was told that cannot be, and that all that is known has ended.
func (g *fakeGovernor) check(t *testing.T) {
	t.Helper()
	var wrong []error
	until.Well(t, "all that is known has ended", func() string {
		g.mu.Lock()
		defer g.mu.Unlock()
		if wrong = slices.Clone(g.wrong); len(wrong) > 0 || len(g.live) == 0 {
			return ""
		}
		return fmt.Sprintf("%d sequences have not", len(g.live))
	})
	for _, err := range wrong {
		t.Error(err)
	}
}

// thinkingTerms are those of a governor that may end thoughts.
func thinkingTerms(t *testing.T) *doorpb.GovernorTerms {
	t.Helper()
	s, err := openServedModel("tiny", 0)
	if err != nil {
		t.Fatal(err)
	}
	return &doorpb.GovernorTerms{Policy: "test", WaitUs: 1000, EndTokens: s.thoughts.Force(), Entropy: true}
}
