package engine

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"meridian/door"
	"meridian/door/doorpb"
	"meridian/governor/live"
)

// worldLink is an engine's connection for steps to the agent of a world, made anew when it
// was lost: what door.Steps and the agent's door are between processes. Every message is
// encoded, takes its time, and is parsed.
type worldLink struct {
	of *worldEngine

	mu    sync.Mutex // protects the rest
	dice  *rand.Rand
	conn  *worldConn // nil while there is none
	terms *doorpb.GovernorTerms
	last  uint64 // Step that was sent, or could not be
	// stale is what connections before decided that the engine has not taken.
	stale  []*doorpb.Decision
	ledger stepLedger
	// valid decisions were taken, and late ones of them came after a further Step.
	valid, late, lost uint64
	taken             time.Time // the last of them
}

// worldConn is one connection.
type worldConn struct {
	link  *worldLink
	known bool // the engine knows that it is new
	lost  chan struct{}
	came  chan struct{} // has room for one
	come  []*doorpb.Decision
	sent  uint64
	heard uint64
	// When what was sent last arrives, of steps, of entropies, and of decisions.
	up, metered, down time.Time

	agent    sync.Mutex // protects what the agent has of it
	governed *live.Connection
	meter    *live.Connection // nil: entropies come with the steps
	places   map[uint64]uint32
}

func (l *worldLink) Terms() *doorpb.GovernorTerms {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.terms
}

func (l *worldLink) Connected() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.conn != nil
}

func (l *worldLink) Renewed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn == nil || l.conn.known {
		return false
	}
	l.conn.known = true
	l.taken = time.Now()
	l.ledger.renew(l.terms)
	return true
}

func (l *worldLink) Close() { l.lose() }

// lose ends the connection. The agent hears of it some time later.
func (l *worldLink) lose() {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.conn
	if c == nil {
		return
	}
	l.conn = nil
	l.lost++
	l.stale = append(l.stale, c.come...)
	close(c.lost)
	c.hurry(&c.up, l.of.world.delay(l.dice), c.end)
}

// end is the agent's.
func (c *worldConn) end() {
	c.agent.Lock()
	defer c.agent.Unlock()
	if c.governed != nil {
		c.governed.Close()
	}
	if c.meter != nil {
		c.meter.Close()
	}
	c.governed, c.meter = nil, nil
}

// hurry has something happen after a delay, and after all that was on its way before.
func (c *worldConn) hurry(last *time.Time, delay time.Duration, do func()) {
	at := time.Now().Add(delay)
	if !at.After(*last) {
		at = last.Add(time.Nanosecond)
	}
	*last = at
	time.AfterFunc(time.Until(at), do)
}

// connect makes a connection, if the agent is there and has done with the one before.
func (l *worldLink) connect() bool {
	w, name := l.of.world, l.of.engine.options.ID
	g := w.agent()
	if g == nil {
		return false
	}
	governed, err := g.Govern(name, l.of.engine.aboutSteps())
	if err != nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	c := &worldConn{link: l, lost: make(chan struct{}), came: make(chan struct{}, 1), governed: governed}
	if w.faults.meter {
		if c.meter, err = g.Govern(name, &doorpb.Steps{Model: "tiny", Measures: true}); err != nil {
			w.broke("engine %s cannot measure: %v", name, err)
		}
		c.places = make(map[uint64]uint32)
	}
	l.conn, l.terms = c, governed.Terms()
	return true
}

func (l *worldLink) Send(m *doorpb.Step) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	w, c := l.of.world, l.conn
	if m.GetNumber() <= l.last {
		w.broke("engine %s: step %d after %d", l.of.engine.options.ID, m.GetNumber(), l.last)
	}
	l.last = m.GetNumber()
	if c == nil || !c.known {
		return false
	}
	wire, err := door.AppendFrame(nil, doorpb.FrameType_FRAME_TYPE_STEP, m)
	if err != nil {
		w.broke("a step cannot be told: %v", err)
		return false
	}
	w.tell(l.of.engine.options.ID, wire)
	l.ledger.hear(m)
	c.sent = m.GetNumber()
	if c.meter != nil {
		measured := c.measured(m)
		c.hurry(&c.metered, w.delay(l.dice), func() { c.measure(measured) })
		m.Entropies = nil
		if wire, err = door.AppendFrame(nil, doorpb.FrameType_FRAME_TYPE_STEP, m); err != nil {
			w.broke("a step cannot be told: %v", err)
		}
	}
	c.hurry(&c.up, w.delay(l.dice), func() { c.decide(wire) })
	return true
}

