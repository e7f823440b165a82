package engine

import (
	"cmp"
	"math"
	"slices"
	"time"

	"meridian/engine/batch"
	"meridian/serve/door/doorpb"
)

// Governor is who decides beside an engine: who runs, and when a thought has gone on long
// enough. Steps go to it and decisions come back; the engine waits for none longer than it
// must, and serves as it would alone while there is none. door.Steps, to an agent, is one.
type Governor interface {
	// Terms is what the engine goes by; it does not change while a connection lasts.
	Terms() *doorpb.GovernorTerms
	// Connected reports whether the governor is there.
	Connected() bool
	// Renewed reports, once for each connection, that it is a new one, to which
	// everything alive is to be told.
	Renewed() bool
	// Send tells of a step and does not wait; false: it will not be heard of.
	Send(*doorpb.Step) bool
	// Take waits for what follows from the last step that was sent, for so long at most,
	// and returns what has come.
	Take(wait time.Duration) []*doorpb.Decision
	Close()
}

// governed is what the step loop knows of its governor.
//
//	alone ──connection──► everything that lives is told ──► told ──Send──► waits ──Decision──► told
//	  ▲                                                       │              │ too late: plans without it
//	  └────── connection lost: pauses, order and what was told are void ─────┘
type governed struct {
	governor  Governor
	terms     *doorpb.GovernorTerms // nil: the engine goes by its own order
	number    uint64                // of the last Step
	before    uint64                // the last Step of the connection before
	waits     bool                  // for the Decision that follows from the last Step
	decided   time.Time
	idle      time.Time // since when no sequence runs though there are some; zero: one runs
	stood     bool      // no sequence could run: until one has, none is paused or preempted
	known     []*choice // those that live, as they came
	byNumber  map[uint64]*choice
	sequences uint64       // numbers that were given
	columns   *doorpb.Step // that are to be sent
	measured  bool         // they have an entropy
	begunIDs  int          // in them, of those that begin
}

const (
	// governorSilence is after what time without a decision pauses are void: the governor
	// may be there and not decide.
	governorSilence = time.Second
	// restPatience is how long all sequences may be paused.
	restPatience = 250 * time.Millisecond
	// restTell is how often an engine that only has paused sequences says so.
	restTell = 5 * time.Millisecond
	// maxTail is how many tokens of a prompt's end are told.
	maxTail = 256
	// maxGenerated is how many tokens of an answer that goes on are told.
	maxGenerated = 1 << 18
	// maxBegunIDs is after how many ids of those that begin a Step is sent, so that it
	// fits a frame.
	maxBegunIDs = 1 << 20
)

// aboutSteps is what the governor is told of the engine.
func (e *Engine) aboutSteps() *doorpb.Steps {
	p := e.publication()
	size, err := p.Geometry.BytesPerBlock(p.BlockTokens)
	if err != nil {
		size = 0 // its registration will be refused for it
	}
	return &doorpb.Steps{
		BlockBytes: uint64(size), Model: e.options.ServedName, BlockTokens: uint32(e.options.BlockTokens),
		MaxRunning: uint32(e.options.MaxRunning), StepTokens: uint32(e.options.StepTokens), Forces: true, Forks: true,
		Blocks: uint32(e.options.Blocks), Swaps: true,
	}
}

// reconnect notes whether there is a governor, and tells a new one of everything alive.
func (e *Engine) reconnect() {
	if e.governor == nil {
		return
	}
	if e.terms != nil && !e.governor.Connected() {
		e.ungoverned()
	}
	if !e.governor.Renewed() {
		return
	}
	e.ungoverned() // it may have come back unnoticed
	e.terms, e.decided = cmp.Or(e.governor.Terms(), &doorpb.GovernorTerms{}), time.Now()
	for _, c := range e.known {
		if e.terms != nil { // else it is gone again
			e.beginTold(c)
		}
	}
	e.options.Logger.Info("a governor decides for this engine", "engine", e.options.ID)
}

// ungoverned makes void what a governor said that is gone, and what it was told.
func (e *Engine) ungoverned() {
	if e.terms == nil {
		return
	}
	e.options.Logger.Warn("the governor is lost; this engine goes by its own order", "engine", e.options.ID)
	e.terms, e.waits, e.before = nil, false, e.number
	e.columns, e.measured = &doorpb.Step{}, false
	e.unpauseAll()
	e.scheduler.Obey(batch.Order{})
	for _, c := range e.known {
		c.told = toldOf{}
		e.dropFork(c)
		e.unswap(c)
	}
}

// unpauseAll takes the governor's reason for a pause from all sequences.
func (e *Engine) unpauseAll() {
	for _, c := range e.known {
		e.scheduler.Unpause(&c.sequence, batch.Governed)
	}
}

