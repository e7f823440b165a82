package engine

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// worldEnd is what is left of a world.
type worldEnd struct {
	story     uint64
	answers   []worldAnswer
	decisions map[string]int
	counters  Counters // of all engines
	longest   time.Duration
	failures  []string
}

// runWorld lets a world happen, from its seed to its end.
func runWorld(t *testing.T, seed uint64) (end worldEnd) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, seed)
		end = w.happen()
	})
	return end
}

func (w *governedWorld) happen() (end worldEnd) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var watched sync.WaitGroup
	watched.Go(func() {
		w.watch(&end.longest)
		if len(w.wrong()) > 0 {
			cancel() // its clients would wait for good
		}
	})
	actor := uint64(100)
	dice := func() *rand.Rand { actor++; return rand.New(rand.NewPCG(w.seed, actor)) }
	start := func(happens bool, f func(*rand.Rand)) {
		if d := dice(); happens {
			w.trouble.Add(1)
			go f(d)
		}
	}
	for _, m := range w.engines {
		start(true, func(d *rand.Rand) { w.links(m, d) })
		for client := range 6 + int(w.seed%7) {
			w.clients.Add(1)
			go w.serve(ctx, m, client, dice())
		}
	}
	start(w.faults.kill, w.kills)
	start(w.faults.hang, w.hangUps)
	start(w.faults.store, w.stores)
	start(w.faults.wilful, w.wilfulness)
	start(w.faults.mad, func(d *rand.Rand) { defer w.trouble.Done(); w.mad(d) })
	w.clients.Wait()
	if len(w.wrong()) == 0 {
		w.settle()
	}
	w.mu.Lock()
	w.done = true
	w.mu.Unlock()
	cancel()
	w.trouble.Wait()
	watched.Wait()
	for _, m := range w.engines {
		end.counters.add(m.engine.Metrics())
		closing, stop := context.WithTimeout(context.Background(), time.Minute)
		if err := m.engine.Close(closing); err != nil {
			w.broke("engine %s does not close: %v", m.engine.options.ID, err)
		}
		stop()
	}
	time.Sleep(10 * time.Second) // what is on its way arrives
	w.mu.Lock()
	defer w.mu.Unlock()
	end.story, end.answers, end.decisions, end.failures = w.story.Sum64(), w.answers, w.decisions, w.failures
	return end
}

func (w *governedWorld) wrong() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.failures)
}

// settle demands that nothing is left when no client wants anything, the trouble has ended, and
// every side has told the others.
func (w *governedWorld) settle() {
	time.Sleep(troubleTime + 5*time.Second)
	for _, m := range w.engines {
		s, name := m.engine.Stats(), m.engine.options.ID
		if s.Blocks.Free+s.Blocks.Cached != s.Blocks.Total || s.Blocks.Held != 0 || s.Running+s.Waiting+s.Fetching != 0 {
			w.broke("engine %s does not come to rest: %+v", name, s)
		}
		m.link.mu.Lock()
		valid, late, lost := m.link.valid, m.link.late, m.link.lost
		var living []uint64
		if m.link.conn != nil && m.link.conn.known { // else an engine that has nothing to do does not know of it
			living = m.link.ledger.living()
		}
		m.link.mu.Unlock()
		if len(living) > 0 {
			w.broke("engine %s: of %v the governor was never told that they have ended", name, living)
		}
		if c := s.Counters; c.Decided != valid || c.Late != late || w.faults.quiet() && (c.FailedOpen > 0 || c.Told-c.Decided > 1 || lost > 0) {
			w.broke("engine %s: %d decisions were taken and %d of them late, %d connections lost, and it says %+v", name, valid, late, lost, c)
		}
	}
	for _, g := range w.agent().Engines() {
		few := g.Steps / 20 // what was decided late is carried out when the governor believes otherwise
		if w.faults.quiet() {
			few = 0
		}
		if g.Name != "mad" && (len(g.Requests) > 0 || g.Running+g.Waiting > 0 || g.Contradictions > few) {
			w.broke("the governor has %+v", g)
		}
	}
}

func (c *Counters) add(o Counters) {
	c.Steps += o.Steps
	c.Told += o.Told
	c.Decided += o.Decided
	c.Late += o.Late
	c.FailedOpen += o.FailedOpen
	c.Stopped += o.Stopped
	c.Unheeded += o.Unheeded
	c.Preempted += o.Preempted
	c.Forced += o.Forced
	c.Forked += o.Forked
	c.CopiedOut += o.CopiedOut
	c.Recalled += o.Recalled
	c.Found += o.Found
	c.Regained += o.Regained
}

// lone gives the answers that an engine gives which has nothing else to do and no
// governor. Of two, one plays thoughts in paragraphs.
type lone struct {
	t       *testing.T
	engines [2]*Engine
}

