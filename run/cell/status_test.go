package cell

import "testing"

func TestStatus(t *testing.T) {
	s := newStage(t)
	s.open()
	status, err := ReadStatus(t.Context(), s.options.StateDir)
	if err != nil || !status.AllUp || status.Supervisor == 0 || len(status.Parts) != 8 {
		t.Fatalf("%+v, %v", status, err)
	}
	engines := 0
	for _, p := range status.Parts {
		if p.Stats != nil {
			engines++
			if p.Stats.Blocks.Total != 10 || p.Stats.Blocks.Free != 7 || p.Stats.Running != 2 || p.Stats.Door != "serving" {
				t.Errorf("%s: %+v", p.Name, p.Stats)
			}
		}
	}
	if engines != 4 {
		t.Errorf("%d engines told how they are", engines)
	}
}

// Neither an engine that does not answer nor one without its agent is as it
// should be.
func TestStatusOfOneThatLacksSomething(t *testing.T) {
	for _, habit := range []string{"mute", "alone"} {
		s := newStage(t)
		s.habit("prefill-0", habit)
		s.open()
		status, err := ReadStatus(t.Context(), s.options.StateDir)
		if err != nil || status.AllUp {
			t.Errorf("%s: %+v, %v", habit, status, err)
		}
		for _, p := range status.Parts {
			if (p.Problem != "") != (p.Name == "prefill-0") || !p.Up {
				t.Errorf("%s: %s is up: %v, problem: %q", habit, p.Name, p.Up, p.Problem)
			}
		}
	}
}