// failOpen has everybody go on whom a governor that is there has wait. It hears of those
// that it believes to be on their way out: they stay.
func (e *Engine) failOpen() {
	e.counters.FailedOpen++
	e.unpauseAll()
	for _, c := range e.known {
		stays := c.swap != nil && len(c.swap.away) == 0
		if e.unswap(c); stays {
			e.columns.Copied = append(e.columns.Copied, &doorpb.Copied{Sequence: c.governed})
		}
	}
}

// obey applies what was decided. For what follows from the last Step it waits, but not
// longer than it may.
func (e *Engine) obey() {
	if e.reconnect(); e.terms == nil {
		return
	}
	if len(e.columns.Finished) > 0 { // between two steps: others may have its blocks in the next
		e.send(0)
	}
	wait := time.Duration(0)
	if e.waits && len(e.known) > 0 {
		wait = cmp.Or(e.options.GovernorWait, min(time.Duration(e.terms.GetWaitUs())*time.Microsecond, maxGovernorWait))
	}
	for _, d := range e.governor.Take(wait) {
		if d.GetStep() > e.before && d.GetStep() <= e.number { // else it is of another connection
			e.decided = time.Now()
			e.apply(d)
		}
	}
	e.waits = false // what comes later is late
	if e.governedPauses() && time.Since(e.decided) > governorSilence {
		e.failOpen()
	}
}

// maxGovernorWait is the longest that terms can make a step wait.
const maxGovernorWait = 100 * time.Millisecond

func (e *Engine) governedPauses() bool {
	for _, c := range e.known {
		if c.sequence.Paused()&batch.Governed != 0 {
			return true
		}
	}
	return false
}

// rest waits for something to do. While sequences are paused for the governor it is told
// again that none runs, so that it can let them; where it does not, they run after a
// while without being let.
func (e *Engine) rest() {
	if e.terms == nil || !e.governedPauses() {
		<-e.wake
		return
	}
	if e.makeRoom() {
		return
	}
	timer := time.NewTimer(restTell)
	defer timer.Stop()
	select {
	case <-e.wake:
	case <-timer.C:
		if e.idle.IsZero() {
			e.idle = time.Now()
		}
		if time.Since(e.idle) > max(restPatience, e.options.GovernorWait) {
			e.failOpen()
			e.stood = true // else the next decision stops them again before they are planned
			return
		}
		e.send(0)
	}
}

// makeRoom takes the blocks of a paused sequence where none runs, and one that may run
// waits for blocks: a governor that wants it to run reckons with what a step needs, and
// here it needs all of its blocks to begin. What is on its way out frees blocks by itself.
func (e *Engine) makeRoom() bool {
	waits := false
	for _, c := range e.known {
		if c.swap != nil && len(c.swap.away) == 0 {
			return false
		}
		waits = waits || c.sequence.State() == batch.Waiting && c.sequence.Paused() == 0
	}
	if !waits || e.keeps > 0 || len(e.accepts) > 0 {
		return false
	}
	for _, c := range slices.Backward(e.known) {
		if c.sequence.Paused()&batch.Governed != 0 && c.swap == nil && e.scheduler.Preempt(&c.sequence) {
			e.dropFork(c)
			e.counters.Preempted++
			e.stopped(c)
			return true
		}
	}
	return false
}

// tell sends what a turn did, if there is something to tell.
func (e *Engine) tell(plan batch.Plan, took time.Duration) {
	if len(plan.Work) > 0 {
		e.idle, e.stood = time.Time{}, false
	}
	if e.terms == nil {
		return
	}
	for _, c := range e.known {
		e.collect(c)
	}
	s := e.columns
	if len(plan.Work) == 0 {
		took = 0
	}
	if took > 0 || len(s.Begun)+len(s.Sequences)+len(s.Finished)+len(s.Stopped)+len(s.Forked)+len(s.Copied)+len(s.Recalled) > 0 {
		e.send(took)
	}
}

// send sends the Step that was collected.
func (e *Engine) send(took time.Duration) {
	s, now := e.columns, e.scheduler.Stats()
	e.number++
	s.Number, s.TookNs = e.number, uint64(took)
	s.Running, s.Waiting, s.FreeBlocks = uint32(now.Running), uint32(now.Waiting+now.Fetching), uint32(now.Free+now.Cached)
	s.StoreDown, s.Late, s.FailedOpen = e.storeDown(), e.counters.Late, e.counters.FailedOpen
	if !e.measured {
		s.Entropies = nil
	}
	e.columns, e.measured, e.begunIDs = &doorpb.Step{}, false, 0
	if !e.governor.Send(s) {
		e.ungoverned()
		return
	}
	e.counters.Told++
	e.waits = true
}

