package replay

import (
	"fmt"
	"slices"

	"meridian/decide/governor"
	"meridian/decide/placement"
	"meridian/decide/policy"
	"meridian/kv"
)

// engine is one engine in virtual time. Requests and sequences have the same
// indexes; they are in the order in which they came.
type engine struct {
	id   string
	role placement.Role
	cell *cell

	policy   policy.Policy
	decision policy.Decision
	snap     policy.Snapshot
	// calibration is what the engine's governor would know of its steps.
	calibration governor.Calibration
	seqs        []*sequence
	backlog     backlog
	// waiting are in the snapshot and hold nothing, running took part in the last
	// step.
	waiting, running int32
	// promptTokens are sent here and not computed yet.
	promptTokens int64

	free      *freeList
	cache     *cache
	cacheSeen uint64 // version of the cache that waiting requests were matched with
	matched   bool

	plan    plan
	asked   bool // the policy has been asked since something happened
	wakeAt  ps   // when it wants to be asked again though nothing happens; 0: never
	out, in line // copies of blocks
	// lentBlocks are held for engines that are to fetch them.
	lentBlocks int32
	transfers  []transfer
	ended      []int32 // requests that end with the steps that are carried out
	stamp      int64
	busy       ps
}

func (c *cell) newEngine(id string, role placement.Role, decides policy.Policy) *engine {
	g := &c.config
	e := &engine{id: id, role: role, cell: c, policy: decides, free: newFreeList(g.Blocks)}
	e.cache = newCache(e.free)
	e.free.changed = func() { e.matched = false }
	e.snap.Limits = policy.Limits{
		Tokens: g.MaxTokens, Sequences: g.MaxSequences, BlockTokens: g.Profile.BlockTokens, Blocks: g.Blocks, PreemptMaxFraction: g.PreemptMaxFraction,
	}
	e.snap.FreeBlocks = g.Blocks
	e.calibration.BlockTokens = g.Profile.BlockTokens
	if !g.NoOffload {
		each := policy.Instant(1e9 * float64(c.blockBytes) / g.Offload.BytesPerSecond)
		e.snap.Costs.CopiedBlock, e.snap.Costs.RecalledBlock = max(each, 1), max(each, 1)
	}
	return e
}

// arrive takes a request in, at the end of its backlog.
func (e *engine) arrive(s *sequence, now ps) {
	e.snap.Tenants = policy.Join(e.snap.Tenants, s.tenant)
	s.at = e
	e.promptTokens += int64(s.prompt - s.remote)
	e.backlog.push(s)
	e.interrupt(now)
}

// refill shows waiting requests to the policy, each at its place in the order in
// which they came.
func (e *engine) refill() {
	for {
		s := e.backlog.pop(e.cell.config.Window, e.waiting)
		if s == nil {
			return
		}
		at := len(e.seqs)
		for at > 0 && e.seqs[at-1].ticket.number > s.ticket.number {
			at--
		}
		e.seqs = slices.Insert(e.seqs, at, s)
		e.snap.Requests = slices.Insert(e.snap.Requests, at, policy.Request{
			Arrived: instant(s.arrived), Tenant: s.tenant, Prompt: s.prompt, Pending: s.prompt, Phase: kv.Prefill, State: policy.Waiting,
		})
		e.waiting++
		e.matched = false
	}
}

// match finds out what waiting requests would not have to compute.
func (e *engine) match() {
	if e.matched && e.cacheSeen == e.cache.version {
		return
	}
	e.matched, e.cacheSeen = true, e.cache.version
	for i := range e.snap.Requests {
		r, s := &e.snap.Requests[i], e.seqs[i]
		if r.State == policy.Waiting && (len(s.prefix) > 0 || s.remote > 0 || s.started) {
			e.matchOne(r, s)
		}
	}
}

// matchOne finds it out for one.
func (e *engine) matchOne(r *policy.Request, s *sequence) {
	there, inUse, left := e.reuse(r, s)
	r.Length = max(there*s.prefixTokens, s.remote) + left
	r.Blocks = inUse * e.cache.blocks
	r.Pending = tokens(r) - r.Length
}

// reuse is what a waiting request need not compute: chunks of its prompt, those
// of them that other requests hold, and tokens that are left of what it had computed
// when it was preempted.
func (e *engine) reuse(r *policy.Request, s *sequence) (there, inUse, left int32) {
	there, inUse = e.cache.held(s.prefix, s.chunks(tokens(r)))
	return there, inUse, min(s.kept*e.snap.Limits.BlockTokens, tokens(r)-1)
}

// chunks is how many whole chunks of the prefix may come from a cache: a token
// is left to be computed.
func (s *sequence) chunks(tokens int32) int32 {
	if s.prefixTokens == 0 {
		return 0
	}
	return min(int32(len(s.prefix)), min(tokens-1, s.prompt)/s.prefixTokens)
}

