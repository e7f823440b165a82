package engine

import (
	"math/rand/v2"
	"time"

	"meridian/door"
	"meridian/governor/live"
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
		w.gone, w.governors = append(w.gone, w.governors), nil
		w.mu.Unlock()
		for _, m := range w.engines {
			m.link.lose()
			m.door.lose(false)
		}
		time.Sleep(between(dice, time.Millisecond, time.Second))
		g, err := live.New(w.options)
		if err != nil {
			w.broke("the agent does not come again: %v", err)
		}
		w.mu.Lock()
		w.governors = g
		w.mu.Unlock()
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
