package engine

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/google/go-cmp/cmp"

	"meridian/engine/batch"
	"meridian/serve/door/doorpb"
	"meridian/serve/governing"
)

// wilful is a governor that has everybody wait for a while, whatever would be best: it says
// so again and again, or says so and then nothing.
type wilful struct {
	stops   time.Time // until then every decision pauses everybody
	silent  time.Time // until then none comes
	stopped []uint64  // whom it has paused without a reason, and lets on at the end
}

// change makes a decision a wilful one. It is called on the step loop.
func (s *wilful) change(l *worldLink, d *doorpb.Decision) {
	if !time.Now().Before(s.stops) {
		d.Resume = append(d.Resume, s.stopped...)
		s.stopped = nil
		return
	}
	for _, number := range l.ledger.living() {
		if c := l.of.engine.byNumber[number]; c != nil && c.swap == nil {
			d.Pause, s.stopped = append(d.Pause, number), append(s.stopped, number)
		}
	}
	d.Resume = nil
}

// wilfulness has governors be so now and then.
func (w *governedWorld) wilfulness(dice *rand.Rand) {
	defer w.trouble.Done()
	began := time.Now()
	for w.pause(began, between(dice, 100*time.Millisecond, time.Second)) {
		l := w.engines[dice.IntN(len(w.engines))].link
		l.mu.Lock()
		if dice.IntN(2) == 0 {
			l.wilful.stops = time.Now().Add(between(dice, 10*time.Millisecond, 2*time.Second))
		} else { // what it said last stops everybody, and nothing follows
			l.wilful.stops = time.Now().Add(20 * time.Millisecond)
			l.wilful.silent = time.Now().Add(between(dice, time.Second, 3*time.Second))
		}
		l.mu.Unlock()
	}
}

// failedOpen: an engine that failed open waits for no pause of before. It is called on the
// step loop.
func (k *stepLedger) failedOpen() {
	if opened := k.of.engine.counters.FailedOpen; opened > k.opened {
		k.opened = opened
		for _, line := range k.all {
			line.paused = false
		}
	}
}

// decidePauses notes who is to wait and who is not.
func (k *stepLedger) decidePauses(d *doorpb.Decision, together bool) {
	e := k.of.engine
	set := func(number uint64, paused bool) {
		if line := k.all[number]; line != nil && line.begun {
			line.paused, line.unsure = paused, line.unsure || together
		}
	}
	for _, number := range d.GetPause() {
		if !e.stood {
			set(number, true)
		}
	}
	for _, number := range d.GetResume() {
		if c := e.byNumber[number]; c != nil && c.swap == nil {
			set(number, false)
		}
	}
}

// hearStore demands that the governor hears whether there is a cache, and that a sequence
// whose copy failed is as it was.
func (k *stepLedger) hearStore(m *doorpb.Step) {
	e := k.of.engine
	if _, has := k.of.door.Cache(); m.GetStoreDown() == has {
		k.broke(0, "step %d says that the cache is down: %v, and it is there: %v", m.GetNumber(), m.GetStoreDown(), has)
	}
	for _, copied := range m.GetCopied() {
		number := copied.GetSequence()
		again := slices.ContainsFunc(m.GetStopped(), func(s *doorpb.Stopped) bool { return s.GetSequence() == number })
		if c := e.byNumber[number]; c != nil && !copied.GetWhole() && !again && c.swap != nil && len(c.swap.away) == 0 {
			k.broke(number, "step %d says that its copy failed, and it still leaves", m.GetNumber())
		}
	}
}

