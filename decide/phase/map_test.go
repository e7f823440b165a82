package phase

import (
	"errors"
	"slices"
	"testing"

	"meridian/kv"
)

func TestMap(t *testing.T) {
	m := NewMap(model(t, single))
	for s := range Sequence(3) { // three choices of one request
		if err := m.Begin(0, s+1, Prompt{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.Begin(0, 2, Prompt{}); !errors.Is(err, ErrKnown) {
		t.Errorf("begun twice: %v", err)
	}
	events, err := m.Step(5, 2, []uint32{thinkID, 5, endID, 6}, nil)
	if err != nil || len(events) != 2 || events[1] != (Event{Sequence: 2, Kind: ExitThink, At: 3, Think: 1}) {
		t.Errorf("%v, %v", events, err)
	}
	if m.Phase(1) != kv.Prefill || m.Phase(2) != kv.Output || m.Phase(9) != kv.Complete {
		t.Errorf("%v, %v, %v", m.Phase(1), m.Phase(2), m.Phase(9))
	}
	if events, err = m.End(2, events[:0]); err != nil || len(events) != 1 || events[0].Sequence != 2 || m.Len() != 2 {
		t.Errorf("%v, %v, %d", events, err, m.Len())
	}
	if _, err = m.Step(6, 2, []uint32{7}, nil); !errors.Is(err, ErrUnknown) {
		t.Errorf("after its end: %v", err)
	}
	if _, err = m.End(2, nil); !errors.Is(err, ErrUnknown) {
		t.Errorf("ended twice: %v", err)
	}
}

// The place of a sequence that ended is free, whatever number it had.
func TestEndedSequenceIsUnknown(t *testing.T) {
	m := NewMap(model(t, single))
	for s := range Sequence(3) {
		_ = m.Begin(0, s, Prompt{})
	}
	for range 2 { // the map has learnt who follows whom
		for s := range Sequence(3) {
			if _, err := m.Step(1, s, []uint32{5}, nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	_, _ = m.End(0, nil)
	if _, err := m.Step(2, 0, []uint32{5}, nil); !errors.Is(err, ErrUnknown) {
		t.Errorf("%v", err)
	}
}

func TestStatesRefused(t *testing.T) {
	model := model(t, several)
	m := model.Begin(Prompt{})
	m.Step([]uint32{1, 2}, nil)
	good := m.Export()
	if _, err := model.Resume(good); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*State){
		"another model":             func(s *State) { s.Model++ },
		"a thought before it began": func(s *State) { s.Think = 1 },
		"no such phase":             func(s *State) { s.Phase = 4 },
		"thinking, never begun":     func(s *State) { s.Phase = kv.Think },
		"fewer tokens than matched": func(s *State) { s.Tokens = 1 },
		"negative":                  func(s *State) { s.Tokens = -1 },
		"beyond the markers":        func(s *State) { s.at = 99 },
		"an answer before it began": func(s *State) { s.answer = 1 },
	} {
		bad := good
		change(&bad)
		if _, err := model.Resume(bad); !errors.Is(err, ErrState) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestReap(t *testing.T) {
	m := NewMap(model(t, single))
	for s := range Sequence(4) {
		if err := m.Begin(0, s, Prompt{}); err != nil {
			t.Fatal(err)
		}
	}
	m.Touch(10, 1)
	if _, err := m.Step(10, 3, []uint32{5}, nil); err != nil {
		t.Fatal(err)
	}
	if gone := m.Reap(StaleNs, StaleNs, nil); len(gone) != 0 {
		t.Errorf("too early: %v", gone)
	}
	if gone := m.Reap(StaleNs+1, StaleNs, nil); !slices.Equal(gone, []Sequence{0, 2}) || m.Len() != 2 {
		t.Errorf("%v, %d are left", gone, m.Len())
	}
	// Their places serve others.
	if err := m.Begin(0, 7, Prompt{}); err != nil || len(m.entries) != 4 {
		t.Errorf("%v, %d places", err, len(m.entries))
	}
}

func TestMapIsBounded(t *testing.T) {
	m := NewMap(model(t, none))
	for s := range Sequence(maxSequences) {
		if err := m.Begin(0, s, Prompt{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.Begin(0, maxSequences, Prompt{}); !errors.Is(err, ErrFull) {
		t.Errorf("%v", err)
	}
}

func TestMapResumes(t *testing.T) {
	here, there := NewMap(model(t, several)), NewMap(model(t, several))
	_ = here.Begin(0, 1, Prompt{})
	if _, err := here.Step(0, 1, []uint32{1, 2, 3, 9, 6}, nil); err != nil {
		t.Fatal(err)
	}
	machine, _ := here.Machine(1)
	if err := there.Resume(0, 8, machine.Export()); err != nil {
		t.Fatal(err)
	}
	events, err := there.Step(0, 8, []uint32{6, 7}, nil)
	if err != nil || len(events) != 1 || events[0] != (Event{Sequence: 8, Kind: ExitThink, At: 7, Think: 1}) {
		t.Errorf("%v, %v", events, err)
	}
	if err := NewMap(model(t, single)).Resume(0, 1, machine.Export()); !errors.Is(err, ErrState) {
		t.Errorf("another model: %v", err)
	}
}

// No sequence is within a message of a thought that has not begun.
func TestResumeRefusesAThoughtBeforeItBegan(t *testing.T) {
	m := model(t, harmony)
	machine := m.Begin(Prompt{})
	state := machine.Export()
	state.at = inThought
	if _, err := m.Resume(state); !errors.Is(err, ErrState) {
		t.Errorf("%v", err)
	}
}

func FuzzState(f *testing.F) {
	for _, name := range familyNames() {
		m := model(f, kinds[name]).Begin(Prompt{})
		m.Step([]uint32{1, 2, 3, 9, 6}, nil)
		wire, _ := m.Export().AppendBinary(nil)
		f.Add(wire)
	}
	f.Fuzz(func(t *testing.T, wire []byte) {
		state, err := ParseState(wire)
		if err != nil {
			return
		}
		for _, name := range familyNames() {
			model := model(t, kinds[name])
			state.Model = model.fingerprint
			m, err := model.Resume(state)
			if err != nil {
				continue
			}
			m.End(m.Step([]uint32{1, 2, 3, 6, 6, 7, 93, 96, 94, 95, 1, 1, 90, 91, 0, 1, 3, 4, 5}, nil))
			if m.Think() < 0 || m.Output() < 0 || m.Think()+m.Output() > m.Tokens() {
				t.Fatalf("%s: a state that was let in counts %d and %d of %d", name, m.Think(), m.Output(), m.Tokens())
			}
		}
	})
}

func TestStepAllocatesNothing(t *testing.T) {
	for _, name := range familyNames() {
		m := NewMap(model(t, kinds[name]))
		_ = m.Begin(0, 1, Prompt{})
		tokens, events := []uint32{1, 2, 3, 9, 90, 93, 96, 94}, make([]Event, 0, 8)
		if n := testing.AllocsPerRun(100, func() { events, _ = m.Step(1, 1, tokens, events[:0]) }); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}
