package engine

import (
	"math"
	"math/rand/v2"
	"time"

	"meridian/serve/door"
	"meridian/serve/door/doorpb"
	"meridian/serve/governing"
)

// between is a time to wait, never quite the same.
func between(dice *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(dice.Int64N(int64(most-least)))
}

// pause sleeps, and tells whether there is still to be trouble.
func (w *governedWorld) pause(began time.Time, d time.Duration) bool {
	time.Sleep(d)
	return !w.over() && time.Since(began) < troubleTime
}

// links keeps an engine connected, and loses connections where the world has that.
func (w *governedWorld) links(m *worldEngine, dice *rand.Rand) {
	defer w.trouble.Done()
	began := time.Now()
	for !w.over() {
		if w.faults.lose && time.Since(began) < troubleTime && dice.IntN(8) == 0 {
			m.link.lose()
		}
		time.Sleep(between(dice, 10*time.Millisecond, 200*time.Millisecond))
		if !m.link.Connected() && (dice.IntN(4) > 0 || time.Since(began) > troubleTime) {
			m.link.connect()
		}
	}
}

// kills ends the agent with all its connections, and starts another.
func (w *governedWorld) kills(dice *rand.Rand) {
	defer w.trouble.Done()
	began := time.Now()
	for w.pause(began, between(dice, 200*time.Millisecond, 2*time.Second)) {
		w.mu.Lock()
		w.governors = nil
		w.mu.Unlock()
		for _, m := range w.engines {
			m.link.lose()
			m.door.lose(false)
		}
		time.Sleep(between(dice, time.Millisecond, time.Second))
		w.comes()
		for _, m := range w.engines {
			m.door.back()
		}
	}
}

// back is another connection of an engine to its agent.
func (d *testDoor) back() {
	d.cell.mu.Lock()
	defer d.cell.mu.Unlock()
	if !d.serving {
		d.serving = true
		d.tell(door.Event{Kind: door.Serving})
	}
}

// hangUps has the agent stand still for a while.
func (w *governedWorld) hangUps(dice *rand.Rand) {
	defer w.trouble.Done()
	began := time.Now()
	for w.pause(began, between(dice, 200*time.Millisecond, 2*time.Second)) {
		w.mu.Lock()
		w.hangUntil = time.Now().Add(between(dice, 10*time.Millisecond, 1500*time.Millisecond))
		w.mu.Unlock()
	}
}

// stores has the cache refuse, fail and be late, and be gone.
func (w *governedWorld) stores(dice *rand.Rand) {
	defer w.trouble.Done()
	began := time.Now()
	for {
		w.cell.mu.Lock()
		t := &w.cell.trouble
		t.refuse, t.fail, t.late, t.silence, t.mute = dice.IntN(40), dice.IntN(40), dice.IntN(30), dice.IntN(8), dice.IntN(8)
		t.slowest = dice.IntN(100_000)
		w.cell.mu.Unlock()
		if !w.pause(began, between(dice, 100*time.Millisecond, 2*time.Second)) {
			break
		}
		if dice.IntN(3) > 0 {
			continue
		}
		m := w.engines[dice.IntN(len(w.engines))]
		m.door.lose(false)
		time.Sleep(between(dice, time.Millisecond, time.Second))
		m.door.back()
	}
	w.cell.mu.Lock()
	defer w.cell.mu.Unlock()
	t := &w.cell.trouble
	t.refuse, t.fail, t.late, t.silence, t.mute = 0, 0, 0, 0, 0
}

// mad is an engine whose columns have the right shape and say anything.
func (w *governedWorld) mad(dice *rand.Rand) {
	about := &doorpb.Steps{Model: "tiny", BlockTokens: 8, MaxRunning: 4, StepTokens: 32, Forces: true, Forks: true, Blocks: 40, Swaps: true}
	number := func() uint64 { return uint64(dice.IntN(6)) }
	var c *governing.Connection
	var of *governing.Governors
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