// checkPauses demands, on the step loop, that those wait for the governor whom a decision has
// wait that holds, and no others; and that an engine fails open when it has to, and only then.
// It returns how long the governor has been silent.
func (m *worldEngine) checkPauses() time.Duration {
	e, l := m.engine, m.link
	l.mu.Lock()
	defer l.mu.Unlock()
	silent, stood := time.Since(l.taken), time.Since(m.stepped)
	if opened := e.counters.FailedOpen; opened > m.opened {
		if m.opened = opened; silent <= governorSilence && stood <= restPatience {
			m.world.broke("engine %s fails open, with a governor that spoke %v ago and a step %v ago", e.options.ID, silent, stood)
		}
	}
	m.stepped = time.Now()
	l.ledger.failedOpen()
	for _, c := range e.known {
		line := l.ledger.all[c.governed]
		want := e.terms != nil && line != nil && line.begun && line.paused
		is := c.sequence.Paused()&batch.Governed != 0
		if e.terms != nil && line != nil && (line.unsure || c.swap != nil) {
			line.paused, line.unsure = is, c.swap != nil
		} else if is != want && c.swap == nil {
			m.world.broke("engine %s has sequence %d wait for the governor: %v, and a decision that holds has it wait: %v", e.options.ID, c.governed, is, want)
		}
	}
	return silent
}

// believes demands that the governor believes of each sequence what it was told, however and
// by whom, and that it has nothing leave for a cache that is down.
func (c *worldConn) believes(m *doorpb.Step, d *doorpb.Decision) {
	w, name := c.link.of.world, c.link.of.engine.options.ID
	swaps := func(p *doorpb.Preempt) bool { return p.GetSwap() }
	if m.GetStoreDown() && (len(d.GetCopyOut()) > 0 || len(d.GetRecall()) > 0 || slices.ContainsFunc(d.GetPreempt(), swaps)) {
		w.broke("engine %s, step %d: the cache is down, and %v is decided", name, m.GetNumber(), d)
	}
	for _, b := range m.GetBegun() {
		c.believed[b.GetSequence()] = slices.Clone(b.GetGenerated())
	}
	tokens := m.GetTokens()
	for i, number := range m.GetSequences() {
		count := m.GetCounts()[i]
		c.believed[number] = append(c.believed[number], tokens[:count]...)
		tokens = tokens[count:]
	}
	for _, number := range m.GetFinished() {
		delete(c.believed, number)
	}
	requests := governedRequests(c.governors, name)
	for i := range requests {
		r := &requests[i]
		if think, output := c.thought(c.believed[r.Sequence]); int(r.Think) != think || int(r.Output) != output {
			w.broke("engine %s, step %d: the governor believes that %d has thought %d tokens and answered %d, it has %d and %d", name, m.GetNumber(), r.Sequence, r.Think, r.Output, think, output)
		}
		if most := w.thoughtCap(r.ID); int(r.Cap) != most {
			w.broke("engine %s, step %d: the governor believes that %d may think %d tokens, it may %d", name, m.GetNumber(), r.Sequence, r.Cap, most)
		}
	}
	if len(requests) != len(c.believed) {
		w.broke("engine %s, step %d: the governor has %d sequences and was told of %d", name, m.GetNumber(), len(requests), len(c.believed))
	}
	if c.meter == nil {
		return
	}
	if diff := cmp.Diff(requests, governedRequests(c.twins, name)); diff != "" {
		w.broke("engine %s, step %d: of what was measured elsewhere the governor believes (-), and of the same (+): %s", name, m.GetNumber(), diff)
	}
}

func governedRequests(g *governing.Governors, engine string) []governing.Request {
	for _, e := range g.Engines() {
		if e.Name == engine {
			return e.Requests
		}
	}
	return nil
}

// thought is how many tokens of an answer were thought and how many follow the thought.
func (c *worldConn) thought(said []uint32) (think, output int) {
	s := c.link.of.engine.source
	if len(said) == 0 {
		return 0, 0
	}
	if end := slices.Index(said, s.thinkEnd.id); end >= 0 {
		return end - 1, len(said) - end - 1
	}
	return len(said) - 1, 0
}

// thoughtCap is how long the thought of a request may be.
func (w *governedWorld) thoughtCap(id string) int {
	most := int(w.options.Budget.MaxThinkTokens)
	if own := w.request(id).MaxThinkTokens; own != nil {
		most = min(most, *own)
	}
	return most
}
