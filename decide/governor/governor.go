package governor

import (
	"errors"
	"fmt"

	"meridian/decide/block"
	"meridian/decide/phase"
	"meridian/decide/policy"
	"meridian/kv"
)

// ErrContradiction means that a fact does not fit what was said before.
var ErrContradiction = errors.New("governor: contradiction")

// MaxContradictions of one step are told apart. After more the rest of its facts is left
// out: who tells them and this governor do not mean the same engine any more.
const MaxContradictions = 1 << 10

// reapEvery is after how many steps silent sequences are looked for.
const reapEvery = 64

// Options is what a governor is made for.
type Options struct {
	// Model is the one that the engine serves; nil means one without thoughts.
	Model *phase.Model
	// Texts returns what a token stands for: where clauses and paragraphs end.
	// Without it every token is a boundary and no context is forked.
	Texts func(id uint32) []byte
	// Follows: if thoughts are ended, others end them. They are followed, and none is
	// ended by a decision.
	Follows bool
	// Forks: the engine can fork a context for EAT.
	Forks  bool
	Policy policy.Policy
	Limits policy.Limits
	Budget Budget
	// Blocks describes the engine's block table; without blocks none is kept, and
	// nothing is copied out.
	Blocks block.Options
	// OffloadThreshold is disagg.offload_threshold_blocks; 0 means 1.
	OffloadThreshold int32
	// Offloads: finished thoughts are copied out, disagg.enabled.
	Offloads bool
}

// Governor decides for one engine. One goroutine feeds it.
type Governor struct {
	options     Options
	phases      *phase.Map
	blocks      *block.Table // nil: there is none
	calibration Calibration
	attended    Work // what the commits of this step attended to
	downSince   policy.Instant

	// sequences and snapshot.Requests are parallel, in the order of arrival.
	sequences []*sequence
	dropped   int // of them, since compact
	byNumber  map[phase.Sequence]*sequence
	snapshot  policy.Snapshot
	policy    policy.Decision

	decision Decision
	counters Counters
	events   []phase.Event
	held     []block.Held
	ids      []block.ID
	// waiting are finished thoughts' blocks that make no batch yet; underWay counts
	// blocks whose copies are being made.
	waiting  []copyRequest
	unwished bool // some of them are void
	underWay int32
	// outdated counts copies of blocks that were asked for, and that the engine gave up before.
	outdated map[block.ID]int
	leaving  []*sequence // of whom this step's facts say that they may leave
}

// New makes a governor.
func New(o Options) (*Governor, error) {
	if err := o.Budget.Check(); err != nil {
		return nil, err
	}
	if o.Policy == nil || o.Limits.BlockTokens < 1 {
		return nil, fmt.Errorf("%w: a policy and the size of a block must be given", ErrOptions)
	}
	if o.Model == nil {
		model, err := phase.NewModel(phase.Markers{})
		if err != nil {
			return nil, err
		}
		o.Model = model
	}
	o.OffloadThreshold = max(1, o.OffloadThreshold)
	g := &Governor{
		options: o, phases: phase.NewMap(o.Model), byNumber: make(map[phase.Sequence]*sequence), outdated: make(map[block.ID]int),
		calibration: Calibration{BlockTokens: o.Limits.BlockTokens},
	}
	if o.Blocks.Blocks > 0 {
		table, err := block.New(o.Blocks)
		if err != nil {
			return nil, err
		}
		g.blocks = table
	}
	return g, nil
}

// Counters is what happened until now.
func (g *Governor) Counters() Counters {
	c := g.counters
	c.Sequences = int64(len(g.sequences))
	return c
}

// Blocks is what the block table has counted; false without one.
func (g *Governor) Blocks() (block.Counters, bool) {
	if g.blocks == nil {
		return block.Counters{}, false
	}
	return g.blocks.Counters(), true
}

// Costs is what policies go by now.
func (g *Governor) Costs() policy.Costs {
	running := int32(0)
	for i := range g.snapshot.Requests {
		if g.snapshot.Requests[i].State == policy.Running {
			running++
		}
	}
	return g.calibration.Costs(running)
}

// ResumeState is what a sequence takes along when it is resumed elsewhere.
func (g *Governor) Carry(number phase.Sequence) (ResumeState, bool) {
	s, machine, known := g.find(number)
	if !known {
		return ResumeState{}, false
	}
	return ResumeState{Phase: machine.Export(), Limit: s.thought.limit, Forced: s.forced}, true
}

func (g *Governor) find(number phase.Sequence) (*sequence, phase.Machine, bool) {
	machine, known := g.phases.Machine(number)
	return g.byNumber[number], machine, known
}

// Step takes what happened and decides what comes next. It never fails: what
// contradicts itself is left out and counted, and an engine that carries nothing
// of the decision out goes on as if there were no governor.
func (g *Governor) Step(f *Facts) *Decision {
	g.decision.reset()
	g.counters.Steps++
	g.linkFacts(f)
	each(g, f.Arrivals, g.arrive)
	each(g, f.Stopped, g.stopped)
	g.blockFacts(f)
	g.attended = Work{}
	each(g, f.Commits, func(c *Commit) error { return g.commit(f.Now, c) })
	g.calibration.Stepped(f.Took, &Work{Tokens: f.Computed, Sequences: f.Sequences, Context: g.attended.Context, Pairs: g.attended.Pairs})
	each(g, f.Forks, g.forked)
	each(g, f.Ended, g.end)
	g.compact()
	g.reap(f.Now)
	g.compact()
	g.forgetCopies(f.Now)
	g.evictDue()
	g.schedule(f)
	g.copyOut()
	return &g.decision
}

