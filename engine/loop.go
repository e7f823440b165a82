package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"time"

	"meridian/engine/batch"
	"meridian/engine/model"
	"meridian/kv"
	"meridian/serve/openai"
)

// request is a Request on its way. It is the step loop's, but for its stream.
type request struct {
	Request
	stream  *Stream
	unwatch func() bool
	root    kv.Hash
	ends    []uint32
	choices []*choice
	open    int  // choices that go on
	over    bool // nothing is said any more
	seated  int  // choices that were not admitted yet
	cached  int  // tokens of prompts that were there

	submitted, admitted, first, fetching time.Time
	handoff                              time.Duration
	kv, kvReason                         string
	accept                               *accept
	took                                 [16]byte      // the hand-off of that accept, or of the one before
	search                               *prefixLookup // for a prefix; nil: it is over
	found                                int           // tokens that the cell has
	leaves                               bool          // it was asked to move, and does with its next token
	offered                              int           // tokens of what a request that moves offers
	early                                *early        // offer of its prompt, while that is computed
	triedEarly                           bool          // there was one, at some time
}

func (e *Engine) newRequest(r Request) *request {
	q := &request{Request: r, submitted: time.Now(), root: e.scope(&r).Root(), seated: len(r.Prompts) * r.N}
	q.ends = r.StopTokens
	if !r.IgnoreEOS {
		q.ends = append(append([]uint32(nil), e.source.ends...), r.StopTokens...)
	}
	q.stream = newStream(func() { e.post(func() { e.pause(q, false) }) })
	for number := range len(r.Prompts) * r.N {
		c := e.newChoice(q, number)
		if c.place > 0 {
			c.sequence.Leader = &q.choices[number-c.place].sequence
		}
		q.choices = append(q.choices, c)
	}
	q.open = len(q.choices)
	return q
}

// run is the step loop.
func (e *Engine) run() {
	defer close(e.loopDone)
	defer e.publishStats()
	for {
		began := time.Now()
		if e.takeInbox() && len(e.requests) == 0 && len(e.offers) == 0 && len(e.accepts) == 0 && len(e.inDoubt) == 0 {
			return
		}
		e.obey()
		planned := time.Now()
		plan := e.scheduler.Plan()
		e.admitted(plan)
		if len(plan.Work) > 0 {
			e.step(plan.Work)
			e.measure(plan.Work, time.Since(planned))
		}
		e.tell(plan, time.Since(planned))
		e.publishStats()
		runtime.Gosched() // on one processor, let readers tell what came of the step
		if e.options.OnStep != nil && len(plan.Work) > 0 {
			e.options.OnStep(newStep(plan.Work, time.Since(began)))
		}
		if len(plan.Work) == 0 && len(plan.Preempted) == 0 && len(plan.Dropped) == 0 && len(plan.Asked) == 0 {
			e.rest()
		}
	}
}

// takeInbox runs what others want and reports whether the engine is closing.
func (e *Engine) takeInbox() bool {
	for {
		e.mu.Lock()
		inbox, closing := e.inbox, e.closing
		e.inbox = nil
		e.mu.Unlock()
		if len(inbox) == 0 {
			return closing
		}
		for _, f := range inbox {
			f()
		}
	}
}

func (e *Engine) leaveSeats(n int) {
	e.mu.Lock()
	e.seats -= n
	e.mu.Unlock()
}

// begin takes a request over.
func (e *Engine) begin(q *request) {
	if q.over { // cancelled before it began
		return
	}
	e.requests[q] = struct{}{}
	for _, prompt := range q.Prompts {
		e.counters.Prompt += uint64(len(prompt))
	}
	for _, t := range q.Resume {
		c := q.choices[0]
		if c.finish != "" {
			e.finish(q, invalid("%d tokens to resume after, but the answer ends earlier", len(q.Resume)))
			return
		}
		c.take(e, t) // its text was told before
	}
	if present, may := e.mayFind(q); may {
		e.find(q, present)
		return
	}
	e.enqueue(q)
}

// enqueue lets a request's answers wait to be computed.
func (e *Engine) enqueue(q *request) {
	for _, c := range q.choices {
		if c.finish != "" {
			q.stream.push(Output{Choice: c.number, Finish: c.finish})
			e.ended(c)
		} else if err := e.scheduler.Add(&c.sequence); err != nil {
			e.finish(q, err)
			return
		} else {
			e.govern(c)
		}
	}
}

