package engine

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"meridian/serve/door"
	"meridian/serve/door/doorpb"
	"meridian/serve/governing"
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
	wilful            wilful
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

	agent            sync.Mutex // protects what the agent has of it
	governors, twins *governing.Governors
	believed         map[uint64][]uint32 // what sequences have said, as the agent has heard
	governed         *governing.Connection
	meter            *governing.Connection // nil: entropies come with the steps
	twin             *governing.Connection // of another governor, which hears with each step what the meter has told by then
	arrived          map[tokenPlace]float32
	said             map[uint64]uint32 // tokens, as the agent has heard
	places           map[uint64]uint32 // the same, as the engine has told
}

// tokenPlace is a token of an answer.
type tokenPlace struct {
	sequence uint64
	at       uint32
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
		c.twin.Close()
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
	c := &worldConn{link: l, lost: make(chan struct{}), came: make(chan struct{}, 1), governors: g, governed: governed, believed: make(map[uint64][]uint32)}
	if w.faults.meter {
		if c.meter, err = g.Govern(name, &doorpb.Steps{Model: "tiny", Measures: true}); err != nil {
			w.broke("engine %s cannot measure: %v", name, err)
		}
		c.twins = w.agentTwin()
		if c.twin, err = c.twins.Govern(name, l.of.engine.aboutSteps()); err != nil {
			w.broke("engine %s has no second governor: %v", name, err)
		}
		c.places, c.said, c.arrived = make(map[uint64]uint32), make(map[uint64]uint32), make(map[tokenPlace]float32)
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
	nats := m.GetEntropies()
	for i, number := range m.GetSequences() {
		for j := range m.GetCounts()[i] {
			c.arrived[tokenPlace{number, m.GetPlaces()[i] + j}] = nats[j]
		}
		nats = nats[m.GetCounts()[i]:]
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
	whole := c.whole(m)
	d, err := c.governed.Step(m)
	if err == nil && whole != nil {
		if twin, err := c.twin.Step(whole); err != nil || !proto.Equal(d, twin) {
			w.broke("engine %s, step %d: %v is decided by what was measured elsewhere, and %v by the same: %v", c.link.of.engine.options.ID, m.GetNumber(), d, twin, err)
		}
	}
	if err != nil {
		w.broke("engine %s, step %d: %v", c.link.of.engine.options.ID, m.GetNumber(), err)
		go c.link.lose()
		return
	}
	c.believes(m, d)
	w.noteDecision(d)
	d = proto.Clone(d).(*doorpb.Decision)
	c.link.mu.Lock()
	defer c.link.mu.Unlock()
	c.hurry(&c.down, max(w.delay(c.link.dice), time.Until(c.link.wilful.silent)), func() { c.arrive(d) })
}

// whole is a Step with the entropies that have been measured by now; nil where they come
// with it.
func (c *worldConn) whole(m *doorpb.Step) *doorpb.Step {
	if c.meter == nil {
		return nil
	}
	m = proto.Clone(m).(*doorpb.Step)
	for _, b := range m.GetBegun() {
		c.said[b.GetSequence()] = uint32(len(b.GetGenerated()))
	}
	for i, number := range m.GetSequences() {
		for range m.GetCounts()[i] {
			nats, is := c.arrived[tokenPlace{number, c.said[number]}]
			if !is {
				nats = float32(math.NaN())
			}
			m.Entropies = append(m.Entropies, nats)
			c.said[number]++
		}
	}
	return m
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
	l.ledger.failedOpen()
	for _, d := range come {
		l.valid, l.taken = l.valid+1, time.Now()
		if d.GetStep() < l.last {
			l.late++
		}
		l.wilful.change(l, d)
		l.ledger.decided(d, len(come) > 1)
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

// delay is how long a message takes: some are slow, and while the agent hangs all are.
func (w *governedWorld) delay(dice *rand.Rand) time.Duration {
	d := time.Duration(20+dice.IntN(100))*time.Microsecond + time.Duration(dice.IntN(1000))
	if w.faults.delay && dice.IntN(20) == 0 {
		d += time.Duration(dice.IntN(int(30 * time.Millisecond)))
	}
	return max(d, cmp.Or(time.Until(w.hangs()), 0))
}