// measured is the entropies of a step as another process of the engine tells them, who does
// not know what the scheduler tells.
func (c *worldConn) measured(m *doorpb.Step) *doorpb.Step {
	for _, b := range m.GetBegun() {
		c.places[b.GetSequence()] = uint32(len(b.GetGenerated()))
	}
	out := &doorpb.Step{Number: m.GetNumber()}
	nats := m.GetEntropies()
	for i, number := range m.GetSequences() {
		count := m.GetCounts()[i]
		if len(nats) > 0 {
			out.Sequences, out.Counts = append(out.Sequences, number), append(out.Counts, count)
			out.Places, out.Entropies = append(out.Places, c.places[number]), append(out.Entropies, nats[:count]...)
			nats = nats[count:]
		}
		c.places[number] += count
	}
	return out
}

func (c *worldConn) measure(m *doorpb.Step) {
	c.agent.Lock()
	defer c.agent.Unlock()
	if c.meter == nil {
		return
	}
	if _, err := c.meter.Step(m); err != nil {
		c.link.of.world.broke("a measurement is refused: %v", err)
	}
}

// decide is the agent's: a Step has come, and its Decision goes back.
func (c *worldConn) decide(wire []byte) {
	c.agent.Lock()
	defer c.agent.Unlock()
	w := c.link.of.world
	if c.governed == nil {
		return
	}
	m := &doorpb.Step{}
	if err := proto.Unmarshal(wire[6:], m); err != nil {
		w.broke("a step cannot be read: %v", err)
		return
	}
	d, err := c.governed.Step(m)
	if err != nil {
		w.broke("engine %s, step %d: %v", c.link.of.engine.options.ID, m.GetNumber(), err)
		go c.link.lose()
		return
	}
	w.noteDecision(d)
	d = proto.Clone(d).(*doorpb.Decision)
	c.link.mu.Lock()
	defer c.link.mu.Unlock()
	c.hurry(&c.down, w.delay(c.link.dice), func() { c.arrive(d) })
}

// arrive is the engine's: a Decision has come. Of a connection that is lost none does.
func (c *worldConn) arrive(d *doorpb.Decision) {
	c.link.mu.Lock()
	defer c.link.mu.Unlock()
	if c.link.conn != c {
		c.link.stale = append(c.link.stale, d)
		return
	}
	c.come, c.heard = append(c.come, d), d.GetStep()
	select {
	case c.came <- struct{}{}:
	default:
	}
}

