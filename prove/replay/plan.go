package replay

import (
	"meridian/decide/governor"
	"meridian/decide/policy"
)

// plan is what an engine computes now: equal steps, one after the other, in
// which everybody who runs decodes, or a single step of any kind. Step j, from
// 0, takes first + j·growth, because contexts grow by a token a step.
type plan struct {
	runs          []policy.Allotment
	start         ps
	steps         int32 // 0: nothing is computed
	first, growth ps
	work          governor.Work // of the first step
}

// boundary is when the j-th step ends; 0 is the start.
func (p *plan) boundary(j int32) ps {
	n := ps(j)
	return p.start + n*p.first + p.growth*(n*(n-1)/2)
}

func (p *plan) end() ps { return p.boundary(p.steps) }

// until is the smallest number of steps that ends at t or later, and all if none
// does.
func (p *plan) until(t ps) int32 {
	low, high := int32(1), p.steps
	for low < high {
		if middle := low + (high-low)/2; p.boundary(middle) >= t {
			high = middle
		} else {
			low = middle + 1
		}
	}
	return low
}

// interrupt ends the plan with the step that is computed at t: the policy is to
// be asked before the next.
func (e *engine) interrupt(t ps) {
	e.asked = false
	if e.plan.steps > 1 {
		e.plan.steps = e.plan.until(t)
	}
}

// settle carries out the steps of the plan that have ended before t. All but a
// plan's last step change no phase.
func (e *engine) settle(t ps) {
	if e.plan.steps < 2 {
		return
	}
	if steps := e.plan.until(t); steps > 1 {
		e.commit(steps - 1)
	}
}

// next is when something happens here by itself, or never.
func (e *engine) next() ps {
	at := never
	switch {
	case e.plan.steps > 0:
		at = e.plan.end()
	case !e.asked && (len(e.seqs) > 0 || e.backlog.size > 0):
		at = e.cell.now
	case e.wakeAt > 0:
		at = e.wakeAt
	}
	for i := range e.transfers {
		at = min(at, e.transfers[i].done)
	}
	return at
}

// turn is what happens at now: copies arrive, the plan ends, the next one is
// made.
func (e *engine) turn(now ps) error {
	e.land(now)
	if e.plan.steps > 0 {
		if e.plan.end() > now {
			return nil // a copy has arrived in the middle of a step
		}
		e.commit(e.plan.steps)
		e.asked = false
	}
	if e.wakeAt > 0 && e.wakeAt <= now {
		e.asked = false
	}
	if e.asked || len(e.seqs)+e.backlog.size == 0 {
		return nil
	}
	return e.decide(now)
}

// decide asks the policy and plans what it says.
func (e *engine) decide(now ps) error {
	e.refill()
	e.match()
	e.snap.Now = instant(now)
	costs := e.calibration.Costs(e.running)
	e.snap.Costs.PrefillToken, e.snap.Costs.Step, e.snap.Costs.FreeTokens = costs.PrefillToken, costs.Step, costs.FreeTokens
	e.policy.Decide(&e.snap, &e.decision)
	e.cell.tally.work.Decisions++
	e.asked, e.wakeAt = true, 0
	d := &e.decision
	for _, v := range d.Victims {
		e.preempt(v, now)
	}
	for _, i := range d.Recall {
		e.recall(i, now)
	}
	for _, i := range d.Force {
		e.force(i)
	}
	e.make(d, now)
	if e.plan.steps > 0 {
		return nil
	}
	if until := ps(d.Until) * nanosecond; until > now {
		e.wakeAt = until
	}
	if len(d.Victims) > 0 || len(d.Recall) > 0 { // they may have changed what it would say
		e.asked = false
		e.cell.idleTurns++
	}
	if e.cell.idleTurns > maxIdleTurns {
		return e.restless(now)
	}
	return nil
}

// maxIdleTurns bounds how often policies may shuffle requests while no time
// passes.
const maxIdleTurns = 10_000