// admitted notes who has got blocks, and sends for caches.
func (e *Engine) admitted(p batch.Plan) {
	now := time.Now()
	for _, a := range p.Admitted {
		c := a.Sequence.Owner.(*choice)
		q := c.request
		if q.admitted.IsZero() {
			q.admitted = now
		}
		if !c.seen {
			c.seen = true
			q.seated--
			e.leaveSeats(1)
			if c.place == 0 {
				q.cached += min(a.Cached, a.Sequence.Prompt)
			}
		}
		if !a.Fetch {
			e.offerEarly(c, a.Cached)
		}
		c.found = a.Cached / e.options.BlockTokens
		switch {
		case c.swap != nil:
			e.returns(c, a)
		case c.refetch != nil:
			e.refetches(c, a)
		case a.Fetch:
			e.fetch(c, a)
		case a.Outdated:
			q.kv, q.kvReason = openai.KVLocal, "what was here when a prefix was found is not any more"
			e.counters.Local++
			e.giveBack(q.Ticket)
		case a.Declined:
			q.kv = openai.KVCached
			e.giveBack(q.Ticket)
		case q.Unused && q.kv == "":
			q.kv = openai.KVLocal
		case q.kv == "" && a.Cached > 0 && a.Sequence.Prompt-a.Cached < worthFetching:
			q.kv = openai.KVCached
		}
	}
	for _, s := range p.Preempted {
		if c, is := s.Owner.(*choice); is {
			e.dropEarly(c.request)
		}
	}
	e.counters.Preempted += uint64(len(p.Preempted))
	for _, q := range p.Preempted {
		e.stopped(q.Owner.(*choice))
	}
	for _, q := range p.Dropped {
		e.dropFork(q.Owner.(*fork).choice)
	}
	for _, q := range p.Asked {
		e.beginRefetch(q.Owner.(*choice))
	}
}

// step computes and hands out what came of it.
func (e *Engine) step(work []batch.Work) {
	e.slices = e.slices[:0]
	tokens := 0
	for _, w := range work {
		q := w.Sequence
		s := model.Slice{Tokens: q.Tokens[w.Start : w.Start+w.Count], Start: w.Start, Blocks: q.Blocks()}
		if w.Last {
			logits := logitsOf(q)
			if *logits == nil {
				*logits = e.takeLogits()
			}
			s.Logits = *logits
		}
		e.slices = append(e.slices, s)
		tokens += w.Count
	}
	e.grow(work)
	if err := e.runner.Step(e.slices); err != nil {
		e.options.Logger.Error("a step failed; its requests are ended", "requests", len(work), "error", err)
		for _, w := range work {
			e.finish(choiceOf(w.Sequence).request, fmt.Errorf("engine: a step failed: %w", err))
		}
		return
	}
	e.counters.Steps++
	e.counters.Computed += uint64(tokens)
	e.scheduler.Commit(work)
	for _, w := range work {
		if !w.Last || w.Sequence.State() != batch.Running {
			continue
		}
		if f, is := w.Sequence.Owner.(*fork); is {
			e.forked(f)
		} else {
			e.advance(choiceOf(w.Sequence))
		}
	}
}

// choiceOf is whose answer a sequence is, or is a fork of.
func choiceOf(q *batch.Sequence) *choice {
	if f, is := q.Owner.(*fork); is {
		return f.choice
	}
	return q.Owner.(*choice)
}

// logitsOf is where what follows a sequence goes.
func logitsOf(q *batch.Sequence) *[]float32 {
	if f, is := q.Owner.(*fork); is {
		return &f.logits
	}
	return &q.Owner.(*choice).logits
}

// advance finds out an answer's next token.
func (e *Engine) advance(c *choice) {
	q := c.request
	if q.first.IsZero() {
		q.first = time.Now()
	}
	if c.place == 0 && c.answered() == len(q.Resume) { // its prompt has just been computed
		e.keep(c)
	}
	e.bound(c)
	if c.told.begun {
		c.told.nats = append(c.told.nats, e.nats(c))
	}
	token, logprob := c.next(e)
	out := c.take(e, token)
	q.leaves = q.leaves || q.leavesAfter(token, c.answered())
	if c.finish == "" && q.leaves && len(c.thought.forced) == 0 { // else what is put in goes first
		// What was held back of its text, the engine that goes on tells.
		c.finish, out.Finish = openai.FinishMoved, openai.FinishMoved
	}
	if logprob != nil {
		out.Logprobs = []Logprob{*logprob}
	}
	e.counters.Generated++
	if q.stream.push(out) {
		e.pause(q, true)
	}
	if c.finish != "" {
		e.ended(c)
	}
}

// ended: an answer is complete.
func (e *Engine) ended(c *choice) {
	q := c.request
	q.open--
	moves := c.finish == openai.FinishMoved
	if !moves { // else it has not ended
		e.keep(c)
	}
	if q.open == 0 && (q.Offer != nil || moves) && c.sequence.State() == batch.Running {
		e.offer(c)
		return
	}
	e.dropChoice(c)
	if q.open == 0 {
		e.finish(q, nil)
	}
}

func (e *Engine) dropChoice(c *choice) {
	e.endRefetch(c)
	e.ungovern(c)
	e.scheduler.Remove(&c.sequence)
	e.spareLogits(&c.logits)
}

func (e *Engine) spareLogits(logits *[]float32) {
	if *logits != nil {
		e.spare = append(e.spare, *logits)
		*logits = nil
	}
}

func (e *Engine) takeLogits() []float32 {
	if last := len(e.spare) - 1; last >= 0 {
		taken := e.spare[last]
		e.spare = e.spare[:last]
		return taken
	}
	return make([]float32, e.source.model.Config().Vocab)
}

