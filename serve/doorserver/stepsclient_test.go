package doorserver_test

import (
	"slices"
	"testing"
	"time"

	"meridian/internal/until"
	"meridian/serve/door"
	"meridian/serve/door/doorpb"
	"meridian/serve/doorserver"
)

// The Go client and the door: an agent that is started again is told everything anew.
func TestStepsOverTheDoor(t *testing.T) {
	g := &fakeGovernor{}
	c := newCell(t, "tcp")
	n := c.start("n", governed(g))
	s, err := door.OpenSteps(soon(t), door.StepsOptions{Socket: n.socket, Engine: "e", About: &doorpb.Steps{Model: "m"}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	step := func(number uint64) {
		t.Helper()
		if !s.Send(&doorpb.Step{Number: number, Sequences: []uint64{1, 2}, Computed: []uint32{1, 1}}) {
			t.Fatalf("step %d is not told", number)
		}
		if come := s.Take(time.Minute); len(come) != 1 || come[0].GetStep() != number || !slices.Equal(come[0].GetOrder(), []uint64{2, 1}) {
			t.Fatalf("after step %d: %v", number, come)
		}
	}
	if !s.Renewed() || s.Terms().GetPolicy() != "fake" {
		t.Errorf("terms %v", s.Terms())
	}
	for number := range uint64(100) {
		step(number + 1)
	}
	n.stop(t)
	if s.Take(time.Minute); s.Connected() { // it hears the end
		t.Error("an agent that stopped is there")
	}
	n = c.start("n", governed(g))
	until.True(t, "it is governed again", s.Renewed)
	step(101)
	if !s.Send(&doorpb.Step{Number: 102, Finished: []uint64{666}}) {
		t.Error("the agent is there")
	}
	if come := s.Take(time.Minute); come != nil {
		t.Errorf("%v came", come)
	}
	until.True(t, "it is governed again", s.Renewed)
	step(103)
	if m := n.Metrics(); m.Governed != 1 || m.Refused["request"] != 1 {
		t.Errorf("%+v", m)
	}
	s.Close()
	until.True(t, "the governor hears of every end", func() bool { return g.ended() == 3 })
}

// BenchmarkStep is the way of a Step and its Decision, with the governor that agents have.
func BenchmarkStep(b *testing.B) {
	const requests = 256
	n := newCell(b, "tcp").start("n", func(o *doorserver.Options) { o.Governor = newGovernors(b) })
	s, err := door.OpenSteps(soon(b), door.StepsOptions{
		Socket: n.socket, Engine: "e", About: &doorpb.Steps{BlockTokens: 16, MaxRunning: requests, StepTokens: 1 << 16},
	})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	s.Renewed()
	first := &doorpb.Step{Number: 1, Waiting: requests}
	for i := range uint64(requests) {
		first.Begun = append(first.Begun, &doorpb.Begun{Sequence: 1000 + i, PromptTokens: 64})
	}
	s.Send(first)
	s.Take(time.Minute)
	m := &doorpb.Step{Number: 1, Computed: make([]uint32, requests), Counts: make([]uint32, requests), Tokens: make([]uint32, requests), Entropies: make([]float32, requests)}
	for i := range requests {
		m.Sequences = append(m.Sequences, uint64(1000+i))
		m.Computed[i], m.Counts[i], m.Tokens[i], m.Entropies[i] = 1, 1, uint32(20000+i), 1
	}
	for b.Loop() {
		m.Number++
		if !s.Send(m) || len(s.Take(time.Minute)) != 1 {
			b.Fatal("the agent is gone")
		}
	}
}