// make turns the runs of a decision into a plan. Runs that lack blocks are left
// out and counted; so are those whose contents are to be fetched first.
func (e *engine) make(d *policy.Decision, now ps) {
	e.stamp++
	p, evicted := &e.plan, e.cache.evicted
	p.runs = p.runs[:0]
	p.work = governor.Work{}
	alike, events, ran := true, d.Steps, int32(0)
	for _, run := range d.Run {
		r, q := &e.snap.Requests[run.Request], e.seqs[run.Request]
		if run.Tokens < 1 || run.Tokens > r.Pending || p.work.Tokens+run.Tokens > e.snap.Limits.Tokens {
			e.cell.tally.work.Denied++
			continue
		}
		if r.State == policy.Waiting {
			e.matchOne(r, q) // those before it may have taken what it was to share
			run.Tokens = min(run.Tokens, r.Pending)
			if e.lacks(r, run.Tokens) || !e.admit(run.Request, now) {
				continue
			}
		}
		blocks := e.blocksFor(r.Length + run.Tokens)
		if !(r.State == policy.Waiting || r.Holds()) || blocks-r.Blocks > e.snap.FreeBlocks {
			e.cell.tally.work.Denied++
			continue
		}
		e.take(run.Request, blocks)
		p.work.Add(r.Length, run.Tokens)
		q.stamp = e.stamp
		if r.State != policy.Running {
			r.State = policy.Running
			e.running++
		}
		ran++
		if r.Decodes() {
			events = min(events, q.until)
		} else {
			alike = false
		}
		p.runs = append(p.runs, run)
	}
	e.pauseOthers(ran)
	if len(p.runs) == 0 {
		p.steps = 0
		return
	}
	e.cell.idleTurns = 0
	p.start, p.first, p.growth = now, e.cell.cost.of(&p.work), 0
	p.steps = 1
	news := e.waiting > 0 && e.cache.evicted != evicted // for those who would have shared it
	if alike && !news && !e.cell.config.SingleStep {
		p.growth = e.cell.cost.context * ps(p.work.Sequences)
		p.steps = e.holds(max(events, 1))
		if until := ps(d.Until) * nanosecond; until > 0 {
			// The step that begins at that moment or later is not of this plan.
			p.steps = p.until(until)
		}
	}
}

// holds is for how many steps, at most limit, the runs of the plan find blocks.
func (e *engine) holds(limit int32) int32 {
	p, size := &e.plan, e.snap.Limits.BlockTokens
	n, free := int32(len(p.runs)), e.snap.FreeBlocks
	if e.waiting > 0 && e.cache.idle > 0 { // a chunk that leaves the cache is news
		free = e.free.plain(free)
	}
	// Within so many steps no sequence needs more than that.
	if rounds := free / n; int64(limit-1) <= int64(rounds)*int64(size) {
		return limit
	}
	slack := e.cell.slack[:size]
	clear(slack)
	for _, run := range p.runs {
		r := &e.snap.Requests[run.Request]
		slack[r.Blocks*size-r.Length-1]++
	}
	rounds, left := free/n, free%n
	steps := int64(1) + int64(rounds)*int64(size)
	for _, takes := range slack {
		if takes > left {
			break
		}
		left -= takes
		steps++
	}
	return int32(min(steps, int64(limit)))
}

// lacks says that a waiting request would not find blocks for so many tokens.
func (e *engine) lacks(r *policy.Request, tokens int32) bool {
	if max(e.blocksFor(r.Length+tokens)-r.Blocks, 0) <= e.snap.FreeBlocks {
		return false
	}
	e.cell.tally.work.Denied++
	return true
}

// pauseOthers: a sequence that ran before and is not among so many who run now holds
// its blocks and is left out.
func (e *engine) pauseOthers(ran int32) {
	if e.running == ran {
		return
	}
	for i := range e.snap.Requests {
		r := &e.snap.Requests[i]
		if r.State == policy.Running && e.seqs[i].stamp != e.stamp {
			r.State = policy.Paused
		}
	}
	e.running = ran
}