// finish ends a request, well or with an error. Blocks that the door knows of
// stay held.
func (e *Engine) finish(q *request, err error) { e.finishWith(q, nil, err) }

func (e *Engine) finishWith(q *request, ticket []byte, err error) {
	if q.over {
		return
	}
	q.over = true
	e.dropEarly(q)
	delete(e.requests, q)
	if q.unwatch != nil {
		q.unwatch()
	}
	for _, c := range q.choices {
		e.dropChoice(c)
	}
	if q.search != nil {
		q.search.timer.Stop()
	}
	if q.seated > 0 {
		e.leaveSeats(q.seated)
		q.seated = 0
	}
	switch {
	case errors.Is(err, errCancelled):
		e.counters.Cancelled++
	case err != nil:
		e.counters.Failed++
	default:
		e.counters.Finished++
	}
	usage := q.usage()
	e.logEnd(q, &usage, err)
	q.stream.end(Result{Usage: usage, Report: e.report(q), Ticket: ticket, TicketTokens: q.offered}, err)
}

// logEnd tells of a request in one line.
func (e *Engine) logEnd(q *request, usage *openai.Usage, err error) {
	level := slog.LevelInfo
	if err != nil && !errors.Is(err, errCancelled) {
		level = slog.LevelWarn
	}
	ctx := context.Background()
	if !e.options.Logger.Enabled(ctx, level) {
		return
	}
	line := []any{"engine", e.options.ID, "request", q.ID, "prompt_tokens", usage.PromptTokens, "output_tokens", usage.CompletionTokens, "ms", float64(time.Since(q.submitted).Microseconds()) / 1000}
	if transfer := q.transfer(); transfer != "" {
		line = append(line, "transfer", transfer)
	}
	if q.kv != "" {
		line = append(line, "kv", q.kv)
	}
	if q.kvReason != "" {
		line = append(line, "kv_reason", q.kvReason)
	}
	if err != nil {
		line = append(line, "error", err)
	}
	e.options.Logger.Log(ctx, level, "a request has ended", line...)
}

// transfer is the hand-off that a request offers or took; "" for none.
func (q *request) transfer() string {
	switch {
	case q.Offer != nil:
		return fmt.Sprintf("%x", *q.Offer)
	case q.offered > 0:
		return fmt.Sprintf("%x", q.Move.Transfer)
	case q.took != [16]byte{}:
		return fmt.Sprintf("%x", q.took)
	}
	return ""
}

var errCancelled = errors.New("engine: the request was cancelled")

// cancel ends a request that its client does not want any more.
func (e *Engine) cancel(q *request, cause error) {
	if q.over {
		return
	}
	if q.Ticket != nil && q.kv == "" && q.accept == nil {
		e.giveBack(q.Ticket)
	}
	if q.accept != nil {
		e.forsake(q.accept)
	}
	e.finish(q, fmt.Errorf("%w: %w", errCancelled, cause))
}

// pause lets a request wait for its reader, or go on.
func (e *Engine) pause(q *request, paused bool) {
	for _, c := range q.choices {
		if paused {
			e.scheduler.Pause(&c.sequence, batch.SlowReader)
		} else {
			e.scheduler.Unpause(&c.sequence, batch.SlowReader)
		}
	}
	if paused {
		e.counters.Paused++
	}
}

// abandon ends everything that a closing engine still has.
func (e *Engine) abandon() {
	for q := range e.requests {
		e.cancel(q, ErrClosed)
	}
	// The door's Close returns when the agent does not touch the memory any more.
	clear(e.offers)
	clear(e.accepts)
	e.inDoubt = nil
}

func (q *request) usage() openai.Usage {
	u := openai.Usage{PromptDetails: &openai.PromptUsage{CachedTokens: q.cached}, OutputDetails: &openai.OutputUsage{}}
	for _, prompt := range q.Prompts {
		u.PromptTokens += len(prompt)
	}
	for _, c := range q.choices {
		u.CompletionTokens += c.answered()
		u.OutputDetails.ReasoningTokens += c.thoughts
	}
	u.TotalTokens = u.PromptTokens + u.CompletionTokens
	return u
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func (e *Engine) report(q *request) openai.Report {
	r := openai.Report{Engine: e.options.ID, KV: q.kv, KVReason: q.kvReason, HandoffMs: milliseconds(q.handoff), CachedTokens: q.cached}
	for _, prompt := range q.Prompts {
		r.PromptTokens += len(prompt)
	}
	for _, c := range q.choices {
		r.ForcedThinkEnd = cmp.Or(r.ForcedThinkEnd, c.thought.ended)
	}
	switch r.KV {
	case "":
		r.KV = openai.KVLocal
	case openai.KVFound:
		r.KVTokens = q.found
	}
	if !q.admitted.IsZero() {
		r.QueueMs = milliseconds(q.admitted.Sub(q.submitted))
		if !q.first.IsZero() {
			r.PrefillMs = milliseconds(q.first.Sub(q.admitted) - q.handoff)
		}
	}
	return r
}
