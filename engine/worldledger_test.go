package engine

import (
	"maps"
	"slices"

	"meridian/serve/door/doorpb"
)

// stepLedger is what an engine's steps say, compared with what they may: a sequence is told
// of before it does anything, once on each connection and with all that it has said; its
// thought ends exactly where its script, its cap or a decision has it end.
type stepLedger struct {
	of       *worldEngine
	terms    *doorpb.GovernorTerms
	before   *doorpb.GovernorTerms // of the connection before
	all      map[uint64]*ledgerLine
	finished int
	opened   uint64 // how often the engine had failed open
}

// ledgerLine is one sequence.
type ledgerLine struct {
	request *Request
	begun   bool // on the connection that lasts
	kv      int
	tokens  []uint32
	ended   bool // its thought
	forced  bool // the next token ends it
	paused  bool // by a decision that holds
	// unsure: it leaves or comes back, or decisions came together, of which what one does
	// depends on those before it; the engine says whether it waits.
	unsure bool
}

// renew: there is another connection, on which nothing was told.
func (k *stepLedger) renew(terms *doorpb.GovernorTerms) {
	k.before, k.terms = k.terms, terms
	for _, line := range k.all {
		line.begun, line.paused = false, false
	}
}

// living are those of which the connection was told.
func (k *stepLedger) living() (all []uint64) {
	for _, number := range slices.Sorted(maps.Keys(k.all)) {
		if k.all[number].begun {
			all = append(all, number)
		}
	}
	return all
}

func (k *stepLedger) broke(number uint64, format string, args ...any) {
	k.of.world.broke("engine %s, sequence %d: "+format, append([]any{k.of.engine.options.ID, number}, args...)...)
}

// line is a sequence that must have begun.
func (k *stepLedger) line(number uint64, what string) *ledgerLine {
	line := k.all[number]
	if line == nil || !line.begun {
		k.broke(number, "%s, and the governor was not told that it is there", what)
		return nil
	}
	return line
}

func (k *stepLedger) begin(b *doorpb.Begun) {
	number := b.GetSequence()
	line := k.all[number]
	switch {
	case line == nil:
		line = &ledgerLine{request: k.of.world.request(b.GetId())}
		k.all[number] = line
	case line.begun:
		k.broke(number, "begins twice")
	}
	if p := line.request.Prompts[0]; int(b.GetPromptTokens()) != len(p) || b.GetCachedTokens() >= b.GetPromptTokens() || !slices.Equal(b.GetTail(), p[max(0, len(p)-maxTail):]) {
		k.broke(number, "begins with another prompt: %v", b)
	}
	if said := b.GetGenerated(); len(said) < len(line.tokens) || !slices.Equal(said[:len(line.tokens)], line.tokens) {
		k.broke(number, "had said %v, and begins anew with %v", line.tokens, said)
		return
	}
	// What it has said since it lost its governor, it has said under its own cap.
	for i, token := range b.GetGenerated()[len(line.tokens):] {
		terms := (*doorpb.GovernorTerms)(nil)
		if i == 0 && token == k.of.engine.source.thinkEnd.id && int(k.before.GetMaxThinkTokens()) == len(line.tokens)-1 {
			terms = k.before // it is of the step that could not be told any more
		}
		k.say(number, line, token, terms)
	}
	line.begun, line.kv = true, int(b.GetCachedTokens())
}

// say takes a token of an answer.
func (k *stepLedger) say(number uint64, line *ledgerLine, token uint32, terms *doorpb.GovernorTerms) {
	s, at := k.of.engine.source, len(line.tokens)
	most := int(terms.GetMaxThinkTokens())
	if own := line.request.MaxThinkTokens; own != nil && (most == 0 || *own < most) {
		most = *own
	}
	thinks := at > 0 && !line.ended
	ends := thinks && (at == *line.request.ThinkTokens+1 || line.forced || most > 0 && at-1 >= most)
	if (token == s.thinkEnd.id) != ends || (token == s.thinkStart.id) != (at == 0) {
		k.broke(number, "says %d at %d, thinks: %v, was to end there: %v, by a decision: %v, cap %d", token, at, thinks, ends, line.forced, most)
	}
	line.tokens, line.ended, line.forced = append(line.tokens, token), line.ended || ends, false
}

// hear takes a Step.
func (k *stepLedger) hear(m *doorpb.Step) {
	o := &k.of.engine.options
	if int(m.GetFreeBlocks()) > o.Blocks {
		k.broke(0, "%d blocks are free, there are %d", m.GetFreeBlocks(), o.Blocks)
	}
	for _, b := range m.GetBegun() {
		k.begin(b)
	}
	for _, stopped := range m.GetStopped() {
		if line := k.line(stopped.GetSequence(), "stopped"); line != nil {
			if line.paused = !stopped.GetLost(); stopped.GetLost() {
				line.kv, line.unsure = 0, true // a decision may have come after it had lost them
			}
		}
	}
	for _, c := range m.GetRecalled() {
		if line := k.all[c.GetSequence()]; line != nil {
			if line.unsure = true; !c.GetWhole() {
				line.kv = 0
			}
		}
	}
	k.hearStore(m)
	tokens := m.GetTokens()
	for i, number := range m.GetSequences() {
		count := int(m.GetCounts()[i])
		said := tokens[:count]
		tokens = tokens[count:]
		line := k.line(number, "ran")
		if line == nil {
			continue
		}
		for _, token := range said {
			k.say(number, line, token, k.terms)
		}
		if line.kv += int(m.GetComputed()[i]); line.kv >= len(line.request.Prompts[0])+len(line.tokens) {
			k.broke(number, "has the KV of %d tokens, there are %d", line.kv, len(line.request.Prompts[0])+len(line.tokens))
		}
	}
	for _, number := range m.GetForked() {
		k.line(number, "was forked")
	}
	for _, number := range m.GetFinished() {
		k.line(number, "has ended")
		delete(k.all, number)
		k.finished++
	}
}

// decided notes which thoughts end with their next token, and who waits. It is called on the
// step loop, before the engine carries the decision out.
func (k *stepLedger) decided(d *doorpb.Decision, together bool) {
	k.decidePauses(d, together)
	for _, f := range d.GetForce() {
		if line := k.all[f.GetSequence()]; line != nil && line.begun && len(line.tokens) > 0 && !line.ended {
			line.forced = true
		}
	}
}
