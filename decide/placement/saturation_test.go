package placement

import (
	"testing"

	"pgregory.net/rapid"
)

func TestFull(t *testing.T) {
	const second = int64(1e9)
	var f Saturation
	if f.Is(1000, 0) {
		t.Error("it never refused")
	}
	f.Refused(4, 0, 100*second)
	if !f.Is(4, 100*second) || !f.Is(5, 100*second) {
		t.Error("it has room right after it refused")
	}
	if f.Is(3, 100*second) {
		t.Error("one has ended, and it has no room")
	}
	if !f.Is(4, 100*second+second-1) || f.Is(4, 101*second) {
		t.Error("a refusal is not believed for a second")
	}
	f.Refused(9, 0, 101*second) // asked again, in vain
	if !f.Is(9, 103*second-1) || f.Is(9, 103*second) {
		t.Error("the second refusal is not believed for two seconds")
	}
	f.Refused(9, 0, 200*second)
	if f.Is(9, 201*second) {
		t.Error("what was long ago makes it wait longer")
	}
	f.Refused(9, 3600*second, 300*second)
	if f.Is(9, 310*second) {
		t.Error("an engine is believed for longer than ten seconds")
	}
	// Three were sent at once to an engine with room for none: each counts those that are
	// refused after it.
	f = Saturation{}
	for running := 6; running >= 4; running-- {
		f.Refused(running, 0, second)
	}
	if !f.Is(4, second) || f.Is(3, second) {
		t.Error("those that are refused together count one another")
	}
}

// An engine's own word that it has room is taken, for as many as it says, and not again at once
// where it was wrong.
func TestFullHasRoom(t *testing.T) {
	const second = int64(1e9)
	var f Saturation
	f.HasRoom(0, 5, second)
	if f.Is(0, second) {
		t.Error("it never refused")
	}
	f.Refused(0, 10*second, 100*second) // others' requests fill it
	f.HasRoom(0, 0, 101*second)
	if !f.Is(0, 101*second) {
		t.Error("it has said that it has no room")
	}
	f.HasRoom(0, 2, 101*second)
	if f.Is(1, 101*second) || !f.Is(2, 101*second) {
		t.Error("it has said that it has room for two")
	}
	f.Refused(2, 0, 101*second) // by the third, as it should
	f.HasRoom(2, 1, 102*second)
	if f.Is(2, 102*second) || !f.Is(3, 102*second) {
		t.Error("it was right, and is not believed again")
	}
	f.Refused(2, 0, 102*second) // in spite of its word
	f.HasRoom(2, 1, 103*second-1)
	if !f.Is(2, 103*second-1) {
		t.Error("it was wrong, and is believed again at once")
	}
	f.HasRoom(2, 1, 103*second)
	if f.Is(2, 103*second) {
		t.Error("it is never believed again")
	}
	f.HasRoom(2, 1, 111*second)
	if f.Is(1<<20, 111*second) {
		t.Error("what was said of it stays after its refusal is over")
	}
}

// Whatever an engine says, a request that asks it whenever it may is refused about once a second.
func TestFullThatLies(t *testing.T) {
	var f Saturation
	refusals := 0
	const minute = int64(60e9)
	for now := int64(1); now < minute; now += 10e6 {
		if !f.Is(0, now) {
			f.Refused(0, 0, now)
			refusals++
		}
		f.HasRoom(0, 1<<20, now)
	}
	if refusals > 80 {
		t.Errorf("it is asked %d times in a minute", refusals)
	}
}

// Whatever refuses when, an engine is asked again within ten seconds of its last refusal.
func TestFullEnds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var f Saturation
		now := int64(0)
		for range rapid.IntRange(1, 20).Draw(t, "refusals") {
			now += rapid.Int64Range(0, 2*mostFull).Draw(t, "after")
			running := rapid.IntRange(0, 50).Draw(t, "running")
			f.Refused(running, rapid.Int64Range(-1, 100*mostFull).Draw(t, "wait"), now)
			if !f.Is(running, now) {
				t.Fatal("an engine that has just refused has room")
			}
			f.HasRoom(rapid.IntRange(0, 50).Draw(t, "then"), rapid.IntRange(-1, 50).Draw(t, "room"), now)
			if f.Is(1<<30, now+mostFull) {
				t.Fatal("it is never asked again")
			}
		}
	})
}
