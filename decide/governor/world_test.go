package governor

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"meridian/decide/block"
	"meridian/decide/phase"
	"meridian/decide/policy"
)

// world is an engine that does what a governor decides, with memory that runs
// short, copies that take steps or fail, and decisions that arrive late.
type world struct {
	t        *rapid.T
	g        *Governor
	limits   policy.Limits
	free     []block.ID
	sealed   map[block.ID]bool // as the table has it: full, and free or held
	live     map[phase.Sequence]*job
	copies   []Copied
	copying  map[block.ID]bool // true: no job holds it any more, and it waits
	recalls  []Recalled
	facts    Facts
	step     int
	down     bool
	finished int
}

// gone stands for a block that is elsewhere.
const gone = ^block.ID(0)

// job is a sequence of a world.
type job struct {
	number                phase.Sequence
	prompt, think, output int
	generated, computed   int
	blocks                []block.ID
	inject                []uint32
}

func (j *job) total() int { return j.prompt + j.generated }

// next is the token that comes after those it has.
func (j *job) next() uint32 {
	if len(j.inject) > 0 {
		id := j.inject[0]
		j.inject = j.inject[1:]
		return id
	}
	switch {
	case j.think > 0 && j.generated == 0:
		return thinkID
	case j.think > 0 && j.generated == j.think+1:
		return endID
	case j.think > 0 && j.generated == j.think+2:
		return 92
	}
	return 5
}

func (j *job) over() bool { return j.generated >= j.think+j.output+3 }

func newWorld(t *rapid.T, g *Governor, o Options) *world {
	w := &world{t: t, g: g, limits: o.Limits, sealed: make(map[block.ID]bool), copying: make(map[block.ID]bool), live: make(map[phase.Sequence]*job)}
	for b := range block.ID(o.Limits.Blocks) {
		w.back(b)
	}
	return w
}

func (w *world) arrive(j *job) {
	w.live[j.number] = j
	w.facts.Arrivals = append(w.facts.Arrivals, Arrival{Sequence: j.number, At: w.now(), PromptTokens: int32(j.prompt), Tenant: int32(j.number % 2)})
}

// back is a block that may be used again, which no job has and which is not back.
func (w *world) back(b block.ID) {
	for _, j := range w.live {
		if slices.Contains(w.free, b) || slices.Contains(j.blocks, b) {
			w.t.Fatalf("step %d: block %d is free twice, or %d has it\n%s", w.step, b, j.number, w.stuck())
		}
	}
	w.free = append(w.free, b)
}

func (w *world) now() policy.Instant { return policy.Instant(w.step+1) * 10 * policy.Millisecond }

// take gives a job so many blocks.
func (w *world) take(j *job, n int) bool {
	if n > len(w.free) {
		return false
	}
	for _, b := range w.free[:n] {
		if w.sealed[b] {
			w.facts.Evicted = append(w.facts.Evicted, b)
			delete(w.sealed, b)
		}
		w.facts.Held = append(w.facts.Held, Hold{j.number, b})
		if len(j.blocks) > 0 {
			w.sealed[j.blocks[len(j.blocks)-1]] = true
		}
		j.blocks = append(j.blocks, b)
	}
	w.free = w.free[n:]
	return true
}

// give takes a job's blocks back; those that a copy is being made of wait for it.
func (w *world) give(j *job) {
	had := j.blocks
	j.blocks = nil
	for _, b := range had {
		if _, copying := w.copying[b]; copying {
			w.copying[b] = true
		} else if b != gone {
			w.back(b)
		}
	}
}

// plan takes the blocks that a run needs; without them it waits, and the governor
// hears nothing of it.
func (w *world) plan(r Allotment) (*job, int) {
	j := w.live[r.Sequence]
	if j == nil {
		return nil, 0
	}
	if slices.Contains(j.blocks, gone) {
		w.t.Fatalf("step %d: %d is to run without all of its blocks", w.step, j.number)
	}
	n := min(int(r.Tokens), j.total()-j.computed)
	need := (j.computed+n+int(w.limits.BlockTokens)-1)/int(w.limits.BlockTokens) - len(j.blocks)
	if n < 1 || !w.take(j, max(0, need)) {
		return nil, 0
	}
	return j, n
}

func (w *world) run(j *job, n int) {
	j.computed += n
	c := Commit{Sequence: j.number, Computed: int32(n)}
	if j.computed == j.total() {
		c.Tokens = []uint32{j.next()}
		j.generated++
	}
	w.facts.Commits = append(w.facts.Commits, c)
	w.facts.Computed += int32(n)
	w.facts.Sequences++
	if j.over() {
		w.facts.Ended = append(w.facts.Ended, j.number)
		w.give(j)
		delete(w.live, j.number)
		w.finished++
	}
}

// obey carries a decision out.
func (w *world) obey(d *Decision) {
	for _, b := range d.Evict {
		for _, j := range w.live {
			if i := slices.Index(j.blocks, b); i >= 0 {
				j.blocks[i] = gone
				w.back(b)
			}
		}
		delete(w.sealed, b)
	}
	for _, p := range d.Preempt {
		j := w.live[p.Sequence]
		if j == nil {
			continue
		}
		if p.Reclaim == policy.Recompute {
			w.give(j)
			j.computed = 0
		}
		w.facts.Stopped = append(w.facts.Stopped, Stopped{p.Sequence, p.Reclaim == policy.Recompute})
	}
	for _, c := range d.CopyOut {
		for _, b := range c.Blocks {
			w.copying[b] = false
		}
		w.copies = append(w.copies, Copied{Sequence: c.Sequence, Blocks: slices.Clone(c.Blocks), Took: policy.Millisecond, Whole: true})
	}
	for _, number := range d.Recall {
		w.recall(number)
	}
	for _, f := range d.Force {
		if j := w.live[f.Sequence]; j != nil {
			j.inject = slices.Clone(f.Tokens)
			j.think = max(0, j.generated-1) // the rest is the answer
		}
	}
	type work struct {
		job    *job
		tokens int
	}
	var all []work
	for _, r := range d.Order {
		if j, n := w.plan(r); j != nil {
			all = append(all, work{j, n})
		}
	}
	for _, do := range all {
		w.run(do.job, do.tokens)
	}
}

