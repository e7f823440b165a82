package gateway

import (
	"strings"
	"testing"
	"time"

	"meridian/decide/placement"
	"meridian/serve/gateway/edge"
	"meridian/serve/gateway/thought"
	"meridian/serve/openai"
)

// forPhases is a cell of d0, which is meant for thoughts, and d1 for answers.
func forPhases(t *testing.T, change func(*Options)) *testCell {
	t.Helper()
	c := newCell(t, 0, 2, func(o *Options) {
		o.Backends[0].Phases, o.Backends[1].Phases = placement.Think, placement.Answer
		marked(func(*thought.Markers) {})(o)
		if change != nil {
			change(o)
		}
	})
	c.until("the engines are there", func() bool {
		for _, e := range c.roster.All() {
			if !e.Up.Load() {
				return false
			}
		}
		return true
	})
	for _, s := range c.decode {
		s.set(habits{moves: true, thinks: 9, slow: time.Millisecond})
	}
	return c
}

// Requests go to the engine for their phase, and leave one for thoughts when theirs has ended.
func TestPhasesOfEngines(t *testing.T) {
	const body = `{"model":"m","messages":[{"role":"user","content":"short"}],"max_tokens":60,"seed":3,"stream":true}`
	c := forPhases(t, nil)
	got := c.post(openai.PathChat, body)
	got.whole(t, "short", 3, 60)
	if placement := got.header.Get(edge.HeaderPlacement); !strings.Contains(placement, "decode=d0 (meant for thoughts)") {
		t.Errorf("placed %s", placement)
	}
	record := c.record(got)
	if legsOf(record) != "decode d0, move d1" || len(record.Moves) != 1 || record.Moves[0].Why != "thought" || record.Moves[0].Placement != "meant for answers" {
		t.Errorf("legs: %s, moves %+v", legsOf(record), record.Moves)
	}
	c.decode[1].set(habits{})
	silent := c.post(openai.PathChat, strings.Replace(body, `"seed"`, `"reasoning_effort":"none","seed"`, 1))
	if placement := silent.header.Get(edge.HeaderPlacement); !strings.Contains(placement, "decode=d1 (meant for answers)") {
		t.Errorf("who does not think is placed %s", placement)
	}
}

// Where the engine for answers is full, a request stays where it thought.
func TestPhasesWithoutRoom(t *testing.T) {
	c := forPhases(t, nil)
	full := c.engine(c.decode[1])
	full.Running.Add(1)
	c.roster.Refused(full, time.Minute)
	got := c.post(openai.PathChat, `{"model":"m","messages":[{"role":"user","content":"short"}],"max_tokens":60,"seed":3,"stream":true}`)
	got.whole(t, "short", 3, 60)
	if legs := legsOf(c.record(got)); legs != "decode d0" {
		t.Errorf("legs: %s", legs)
	}
}