// each takes facts of a kind, until too many of the step contradict: to say what is
// wrong with each would take longer than many steps.
func each[T any](g *Governor, facts []T, take func(*T) error) {
	for i := range facts {
		if g.decision.Contradictions > MaxContradictions {
			return
		}
		g.contradicted(take(&facts[i]))
	}
}

func (g *Governor) contradicted(err error) {
	if err != nil {
		g.decision.Contradictions++
		g.counters.Contradictions++
		g.counters.LastContradiction = err
	}
}

func (g *Governor) linkFacts(f *Facts) {
	switch {
	case !f.FabricDown:
		g.downSince = 0
	case !g.calibration.FabricDown:
		g.downSince = f.Now
	}
	g.calibration.FabricDown = f.FabricDown
}

// arrive begins a sequence, or resumes it.
func (g *Governor) arrive(a *Arrival) error {
	if a.PromptTokens < 1 || a.PromptTokens > maxLength || a.Tenant < 0 || a.Tenant >= maxTenants || a.Cached < 0 || a.Cached >= a.PromptTokens || a.Shared < 0 {
		return fmt.Errorf("%w: sequence %d of tenant %d with %d tokens, %d of them cached in %d blocks", ErrContradiction, a.Sequence, a.Tenant, a.PromptTokens, a.Cached, a.Shared)
	}
	if err := g.begin(a); err != nil {
		return err
	}
	s := &sequence{number: a.Sequence, index: len(g.sequences), thought: g.options.Budget.Begin(a.MaxThinkTokens)}
	machine, _ := g.phases.Machine(a.Sequence)
	if c := a.Resumed; c != nil {
		s.thought, s.forced, s.forcedAt = g.options.Budget.Begin(c.Limit), c.Forced, int32(machine.Think())
		s.thought.Miss(machine.Think())
	}
	s.generated = int32(machine.Tokens())
	r := policy.Request{
		Arrived: a.At, Tenant: a.Tenant, Prompt: a.PromptTokens, Length: a.Cached, Blocks: a.Shared,
		Pending: a.PromptTokens + s.generated - a.Cached,
		Phase:   machine.Phase(), Think: int32(machine.Think()), Output: int32(machine.Output()),
	}
	if g.blocks != nil {
		s.holder = g.blocks.Admit()
	}
	g.snapshot.Tenants = policy.Join(g.snapshot.Tenants, a.Tenant)
	g.sequences = append(g.sequences, s)
	g.snapshot.Requests = append(g.snapshot.Requests, r)
	g.byNumber[a.Sequence] = s
	return nil
}

func (g *Governor) begin(a *Arrival) error {
	if a.Resumed == nil {
		return g.phases.Begin(int64(a.At), a.Sequence, a.Prompt)
	}
	if a.Resumed.Phase.Phase == kv.Complete || a.Resumed.Forced > HardCap {
		return fmt.Errorf("%w: sequence %d is resumed after its end", ErrContradiction, a.Sequence)
	}
	return g.phases.Resume(int64(a.At), a.Sequence, a.Resumed.Phase)
}

// end forgets a sequence.
func (g *Governor) end(number *phase.Sequence) error {
	s := g.byNumber[*number]
	if s == nil {
		return fmt.Errorf("%w: %w: %d has ended", ErrContradiction, phase.ErrUnknown, *number)
	}
	g.events, _ = g.phases.End(*number, g.events[:0])
	return g.drop(s)
}

// drop forgets a sequence, whose place compact takes.
func (g *Governor) drop(s *sequence) error {
	delete(g.byNumber, s.number)
	g.snapshot.Tenants[g.request(s).Tenant].Leave()
	s.dropped, g.unwished = true, true
	g.dropped++
	if g.blocks == nil {
		return nil
	}
	return g.blocks.End(s.holder)
}

// compact takes the places of dropped sequences away, of all at once: thousands may end
// in a step. Before the next step begins and policies look there are none.
func (g *Governor) compact() {
	if g.dropped == 0 {
		return
	}
	g.dropped = 0
	kept := 0
	for i, s := range g.sequences {
		if s.dropped {
			continue
		}
		s.index = kept
		g.sequences[kept], g.snapshot.Requests[kept] = s, g.snapshot.Requests[i]
		kept++
	}
	clear(g.sequences[kept:])
	g.sequences, g.snapshot.Requests = g.sequences[:kept], g.snapshot.Requests[:kept]
}

// reap forgets those of whom the engine has not spoken for long. Who waits or is
// away is not silent by its own fault.
func (g *Governor) reap(now policy.Instant) {
	if g.counters.Steps%reapEvery != 0 {
		return
	}
	for i, s := range g.sequences {
		if g.snapshot.Requests[i].State != policy.Running {
			g.phases.Touch(int64(now), s.number)
		}
	}
	g.decision.Reaped = g.phases.Reap(int64(now), phase.StaleNs, g.decision.Reaped)
	for _, number := range g.decision.Reaped {
		g.counters.Reaped++
		g.contradicted(g.drop(g.byNumber[number]))
	}
}
