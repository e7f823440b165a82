package governing

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	"pgregory.net/rapid"

	"meridian/decide/block"
	"meridian/decide/governor"
	"meridian/decide/phase"
	"meridian/decide/policy"
	"meridian/serve/door/doorpb"
)

// pair tells the same to a governor by facts and by messages.
type pair struct {
	t      *rapid.T
	clock  *clock
	direct *governor.Governor
	by     *Connection
	facts  governor.Facts
	m      *doorpb.Step
	next   phase.Sequence
	block  block.ID
	number uint64
}

func newPair(t *rapid.T, tb testing.TB, name string) *pair {
	c := &clock{}
	o := testOptions(tb, c, name)
	p := &pair{t: t, clock: c, by: govern(tb, newGovernors(tb, o), "a", able())}
	chosen, err := policy.New(name, o.Scheduling)
	if err != nil {
		t.Fatal(err)
	}
	p.direct, err = governor.New(governor.Options{
		Model: thinker(tb), Texts: text, Forks: true, Policy: chosen, Budget: o.Budget,
		Limits: policy.Limits{Tokens: 64, Sequences: 8, BlockTokens: 4, Blocks: 64, PreemptMaxFraction: 0.1},
		Blocks: block.Options{Blocks: 64, ThinkFraction: 0.4}, OffloadThreshold: 2, Offloads: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// some is a sequence: one that is there, mostly.
func (p *pair) some(label string) phase.Sequence {
	return phase.Sequence(rapid.IntRange(0, int(p.next)).Draw(p.t, label))
}

func (p *pair) begin() {
	prompt, cached := rapid.IntRange(0, 40).Draw(p.t, "prompt"), rapid.IntRange(0, 8).Draw(p.t, "cached")
	asked := rapid.IntRange(0, 30).Draw(p.t, "asked")
	tail := rapid.SampledFrom([][]uint32{nil, {thinkID}, {word, thinkID, word}}).Draw(p.t, "tail")
	tenant := rapid.SampledFrom([]string{"", "one", "two"}).Draw(p.t, "tenant")
	numbers := map[string]int32{}
	for i, name := range []string{"", "one", "two"} {
		numbers[name] = int32(i)
	}
	p.m.Begun = append(p.m.Begun, &doorpb.Begun{
		Sequence: uint64(p.next), PromptTokens: uint32(prompt), Tail: tail, MaxThinkTokens: uint32(asked), Tenant: tenant,
		CachedTokens: uint32(cached), SharedBlocks: uint32((cached + 3) / 4),
	})
	cached = min(cached, max(0, prompt-1))
	p.facts.Arrivals = append(p.facts.Arrivals, governor.Arrival{
		Sequence: p.next, At: p.facts.Now, Tenant: numbers[tenant], Prompt: phase.Prompt{Tokens: tail}, PromptTokens: int32(prompt), MaxThinkTokens: int32(asked),
		Cached: int32(cached), Shared: int32(min((cached+3)/4, int(p.m.Begun[len(p.m.Begun)-1].SharedBlocks))),
	})
	p.next++
}

func (p *pair) commit(measured bool) {
	s := p.some("who")
	computed := rapid.IntRange(0, 12).Draw(p.t, "computed")
	tokens := rapid.SliceOfN(rapid.SampledFrom([]uint32{word, word, word, paragraph, thinkID, endID, lastID}), 0, 3).Draw(p.t, "tokens")
	c := governor.Commit{Sequence: s, Computed: int32(computed), Tokens: tokens}
	p.m.Sequences, p.m.Computed = append(p.m.Sequences, uint64(s)), append(p.m.Computed, uint32(computed))
	p.m.Counts, p.m.Tokens = append(p.m.Counts, uint32(len(tokens))), append(p.m.Tokens, tokens...)
	if measured {
		for range tokens {
			nats := float32(math.NaN())
			if rapid.IntRange(0, 9).Draw(p.t, "measured") > 0 {
				nats = rapid.Float32Range(-1, 5).Draw(p.t, "nats")
			}
			p.m.Entropies = append(p.m.Entropies, nats)
			c.Entropies = append(c.Entropies, float64(nats))
		}
	}
	p.facts.Commits = append(p.facts.Commits, c)
	if computed > 0 {
		p.facts.Sequences++
		p.facts.Computed += int32(computed)
	}
	got := rapid.IntRange(0, 2).Draw(p.t, "blocks")
	p.m.BlockCounts = append(p.m.BlockCounts, uint32(got))
	for range got {
		p.block = (p.block + 1) % 70 // some that there are not
		p.m.Blocks = append(p.m.Blocks, uint32(p.block))
		p.facts.Held = append(p.facts.Held, governor.Hold{Sequence: s, Block: p.block})
	}
}

// rest is what happens now and then.
func (p *pair) rest(last *doorpb.Decision) {
	for _, s := range last.GetFork() {
		nats := rapid.Float32Range(0, 1e-3).Draw(p.t, "fork")
		p.m.Forked, p.m.ForkNats = append(p.m.Forked, s), append(p.m.ForkNats, nats)
		p.facts.Forks = append(p.facts.Forks, governor.Fork{Sequence: phase.Sequence(s), Nats: float64(nats)})
	}
	for _, c := range last.GetCopyOut() {
		whole := rapid.Bool().Draw(p.t, "whole")
		p.m.Copied = append(p.m.Copied, &doorpb.Copied{Sequence: c.Sequence, Blocks: c.Blocks, TookNs: 5e5, Whole: whole})
		p.facts.Copied = append(p.facts.Copied, governor.Copied{Sequence: phase.Sequence(c.Sequence), Blocks: ids(c.Blocks), Took: 5e5, Whole: whole})
	}
	for _, s := range last.GetRecall() {
		blocks := []uint32{1, 2, 3}
		p.m.Recalled = append(p.m.Recalled, &doorpb.Copied{Sequence: s, Blocks: blocks, TookNs: 7e5, Whole: true})
		p.facts.Recalled = append(p.facts.Recalled, governor.Recalled{Sequence: phase.Sequence(s), Blocks: ids(blocks), Took: 7e5, Whole: true})
	}
	for _, pre := range last.GetPreempt() {
		p.m.Stopped = append(p.m.Stopped, &doorpb.Stopped{Sequence: pre.Sequence, Lost: !pre.Swap})
		p.facts.Stopped = append(p.facts.Stopped, governor.Stopped{Sequence: phase.Sequence(pre.Sequence), Lost: !pre.Swap})
	}
	if rapid.IntRange(0, 5).Draw(p.t, "ends") == 0 {
		s := p.some("ended")
		p.m.Finished = append(p.m.Finished, uint64(s))
		p.facts.Ended = append(p.facts.Ended, s)
	}
	if rapid.IntRange(0, 5).Draw(p.t, "evicts") == 0 {
		b := rapid.IntRange(0, 70).Draw(p.t, "evicted")
		p.m.Evicted = append(p.m.Evicted, uint32(b))
		p.facts.Evicted = append(p.facts.Evicted, block.ID(b))
	}
}

func ids(blocks []uint32) []block.ID {
	var out []block.ID
	for _, b := range blocks {
		out = append(out, block.ID(b))
	}
	return out
}

// Whatever an engine tells, and however little of it makes sense, its governor decides
// the same by messages as by facts.
func TestSameDecisions(t *testing.T) {
	for _, policy := range policy.Names() {
		t.Run(policy, func(t *testing.T) {
			rapid.Check(t, func(r *rapid.T) {
				p := newPair(r, t, policy)
				var last *doorpb.Decision
				for range rapid.IntRange(1, 30).Draw(r, "steps") {
					last = p.step(last)
				}
				want, got := p.direct.Counters(), p.by.engine.scheduler.governor.Counters()
				if want.Contradictions != got.Contradictions || want.Forced != got.Forced || want.Transitions != got.Transitions || want.Preempted != got.Preempted {
					r.Fatalf("counted %+v, by messages %+v", want, got)
				}
			})
		})
	}
}

func (p *pair) step(last *doorpb.Decision) *doorpb.Decision {
	p.clock.advance(3 * time.Millisecond)
	p.number++
	took := rapid.SampledFrom([]uint64{0, 2e6, 1e9}).Draw(p.t, "took")
	free := rapid.IntRange(0, 64).Draw(p.t, "free")
	down := rapid.IntRange(0, 7).Draw(p.t, "down") == 0
	p.m = &doorpb.Step{Number: p.number, TookNs: took, FreeBlocks: uint32(free), StoreDown: down}
	p.facts = governor.Facts{
		Now: policy.Second + policy.Instant(p.number)*3*policy.Millisecond, Took: policy.Instant(took), FreeBlocks: int32(free), FabricDown: down,
	}
	for range rapid.IntRange(0, 2).Draw(p.t, "begun") {
		p.begin()
	}
	measured := rapid.Bool().Draw(p.t, "measures")
	for range rapid.IntRange(0, 6).Draw(p.t, "commits") {
		p.commit(measured)
	}
	p.rest(last)
	want := p.direct.Step(&p.facts)
	got, err := p.by.Step(p.m)
	if err != nil {
		p.t.Fatal(err)
	}
	if diff := cmp.Diff(inWords(p, want), got, protocmp.Transform()); diff != "" {
		p.t.Fatalf("step %d: %s", p.number, diff)
	}
	return got
}

// inWords is a decision as a message has it, written down a second time.
func inWords(p *pair, d *governor.Decision) *doorpb.Decision {
	out := &doorpb.Decision{Step: p.number, Steps: uint32(d.Steps)}
	if d.Until > 0 {
		if cost := p.direct.Costs().Step; cost > 0 {
			out.Steps = uint32(max(1, min(policy.Instant(d.Steps), (d.Until-p.facts.Now)/cost)))
		}
	}
	for _, r := range d.Order {
		out.Order, out.OrderTokens = append(out.Order, uint64(r.Sequence)), append(out.OrderTokens, uint32(r.Tokens))
	}
	for _, list := range []struct {
		from []phase.Sequence
		to   *[]uint64
	}{{d.Pause, &out.Pause}, {d.Resume, &out.Resume}, {d.Fork, &out.Fork}, {d.Recall, &out.Recall}, {d.Reaped, &out.Forgotten}} {
		for _, s := range list.from {
			*list.to = append(*list.to, uint64(s))
		}
	}
	for _, f := range d.Force {
		out.Force = append(out.Force, &doorpb.Force{Sequence: uint64(f.Sequence), Tokens: f.Tokens, Reason: f.Reason.String()})
	}
	for _, c := range d.CopyOut {
		one := &doorpb.CopyOut{Sequence: uint64(c.Sequence)}
		for _, b := range c.Blocks {
			one.Blocks = append(one.Blocks, uint32(b))
		}
		out.CopyOut = append(out.CopyOut, one)
	}
	for _, b := range d.Evict {
		out.Evict = append(out.Evict, uint32(b))
	}
	for _, v := range d.Preempt {
		out.Preempt = append(out.Preempt, &doorpb.Preempt{Sequence: uint64(v.Sequence), Swap: v.Reclaim == policy.Offload, Reason: v.Reason.String()})
	}
	return out
}
