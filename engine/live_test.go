package engine

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	"meridian/decide/block"
	"meridian/decide/entropy"
	"meridian/decide/governor"
	"meridian/decide/policy"
	"meridian/serve/door/doorpb"
	"meridian/serve/governing"
	"meridian/serve/openai"
)

// direct is the governor that agents have, without an agent.
type direct struct {
	governors *governing.Governors

	mu        sync.Mutex // protects the rest
	link      *governing.Connection
	renewed   bool
	decisions []*doorpb.Decision
	forced    map[string]int // reasons of forced ends, by how often
	kinds     map[string]int // what was decided, by how often
}

func (d *direct) Terms() *doorpb.GovernorTerms { return d.link.Terms() }
func (d *direct) Connected() bool              { return true }

func (d *direct) Renewed() bool {
	was := d.renewed
	d.renewed = true
	return !was
}

func (d *direct) Send(m *doorpb.Step) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	decision, err := d.link.Step(m)
	if err != nil {
		panic(err)
	}
	for name, n := range map[string]int{
		"pause": len(decision.GetPause()), "preempt": len(decision.GetPreempt()), "copy": len(decision.GetCopyOut()),
		"recall": len(decision.GetRecall()), "fork": len(decision.GetFork()), "evict": len(decision.GetEvict()), "reaped": len(decision.GetForgotten()),
	} {
		d.kinds[name] += n
	}
	for _, p := range decision.GetPreempt() {
		if p.GetSwap() {
			d.kinds["swap"]++
		}
	}
	for _, f := range decision.GetForce() {
		d.forced[f.GetReason()]++
	}
	d.decisions = append(d.decisions, proto.Clone(decision).(*doorpb.Decision))
	return true
}

func (d *direct) Take(time.Duration) []*doorpb.Decision {
	d.mu.Lock()
	defer d.mu.Unlock()
	taken := d.decisions
	d.decisions = nil
	return taken
}

func (d *direct) Close() { d.link.Close() }

// governedLive is an engine of a cell that a governor with this policy decides for.
func governedLive(t *testing.T, c *cell, o Options, of governing.Options) (*Engine, *direct) {
	t.Helper()
	s, err := openServedModel("tiny", 0)
	if err != nil {
		t.Fatal(err)
	}
	of.Wait, of.Now, of.PreemptMaxFraction, of.OffloadThreshold, of.Store = time.Millisecond, time.Now, 0.5, 2, true
	of.Memory = block.Options{ThinkFraction: 0.4}
	of.Model = func(string) (governing.Model, error) {
		return governing.Model{Phase: s.thoughts, Texts: s.tokenizer.Text}, nil
	}
	governors, err := governing.New(of)
	if err != nil {
		t.Fatal(err)
	}
	d := &direct{governors: governors, forced: make(map[string]int), kinds: make(map[string]int)}
	o.Governor, o.GovernorWait, o.Reasoning, o.ID, o.Model = d, patience, true, "e", "tiny"
	about, err := prepare(o)
	if err != nil {
		t.Fatal(err)
	}
	if d.link, err = governors.Govern("e", about.aboutSteps()); err != nil {
		t.Fatal(err)
	}
	return join(t, c, o), d
}

// mixed is long thinkers and short answerers.
func mixed() []Request {
	var all []Request
	for i := range 14 {
		think, most := 4, 12
		if i%2 == 0 {
			think, most = 60, 40
		}
		r := Request{
			ID: fmt.Sprint(i), Salt: fmt.Sprint(i % 3), Prompts: [][]uint32{prompt(uint64(i), 20+7*i)}, MaxTokens: think + most, IgnoreEOS: true, ThinkTokens: &think,
			Sampling: Sampling{Temperature: 1, Seed: uint64(i)},
		}
		if i%5 == 4 {
			r.N = 2
		}
		all = append(all, r)
	}
	return all
}