func newLone(t *testing.T) *lone {
	l := &lone{t: t}
	for i, trace := range []*Trace{nil, worldTrace(0)} {
		e := hashEngine(t, Options{ID: "lone", Model: "tiny", Reasoning: true, BlockTokens: 8, Blocks: 256, Trace: trace})
		e.start()
		t.Cleanup(func() {
			if err := e.Close(context.Background()); err != nil {
				t.Error(err)
			}
		})
		l.engines[i] = e
	}
	return l
}

// compare demands that every answer is the one that its request gets alone, if its thought
// is as long there; and that no thought is longer than it may be.
func (l *lone) compare(end *worldEnd) (wrong []string) {
	for _, a := range end.answers {
		id := a.request.ID
		if a.err != nil {
			if !errors.Is(a.err, context.DeadlineExceeded) && !errors.Is(a.err, errCancelled) && len(end.failures) == 0 {
				wrong = append(wrong, "request "+id+" failed: "+a.err.Error())
			}
			continue
		}
		r, engine := a.request, l.engines[0]
		if r.MaxThinkTokens = nil; a.traced {
			engine = l.engines[1]
		}
		for i, got := range a.told {
			at, natural := slices.Index(got.Tokens, engine.source.thinkEnd.id), *a.request.ThinkTokens+1
			if most := a.request.MaxThinkTokens; at < 0 || at > natural || most != nil && at > *most+1 {
				wrong = append(wrong, "the thought of request "+id+" ends at "+strconv.Itoa(at))
				continue
			}
			if at < natural && a.result.Report.ForcedThinkEnd == "" {
				wrong = append(wrong, "request "+id+" does not say that its thought was ended")
			}
			think := at - 1
			r.ThinkTokens = &think
			want, _ := ask(l.t, engine, r)
			if !slices.Equal(want[i].Tokens, got.Tokens) || want[i].Finish != got.Finish {
				wrong = append(wrong, "request "+id+" gets another answer than alone")
			}
		}
	}
	return wrong
}

// fewWorlds are those that a test looks at by itself: of the first thirty, those in which changes
// of conditions in engine and serve/governing were noticed that others do not notice, and two
// without trouble.
var fewWorlds = []uint64{0, 1, 2, 3, 4, 5, 7, 8, 9, 12, 13, 18, 27}

// worldSeeds is which worlds a test looks at: MERIDIAN_WORLD_SEED, so many as
// MERIDIAN_WORLD_SEEDS says, or few.
func worldSeeds(t *testing.T) []uint64 {
	if text := os.Getenv("MERIDIAN_WORLD_SEED"); text != "" {
		seed, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return []uint64{seed}
	}
	if text := os.Getenv("MERIDIAN_WORLD_SEEDS"); text != "" {
		seeds, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		all := make([]uint64, min(seeds, 1<<20))
		for i := range all {
			all[i] = uint64(i)
		}
		return all
	}
	return fewWorlds
}

// Whatever happens between engines, their governors and the cache, every request gets the
// answer that it gets alone, in time.
func TestGovernedWorlds(t *testing.T) {
	alone := newLone(t)
	seeds := worldSeeds(t)
	var all Counters
	decisions := make(map[string]int)
	var longest time.Duration
	answers := 0
	for _, seed := range seeds {
		if t.Failed() {
			break
		}
		end := runWorld(t, seed)
		for _, text := range slices.Concat(end.failures, alone.compare(&end)) {
			t.Errorf("world %d: %s", seed, text)
		}
		if len(seeds) == 1 {
			t.Logf("%+v %v", end.counters, end.decisions)
		}
		all.add(end.counters)
		for name, n := range end.decisions {
			decisions[name] += n
		}
		longest = max(longest, end.longest)
		answers += len(end.answers)
	}
	if t.Failed() {
		t.Logf("to see it again: MERIDIAN_WORLD_SEED=N go test ./engine -run TestGovernedWorlds -v")
	}
	if len(seeds) >= len(fewWorlds) {
		demandAll(t, decisions, &all)
	}
	t.Logf("%d answers; %v; %+v; the longest wait for a token: %v", answers, decisions, all, longest)
}

// demandAll demands that everything that may be decided was, and that engines did it: worlds in
// which governors say nothing prove nothing.
func demandAll(t *testing.T, decisions map[string]int, c *Counters) {
	for name, n := range decisions {
		if n == 0 {
			t.Errorf("no %s was decided", name)
		}
	}
	if c.Preempted == 0 || c.Stopped == 0 || c.CopiedOut == 0 || c.Recalled == 0 || c.Regained == 0 || c.Forked == 0 || c.Forced == 0 || c.FailedOpen == 0 {
		t.Errorf("the worlds test too little: %+v", c)
	}
}

// A seed has one story.
func TestGovernedWorldsAreRepeated(t *testing.T) {
	for seed := range uint64(2) {
		if a, b := runWorld(t, seed), runWorld(t, seed); a.story != b.story || len(a.answers) == 0 {
			t.Errorf("world %d tells %x and %x", seed, a.story, b.story)
		}
	}
}
