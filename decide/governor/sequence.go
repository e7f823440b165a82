package governor

import (
	"bytes"
	"fmt"
	"math"

	"meridian/decide/block"
	"meridian/decide/phase"
	"meridian/decide/policy"
	"meridian/kv"
)

const (
	// maxLength bounds the tokens of a sequence: sums of a few do not overflow.
	maxLength = 1 << 25
	// maxTenants is many times those that one engine serves.
	maxTenants = 1 << 16
	// forceAgain is after how many more tokens a thought that goes on is ended
	// again: the engine needs some steps to carry a decision out.
	forceAgain = 32
	// forkAgain is after how many more tokens a fork that the engine did not answer
	// is asked for again.
	forkAgain = 256
	// ignoredOften is how many steps of a preempted sequence mean that the engine
	// did not carry the preemption out.
	ignoredOften = 8
)

// sequence is what the governor knows of one that is not in its policy.Request.
type sequence struct {
	number phase.Sequence
	index  int // in the governor's sequences
	// dropped: it is forgotten but for its place there.
	dropped bool
	given   int  // how often it gave its blocks up: wishes of before are void
	leaves  bool // it is in the governor's leaving
	// generated counts its tokens, markers among them.
	generated int32
	// thought is what may end its thought; forced why it was ended, at so many
	// tokens.
	thought  Thought
	forced   ForceReason
	forcedAt int32
	// forking: a fork was asked for, at so many think tokens, and is not answered.
	forking  bool
	forkedAt int32
	newline  bool // the last think token ended a line
	runs     bool // in the order that is being made
	// paused: the engine was told to leave it out, and has not been told to let it run
	// again. What it computed before it heard of that makes it running to policies.
	paused bool

	holder block.Request
	last   block.ID // the block that it writes now
	holds  bool
	// going: it was preempted, and the engine has not said yet that it stopped;
	// before is what it was, and ignored how often it ran all the same.
	going   bool
	stopped int64 // the step whose facts said so
	before  policy.Request
	ignored int
	// victim is the last choice of a policy to stop it, in step chosenAt, if chosen.
	chosen   bool
	chosenAt int64
	victim   policy.Victim
}

func (g *Governor) request(s *sequence) *policy.Request { return &g.snapshot.Requests[s.index] }

// commit takes what a step did for one sequence.
func (g *Governor) commit(now policy.Instant, c *Commit) error {
	s := g.byNumber[c.Sequence]
	if s == nil {
		return fmt.Errorf("%w: %w: %d committed tokens", ErrContradiction, phase.ErrUnknown, c.Sequence)
	}
	r := g.request(s)
	if err := c.check(s, r); err != nil {
		return err
	}
	found := c.found()
	computed := g.believed(s, r, c)
	if computed > 0 {
		g.attended.Add(r.Length, computed)
	}
	was := r.Phase
	if c.Given != nil {
		g.given(now, s, r, c.Given)
	} else {
		g.tokens(now, s, r, c)
	}
	s.generated += found
	r.LastServed = now
	g.computed(s, r, computed, found)
	g.snapshot.Tenants[r.Tenant].Served += int64(computed) + 2*int64(found)
	if was < kv.Output && r.Phase == kv.Output {
		r.ThoughtEnd = now
		g.thoughtOver(s, r)
	}
	if r.FirstOutput == 0 && r.Output > 0 {
		r.FirstOutput = now
	}
	g.force(s, r)
	return nil
}

func (c *Commit) found() int32 {
	if c.Given != nil {
		return c.Given.Found
	}
	return int32(min(len(c.Tokens), math.MaxInt32))
}

// check refuses tokens that cannot be.
func (c *Commit) check(s *sequence, r *policy.Request) error {
	total := int64(r.Prompt) + int64(s.generated) + int64(c.found())
	if g := c.Given; g != nil && (g.Found < 0 || g.Phase > kv.Complete || g.Think < 0 || g.Output < 0 || int64(g.Think)+int64(g.Output) > total) || total > maxLength {
		return fmt.Errorf("%w: sequence %d found %d tokens, of %d in all, at most %d", ErrContradiction, c.Sequence, c.found(), total, maxLength)
	}
	return nil
}

// believed is how many tokens a step computed. Where that cannot be, the tokens it
// found are committed all the same: without them the end of a thought is lost.
func (g *Governor) believed(s *sequence, r *policy.Request, c *Commit) int32 {
	most := r.Prompt + s.generated + c.found() - r.Length
	gone := r.State == policy.Leaving && !s.going && s.stopped != g.counters.Steps
	if gone || r.State == policy.Away || r.State == policy.Recalling {
		most = 0 // it cannot have run
	}
	if c.Computed >= 0 && c.Computed <= most {
		return c.Computed
	}
	g.contradicted(fmt.Errorf("%w: sequence %d, which is %v, computed %d tokens after %d, and has %d more", ErrContradiction, c.Sequence, r.State, c.Computed, r.Length, most))
	return max(0, min(c.Computed, most))
}

// computed counts what a step did. Who is going loses it, unless the engine does
// not listen: then it has not gone.
func (g *Governor) computed(s *sequence, r *policy.Request, tokens, found int32) {
	if s.going {
		s.before.Length += tokens
		if s.ignored++; s.ignored < ignoredOften {
			r.Pending = max(1, r.Prompt+s.generated-r.Length)
			return
		}
		s.going = false
		r.Length, r.Blocks, r.Copied, r.Preemptions, r.State = s.before.Length, s.before.Blocks, s.before.Copied, s.before.Preemptions, policy.Running
		tokens = 0
	}
	r.Length += tokens
	r.Pending = max(1, r.Prompt+s.generated-r.Length)
	r.Since += found
	if g.blocks == nil {
		r.Blocks = (r.Length + g.options.Limits.BlockTokens - 1) / g.options.Limits.BlockTokens
	}
	if r.State == policy.Waiting || r.State == policy.Paused {
		r.State = policy.Running
		g.standing(s, r) // from here on none of its blocks may go
	}
}