// toldOf is what a governor was told of a choice.
type toldOf struct {
	begun  bool
	kv     int // tokens whose KV is there
	tokens int // of prompt and answer
	blocks int // that it has
	// evicted are blocks of it that the governor took to be gone, and that are here.
	evicted map[uint32]bool
	// nats are the entropies of the tokens that it was not told of.
	nats []float32
}

// govern has a sequence told of, and obeyed about.
func (e *Engine) govern(c *choice) {
	if e.governor == nil {
		return
	}
	e.sequences++
	c.governed = e.sequences
	e.known = append(e.known, c)
	e.byNumber[c.governed] = c
	if e.terms != nil {
		e.beginTold(c)
	}
}

// beginTold tells that a sequence is there.
func (e *Engine) beginTold(c *choice) {
	q := c.request
	computed := c.sequence.Computed()
	cached := min(computed, c.sequence.Prompt-1)
	b := &doorpb.Begun{
		Sequence: c.governed, Id: q.ID, PromptTokens: uint32(c.sequence.Prompt), Tenant: q.Salt,
		CachedTokens: uint32(cached), SharedBlocks: uint32((cached + e.options.BlockTokens - 1) / e.options.BlockTokens),
	}
	prompt, answer := c.sequence.Tokens[:c.sequence.Prompt], c.sequence.Tokens[c.sequence.Prompt:]
	b.Tail = append(b.Tail, prompt[max(0, len(prompt)-maxTail):]...)
	b.Generated = append(b.Generated, answer[max(0, len(answer)-maxGenerated):]...)
	if q.MaxThinkTokens != nil { // one that may not think at all is seen to here
		b.MaxThinkTokens = uint32(max(1, min(*q.MaxThinkTokens, math.MaxInt32)))
	}
	c.told = toldOf{begun: true, kv: cached, tokens: len(c.sequence.Tokens)}
	c.found = len(c.sequence.Blocks()) // what was in them before is nothing to the governor that is told now
	e.columns.Begun = append(e.columns.Begun, b)
	if e.begunIDs += len(b.GetTail()) + len(b.GetGenerated()); e.begunIDs > maxBegunIDs {
		e.send(0)
	}
}

// collect notes what has become of a sequence since it was told of last.
func (e *Engine) collect(c *choice) {
	t := &c.told
	if !t.begun {
		return
	}
	computed, tokens := max(0, c.sequence.Computed()-t.kv), c.sequence.Tokens[t.tokens:]
	var blocks []uint32
	if table := c.sequence.Blocks(); len(table) > t.blocks && (c.swap == nil || len(c.swap.away) == 0) {
		blocks = table[t.blocks:]
	}
	if computed == 0 && len(tokens) == 0 && len(blocks) == 0 {
		return
	}
	s := e.columns
	for i, b := range blocks {
		if t.blocks+i >= c.found { // what was in it is not any more
			s.Evicted = append(s.Evicted, b)
		}
	}
	s.BlockCounts = append(s.BlockCounts, uint32(len(blocks)))
	s.Blocks = append(s.Blocks, blocks...)
	t.blocks += len(blocks)
	s.Sequences = append(s.Sequences, c.governed)
	s.Computed = append(s.Computed, uint32(computed))
	s.Counts = append(s.Counts, uint32(len(tokens)))
	s.Tokens = append(s.Tokens, tokens...)
	for i := range tokens {
		nats := float32(math.NaN())
		if i < len(t.nats) {
			nats = t.nats[i]
		}
		e.measured = e.measured || nats == nats
		s.Entropies = append(s.Entropies, nats)
	}
	t.kv, t.tokens, t.nats = t.kv+computed, t.tokens+len(tokens), t.nats[:0]
}

// stopped tells that a sequence has lost its blocks. What the cell has of it is looked for
// when it would be computed: much may be here still.
func (e *Engine) stopped(c *choice) {
	e.endSwap(c)
	e.tellLost(c)
	c.sequence.Ask = e.mayRefetch(c)
}

// tellLost tells that a sequence has none of its blocks any more.
func (e *Engine) tellLost(c *choice) {
	e.scheduler.Unpause(&c.sequence, batch.Governed) // it waits for a place, and for nothing else
	if c.told.begun {
		e.columns.Stopped = append(e.columns.Stopped, &doorpb.Stopped{Sequence: c.governed, Lost: true})
		c.told.kv, c.told.blocks, c.told.evicted = 0, 0, nil
	}
}

// ungovern tells that a sequence has ended, with what it did last.
func (e *Engine) ungovern(c *choice) {
	if e.byNumber[c.governed] != c {
		return
	}
	if c.told.begun && e.terms != nil {
		e.collect(c)
		e.columns.Finished = append(e.columns.Finished, c.governed)
	}
	e.endFork(c)
	e.endSwap(c)
	delete(e.byNumber, c.governed)
	for i, other := range e.known {
		if other == c {
			e.known = append(e.known[:i], e.known[i+1:]...)
			break
		}
	}
}