func (l *worldLink) Take(wait time.Duration) []*doorpb.Decision {
	l.mu.Lock()
	c := l.conn
	l.mu.Unlock()
	if c == nil {
		return nil
	}
	deadline := time.NewTimer(wait)
	defer deadline.Stop()
	for waits := wait > 0; waits; {
		l.mu.Lock()
		waits = c.heard < c.sent
		l.mu.Unlock()
		if !waits {
			break
		}
		select {
		case <-c.came:
		case <-c.lost:
			waits = false
		case <-deadline.C:
			waits = false
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	come := c.come
	c.come = nil
	for _, d := range come {
		l.valid, l.taken = l.valid+1, time.Now()
		if d.GetStep() < l.last {
			l.late++
		}
		l.ledger.decided(d)
		l.of.world.take(l.of.engine.options.ID, d)
	}
	return slices.Concat(l.old(), come)
}

// old is what must not be obeyed any more: decisions of connections before, and one that
// would turn everything round if it were.
func (l *worldLink) old() []*doorpb.Decision {
	if len(l.stale) == 0 || !l.of.world.faults.stale || l.dice.IntN(3) > 0 {
		return nil
	}
	stale := l.stale
	l.stale = nil
	upside := &doorpb.Decision{Step: stale[len(stale)-1].GetStep()}
	for _, number := range l.ledger.living() {
		upside.Pause = append(upside.Pause, number)
		upside.Preempt = append(upside.Preempt, &doorpb.Preempt{Sequence: number})
		upside.Force = append(upside.Force, &doorpb.Force{Sequence: number, Tokens: l.terms.GetEndTokens(), Reason: "converged"})
	}
	return append(stale, upside)
}

// mad is an engine whose columns have the right shape and say anything.
func (w *governedWorld) mad(dice *rand.Rand) {
	about := &doorpb.Steps{Model: "tiny", BlockTokens: 8, MaxRunning: 4, StepTokens: 32, Forces: true, Forks: true, Blocks: 40, Swaps: true}
	number := func() uint64 { return uint64(dice.IntN(6)) }
	var c *live.Connection
	var of *live.Governors
	for step := uint64(1); !w.over(); step++ {
		time.Sleep(time.Duration(1+dice.IntN(int(20*time.Millisecond))) | 1)
		g := w.agent()
		if g != of && c != nil {
			c.Close()
			c = nil
		}
		if of = g; g == nil {
			continue
		}
		var err error
		if c == nil {
			if c, err = g.Govern("mad", about); err != nil {
				w.broke("an engine is not let in: %v", err)
				return
			}
		}
		m := &doorpb.Step{Number: step, TookNs: dice.Uint64N(1 << 40), Running: dice.Uint32(), FreeBlocks: dice.Uint32N(80), StoreDown: dice.IntN(4) == 0}
		for range dice.IntN(4) {
			m.Begun = append(m.Begun, &doorpb.Begun{
				Sequence: number(), PromptTokens: dice.Uint32N(64), CachedTokens: dice.Uint32N(64), SharedBlocks: dice.Uint32N(9), Generated: prompt(step, dice.IntN(3)), Tenant: string(rune('a' + dice.IntN(3))),
			})
			m.Stopped = append(m.Stopped, &doorpb.Stopped{Sequence: number(), Lost: dice.IntN(2) == 0})
			m.Finished, m.Evicted = append(m.Finished, number()), append(m.Evicted, dice.Uint32N(50))
			m.Copied = append(m.Copied, &doorpb.Copied{Sequence: number(), Blocks: []uint32{dice.Uint32N(50)}, Whole: dice.IntN(2) == 0})
			m.Recalled = append(m.Recalled, &doorpb.Copied{Sequence: number(), Blocks: []uint32{dice.Uint32N(50)}, Whole: dice.IntN(2) == 0})
			m.Forked, m.ForkNats = append(m.Forked, number()), append(m.ForkNats, float32(math.NaN()))
		}
		for range dice.IntN(5) {
			count, blocks := dice.Uint32N(3), dice.Uint32N(3)
			m.Sequences, m.Computed = append(m.Sequences, number()), append(m.Computed, dice.Uint32N(1<<dice.IntN(32)))
			m.Counts, m.BlockCounts = append(m.Counts, count), append(m.BlockCounts, blocks)
			for range count {
				m.Tokens, m.Entropies = append(m.Tokens, 255+dice.Uint32N(8)), append(m.Entropies, float32(dice.ExpFloat64()))
			}
			for range blocks {
				m.Blocks = append(m.Blocks, dice.Uint32N(50))
			}
		}
		if _, err = c.Step(m); err != nil || dice.IntN(50) == 0 {
			c.Close()
			c = nil
		}
	}
	if c != nil {
		c.Close()
	}
}

// delay is how long a message takes: some are slow, and while the agent hangs all are.
func (w *governedWorld) delay(dice *rand.Rand) time.Duration {
	d := time.Duration(20+dice.IntN(100))*time.Microsecond + time.Duration(dice.IntN(1000))
	if w.faults.delay && dice.IntN(20) == 0 {
		d += time.Duration(dice.IntN(int(30 * time.Millisecond)))
	}
	return max(d, cmp.Or(time.Until(w.hangs()), 0))
}