// Every policy serves a mixed load, with the blocks of a fraction of it and with the store,
// and each request says what it says alone.
func TestEveryPolicyServesAMixedLoad(t *testing.T) {
	alone := join(t, nil, Options{Reasoning: true})
	var want [][]told
	for _, r := range mixed() {
		answers, _ := ask(t, alone, r)
		want = append(want, answers)
	}
	for _, name := range policy.Names() {
		world := keeping(t, 16)
		e, d := governedLive(t, world, Options{BlockTokens: 8, Blocks: 60, MaxRunning: 6, StepTokens: 48}, governing.Options{
			Policy: name, Budget: governor.Budget{MaxThinkTokens: 1000}, Scheduling: policy.Options{ThinkCap: 900, Quantum: 8, DemoteAfter: 24},
		})
		var all sync.WaitGroup
		for i, r := range mixed() {
			all.Add(1)
			go func() {
				defer all.Done()
				if got, _ := ask(t, e, r); cmp.Diff(want[i], got) != "" {
					t.Errorf("%s, %d: %s", name, i, cmp.Diff(want[i], got))
				}
			}()
		}
		all.Wait()
		c := idle(t, e).Counters
		m, last := d.governors.Metrics(), d.governors.Engines()[0].Contradiction
		t.Logf("%s: %v; %d steps, %d preempted by the engine, %d by the governor, %d blocks copied, %d recalled, %d regained, %d fail open", name, d.kinds, c.Told, c.Preempted, c.Stopped, c.CopiedOut, c.Recalled, c.Regained, c.FailedOpen)
		must := []string{"copy", "preempt"}
		switch name {
		case "dual-queue", "meridian":
			must = append(must, "pause")
		case "pascal":
			must = append(must, "pause", "swap", "evict", "recall")
		}
		for _, kind := range must {
			if d.kinds[kind] == 0 {
				t.Errorf("%s: no %s was decided", name, kind)
			}
		}
		if c.CopiedOut == 0 || c.Stopped == 0 || name == "pascal" && c.Recalled == 0 {
			t.Errorf("%s: %+v", name, c)
		}
		// Of a block on its way out that another finds meanwhile, a governor knows no holder.
		if m.Governor.Contradictions > int64(c.Told)/20 || m.Tracked > 0 || m.Refused > 0 {
			t.Errorf("%s: %d contradictions, the last: %s; %d are left", name, m.Governor.Contradictions, last, m.Tracked)
		}
		if few := c.Told / 20; c.FailedOpen > few || c.Late > few { // a machine that stands still for a second makes some
			t.Errorf("%s: %+v", name, c)
		}
	}
}

// A thought whose trace settles is ended where the estimator says so, and not before.
func TestThoughtEndsWhereItsTraceConverges(t *testing.T) {
	const settles = 40
	trace := &Trace{Tokens: []float32{2}, ParagraphTokens: 4}
	for i := range 80 {
		nats := float32(3)
		if i%8 < 4 {
			nats = 1
		}
		if i >= settles {
			nats = 0.5
		}
		trace.Forks = append(trace.Forks, nats)
	}
	options := entropy.Options{Alpha: 0.5, EATVariance: 0.01, EATInterval: 3, RPDI: 2, Transition: 2.5, MinThinkTokens: 8}
	// What an estimator of this trace says.
	estimator, err := entropy.NewEstimator(&options)
	if err != nil {
		t.Fatal(err)
	}
	ends := 0
	for think := 1; ends == 0; think++ {
		estimator.Token(2, true)
		if estimator.ForkDue(think%4 == 0) && estimator.Forked(float64(trace.Forks[min(think, 79)])) == entropy.Converged {
			ends = think
		}
	}
	if ends <= settles || ends > 79 {
		t.Fatalf("it converges after %d tokens", ends)
	}
	e, d := governedLive(t, nil, Options{Trace: trace}, governing.Options{Policy: "meridian", Budget: governor.Budget{MaxThinkTokens: 1000, Entropy: true, Probe: options}})
	long := 200
	r := Request{Prompts: [][]uint32{prompt(2, 30)}, MaxTokens: 220, IgnoreEOS: true, ThinkTokens: &long, SplitThought: true}
	got, result := ask(t, e, r)
	at := slices.Index(got[0].Tokens, e.source.thinkEnd.id)
	// The look takes a step, in which the thought has a token more.
	if at != ends+2 || result.Report.ForcedThinkEnd != openai.ForcedConverged {
		t.Errorf("it ends at %d, want %d: %v, %+v", at, ends+2, d.forced, result.Report)
	}
	short := at - 1
	alone := join(t, nil, Options{Reasoning: true, Trace: trace})
	r.ThinkTokens = &short
	if want, _ := ask(t, alone, r); cmp.Diff(want, got) != "" {
		t.Error(cmp.Diff(want, got))
	}
}