// given takes a phase that is known without tokens.
func (g *Governor) given(now policy.Instant, s *sequence, r *policy.Request, given *KnownPhase) {
	r.Phase, r.Think, r.Output = max(r.Phase, given.Phase), given.Think, given.Output
	g.phases.Touch(int64(now), s.number)
	s.thought.Heard(given.Heard)
}

// tokens finds the phase from what was committed.
func (g *Governor) tokens(now policy.Instant, s *sequence, r *policy.Request, c *Commit) {
	listens := g.options.Budget.Entropy && g.options.Model.Thinks()
	if g.options.Follows && len(c.Entropies) == 0 {
		listens = false // what is missed decides nothing, and costs
	}
	entropies := c.Entropies
	if len(entropies) > 0 && len(entropies) != len(c.Tokens) {
		// Whose they are is not known; the tokens are committed all the same.
		g.contradicted(fmt.Errorf("%w: sequence %d has %d entropies of %d tokens", ErrContradiction, c.Sequence, len(entropies), len(c.Tokens)))
		entropies = nil
	}
	for i, rest := 0, c.Tokens; len(rest) > 0; i++ {
		n := len(rest)
		if listens && r.Phase < kv.Output {
			n = 1
		}
		think := r.Think
		g.events, _ = g.phases.Step(int64(now), s.number, rest[:n], g.events[:0])
		machine, _ := g.phases.Machine(s.number)
		r.Phase, r.Think, r.Output = machine.Phase(), int32(machine.Think()), int32(machine.Output())
		if listens && r.Phase == kv.Think && r.Think > think {
			g.listen(s, r.Think, rest[0], entropies, i)
		}
		rest = rest[n:]
	}
}

// listen takes the entropy of a think token.
func (g *Governor) listen(s *sequence, think int32, id uint32, entropies []float64, i int) {
	boundary, paragraph := true, false
	if g.options.Texts != nil {
		boundary, paragraph = s.ends(g.options.Texts(id))
	}
	if i < len(entropies) {
		if s.thought.Token(entropies[i], boundary) {
			g.counters.Transitions++
		}
	} else {
		s.thought.Miss(1)
	}
	if g.options.Forks && (!s.forking || think-s.forkedAt >= forkAgain) && s.thought.ForkDue(paragraph) {
		s.forking, s.forkedAt = true, think
		g.decision.Fork = append(g.decision.Fork, s.number)
	}
}

// forked takes the entropy after a forced end of a thought, which may have ended
// meanwhile.
func (g *Governor) forked(f *Fork) error {
	s := g.byNumber[f.Sequence]
	if s == nil || !s.forking {
		return fmt.Errorf("%w: sequence %d was forked, and the governor did not ask for it", ErrContradiction, f.Sequence)
	}
	s.forking = false
	if r := g.request(s); r.Phase == kv.Think {
		s.thought.Forked(f.Nats)
		g.force(s, r)
	}
	return nil
}

// ends says whether the next token of a thought ends a clause, and whether a
// paragraph, whose two ends of lines may be of two tokens.
func (s *sequence) ends(text []byte) (clause, paragraph bool) {
	paragraph = bytes.Contains(text, []byte("\n\n")) || s.newline && bytes.HasPrefix(text, []byte("\n"))
	if len(text) > 0 {
		s.newline = text[len(text)-1] == '\n'
	}
	text = bytes.TrimRight(text, " ")
	if len(text) == 0 {
		return false, paragraph
	}
	return bytes.IndexByte([]byte(".\n;?!,"), text[len(text)-1]) >= 0, paragraph
}

// force ends a thought that has a reason to end.
func (g *Governor) force(s *sequence, r *policy.Request) {
	if r.Phase != kv.Think || g.options.Follows {
		return
	}
	if reason := s.thought.Verdict(r.Think); reason != Free {
		g.forceFor(s, r, reason)
	}
}

func (g *Governor) forceFor(s *sequence, r *policy.Request, reason ForceReason) {
	if s.forced != Free && r.Think-s.forcedAt < forceAgain {
		return // it is being carried out
	}
	if s.forced == Free {
		s.forced = reason
		g.counters.Forced[reason]++
	}
	s.forcedAt = r.Think
	g.decision.Force = append(g.decision.Force, Force{Sequence: s.number, Reason: s.forced, Tokens: g.options.Model.Force()})
}

// Forced takes that others have begun to end the thought of a sequence, and why: once,
// however often they say it. It says whether that was news.
func (g *Governor) Forced(number phase.Sequence, reason ForceReason) bool {
	s := g.byNumber[number]
	if s == nil || s.forced != Free || !g.options.Follows || reason == Free || reason > HardCap {
		return false
	}
	s.forced, s.forcedAt = reason, g.request(s).Think
	g.counters.Forced[reason]++
	return true
}

// thoughtOver is the end of a thought, or of the prompt where there is none.
func (g *Governor) thoughtOver(s *sequence, r *policy.Request) {
	s.thought.over()
	if r.Think == 0 {
		return
	}
	g.counters.Thoughts++
	g.counters.ThinkTokens += int64(r.Think)
	g.counters.Lengths.add(r.Think)
	g.demote(s)
}
