//go:build real

package hostile_test

import (
	"testing"
	"time"

	"meridian/prove/hostile"
)

// fairShare is what the honest peer keeps of its rate while an attacker has a
// fifth of a core.
const fairShare = 0.7

func TestRealStrangersLeaveAFairShare(t *testing.T) {
	for _, name := range hostile.Strangers() {
		t.Run(name, func(t *testing.T) { keepsItsShare(t, name, stranger) })
	}
}

func TestRealInsidersLeaveAFairShare(t *testing.T) {
	for _, name := range hostile.Insiders() {
		t.Run(name, func(t *testing.T) {
			keepsItsShare(t, name, insider)
		})
	}
}

// keepsItsShare takes turns of peace and war, so that whatever else the machine
// does falls on both. One try of five is enough: what else it does cannot make
// the honest peer faster in war than in peace for long.
func keepsItsShare(t *testing.T, name string, who enemy) {
	s := newAttackBed(t)
	s.attack(name, who, crowd)
	best := 0.0
	for try := 0; try < 5 && best < fairShare; try++ {
		var peace, war float64
		for range 10 {
			r := s.fight(500 * time.Millisecond)
			peace += r.peace.BytesPerSecond()
			war += r.war.BytesPerSecond()
			if grown := r.most - min(r.most, s.before); grown > memoryBound {
				t.Fatalf("the agent grew by %d MiB", grown>>20)
			}
		}
		best = max(best, war/peace)
		t.Logf("%+v: %.0f %% of the rate in peace", s.tallies.now(), 100*war/peace)
	}
	if best < fairShare {
		t.Errorf("the honest peer keeps %.0f %% of its rate, want %.0f %%", 100*best, 100*fairShare)
	}
}