// admit takes a waiting request in. It says false if what it needs is not here
// yet, and is fetched.
func (e *engine) admit(i int32, now ps) (here bool) {
	r, s := &e.snap.Requests[i], e.seqs[i]
	e.waiting--
	e.backlog.admitted(s)
	there, _, left := e.reuse(r, s)
	r.Blocks = there*e.cache.blocks + e.blocksFor(left)
	for chunk := range there {
		if e.cache.take(s.prefix[chunk]) {
			e.snap.FreeBlocks -= e.cache.blocks
		}
	}
	e.takeBack(s, e.blocksFor(left))
	s.shared, s.alone = there, false
	r.Length = max(there*s.prefixTokens, s.remote) + left
	r.Pending = tokens(r) - r.Length
	e.cell.tally.tokens.Recomputed += int64(max(s.lost-r.Length, 0))
	s.lost = 0
	if r.Phase == kv.Prefill {
		if !s.started {
			e.cell.tally.hit(there*s.prefixTokens, r.Length)
		}
		e.promptTokens -= int64(r.Length - min(s.remote, r.Length))
	}
	s.started = true
	r.Since = 0
	if s.remote > there*s.prefixTokens {
		e.take(i, e.blocksFor(r.Length))
		e.fetch(i, r.Length-there*s.prefixTokens, now)
		return false
	}
	s.fetched(now)
	return true
}

// fetched: nothing of s is to be fetched any more.
func (s *sequence) fetched(now ps) {
	s.remote, s.fetching = 0, false
	if s.lender != nil {
		s.lender.lentBlocks -= s.lent.blocks + s.lent.chunks*s.lender.cache.blocks
		s.lender.release(s, s.lent)
		s.lender.interrupt(now)
		s.lender, s.lent = nil, hold{}
	}
}

func (e *engine) blocksFor(tokens int32) int32 {
	return (tokens + e.snap.Limits.BlockTokens - 1) / e.snap.Limits.BlockTokens
}

// take gives request i blocks, so that it has so many in all.
func (e *engine) take(i, blocks int32) {
	r := &e.snap.Requests[i]
	if blocks <= r.Blocks {
		return
	}
	e.snap.FreeBlocks -= blocks - r.Blocks
	e.free.take(blocks - r.Blocks)
	r.Blocks = blocks
}

// holding is what request i holds.
func (e *engine) holding(i int32) hold {
	s := e.seqs[i]
	return hold{chunks: s.shared, blocks: e.snap.Requests[i].Blocks - s.shared*e.cache.blocks}
}

// release frees what was held of s's prefix and beside.
func (e *engine) release(s *sequence, h hold) {
	if h.blocks > 0 {
		e.snap.FreeBlocks += h.blocks
		e.free.push(span{blocks: h.blocks})
	}
	for chunk := h.chunks - 1; chunk >= 0; chunk-- { // the end is to be forgotten first
		if e.cache.give(s.prefix[chunk]) {
			e.snap.FreeBlocks += e.cache.blocks
		}
	}
}

// abandon frees all that request i holds. What it computed stays there until
// another takes the blocks; of one with a prefix, only what others may share does.
func (e *engine) abandon(i int32) {
	s := e.seqs[i]
	h := e.holding(i)
	if len(s.prefix) > 0 {
		e.release(s, h)
		s.shared = 0
		return
	}
	s.kept, s.remains = h.blocks, e.free.push(span{blocks: h.blocks, owner: s})
	e.snap.FreeBlocks += h.blocks
}

// takeBack takes so many of the remains of s, and gives up the others.
func (e *engine) takeBack(s *sequence, blocks int32) {
	if s.kept == 0 {
		return
	}
	e.free.remove(s.remains)
	if others := s.kept - blocks; others > 0 {
		e.free.push(span{blocks: others})
	}
	e.snap.FreeBlocks -= blocks
	s.kept, s.remains = 0, 0
}

// share puts what request i has computed of its prompt into the cache.
func (e *engine) share(i int32) {
	r, s := &e.snap.Requests[i], e.seqs[i]
	if s.alone || s.prefixTokens == 0 {
		return
	}
	for s.shared < int32(len(s.prefix)) && (s.shared+1)*s.prefixTokens <= min(r.Length, s.prompt) {
		hash := s.prefix[s.shared]
		if !e.cache.put(hash) {
			s.alone = true // another request was faster: both keep theirs
			return
		}
		s.shared++
		e.cell.store.keep(hash, s.prefixTokens)
	}
}

// sweep forgets requests that are complete or have moved on.
func (e *engine) sweep() {
	kept := 0
	for i := range e.seqs {
		if e.snap.Requests[i].Phase == kv.Complete {
			continue
		}
		if kept != i {
			e.snap.Requests[kept], e.seqs[kept] = e.snap.Requests[i], e.seqs[i]
		}
		kept++
	}
	clear(e.seqs[kept:])
	e.snap.Requests, e.seqs = e.snap.Requests[:kept], e.seqs[:kept]
}

// candidate is the engine as the gateway sees it.
func (e *engine) candidate(s *sequence) placement.Engine {
	there, _ := e.cache.held(s.prefix, s.chunks(s.prompt))
	return placement.Engine{
		ID: e.id, Role: e.role, Running: len(e.seqs) - int(e.waiting), Waiting: int(e.promptTokens), Held: int(there * s.prefixTokens), Told: true,
	}
}

// restless is the error of a policy that preempts and recalls, and lets no request run.
func (e *engine) restless(now ps) error {
	return fmt.Errorf("%w: policy %s, engine %s: %d decisions at %v moved requests and let none run",
		ErrStuck, e.policy.Name(), e.id, maxIdleTurns, now.duration())
}