// carry ends copies and recalls.
func (w *world) carry() {
	if rapid.IntRange(0, 3).Draw(w.t, "slow") == 0 {
		return
	}
	for _, c := range w.copies {
		c.Whole = !w.down
		for _, b := range c.Blocks {
			if w.copying[b] {
				w.back(b)
			}
			delete(w.copying, b)
		}
		w.facts.Copied = append(w.facts.Copied, c)
	}
	w.copies = nil
	for _, r := range w.recalls {
		j := w.live[r.Sequence]
		if r.Whole = !w.down && r.Blocks != nil; r.Whole {
			for i, b := range r.Blocks {
				j.blocks[slices.Index(j.blocks, gone)] = b
				w.sealed[b] = i < len(r.Blocks)-1 || j.blocks[len(j.blocks)-1] != b
			}
		} else {
			for _, b := range r.Blocks {
				w.back(b)
			}
			w.give(j)
			j.computed = 0
		}
		w.facts.Recalled = append(w.facts.Recalled, r)
	}
	w.recalls = nil
}

// recall takes blocks for what is elsewhere; with none the recall fails.
func (w *world) recall(number phase.Sequence) {
	j := w.live[number]
	r := Recalled{Sequence: number, Took: policy.Millisecond}
	n := 0
	for _, b := range j.blocks {
		if b == gone {
			n++
		}
	}
	if n <= len(w.free) {
		r.Blocks = slices.Clone(w.free[:n])
		w.free = w.free[n:]
	}
	for _, b := range r.Blocks {
		if w.sealed[b] {
			w.facts.Evicted = append(w.facts.Evicted, b)
			delete(w.sealed, b)
		}
	}
	w.recalls = append(w.recalls, r)
}

func (w *world) turn() {
	w.step++
	w.facts.Now, w.facts.FreeBlocks, w.facts.FabricDown, w.facts.Took = w.now(), int32(len(w.free)), w.down, 10*policy.Millisecond
	f := w.facts
	w.facts = Facts{}
	d := w.g.Step(&f)
	if c := w.g.Counters(); c.Contradictions > 0 {
		w.t.Fatalf("step %d: %v\nfacts %+v\n%s", w.step, c.LastContradiction, f, w.stuck())
	}
	w.obey(d)
	w.carry()
}

// Whatever the memory, the policy and the fabric do, nothing that an honest engine
// says contradicts itself, every sequence ends, and then no block is held.
func TestHonestEngine(t *testing.T) {
	for _, name := range policy.Names() {
		t.Run(name, func(t *testing.T) { rapid.Check(t, func(rt *rapid.T) { honest(t, rt, name) }) })
	}
}

func honest(t *testing.T, rt *rapid.T, name string) {
	o := options(t, newPolicy(t, name))
	o.Limits = policy.Limits{Tokens: 32, Sequences: 6, BlockTokens: 4, Blocks: rapid.Int32Range(16, 40).Draw(rt, "blocks"), PreemptMaxFraction: 0.3}
	o.Blocks.Blocks = int(o.Limits.Blocks)
	o.Blocks.Aggressive = rapid.Bool().Draw(rt, "aggressive")
	o.Budget.MaxThinkTokens = 20
	w := newWorld(rt, open(t, o), o)
	jobs := rapid.IntRange(1, 8).Draw(rt, "jobs")
	for begun := 0; begun < jobs || len(w.live) > 0; {
		if begun < jobs && rapid.IntRange(0, 2).Draw(rt, "arrives") == 0 {
			begun++
			w.arrive(&job{
				number: phase.Sequence(begun), prompt: rapid.IntRange(1, 20).Draw(rt, "prompt"),
				think: rapid.IntRange(0, 24).Draw(rt, "think"), output: rapid.IntRange(1, 10).Draw(rt, "output"),
			})
		}
		if rapid.IntRange(0, 19).Draw(rt, "flap") == 0 {
			w.down = !w.down
		}
		if w.turn(); w.step > 4000 {
			rt.Fatalf("%s: %s", name, w.stuck())
		}
	}
	for w.down = false; w.step < 5000 && (len(w.copies) > 0 || len(w.facts.Copied) > 0 || len(w.facts.Ended) > 0); {
		w.turn()
	}
	c, _ := w.g.Blocks()
	if c.Holds != 0 || len(w.g.sequences) != 0 || w.finished != jobs || w.g.underWay != 0 {
		rt.Fatalf("%d of %d finished, %d are left, %d under way, %+v", w.finished, jobs, len(w.g.sequences), w.g.underWay, c)
	}
}

func (w *world) stuck() string {
	text := fmt.Sprintf("%d are left after %d steps, %d blocks free:", len(w.live), w.step, len(w.free))
	for i, s := range w.g.sequences {
		r := w.g.snapshot.Requests[i]
		text += fmt.Sprintf("\n%d: %v, %v, length %d, pending %d, %d blocks, going %v", s.number, r.State, r.Phase, r.Length, r.Pending, r.Blocks, s.going)
	}
	for _, j := range w.live {
		text += fmt.Sprintf("\nhere %d: %v, %d computed", j.number, j.blocks, j.computed)
	}
	return text + fmt.Sprintf("\nfree %v, copying %v", w.free, w.copying)
}
