package door

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"meridian/internal/until"
	"meridian/serve/door/doorpb"
)

// governing welcomes connections for steps, and answers every Step that is not held back.
func governing(hold func(number uint64) bool) func(c *Conn, f Frame) bool {
	return func(c *Conn, f Frame) bool {
		if f.Type == doorpb.FrameType_FRAME_TYPE_HELLO {
			return c.Send(doorpb.FrameType_FRAME_TYPE_WELCOME, &doorpb.Welcome{
				Version: Version, Features: []string{FeatureSteps}, MaxFrameBytes: 1 << 10, Governor: &doorpb.GovernorTerms{WaitUs: 9},
			}, nil) == nil
		}
		var m doorpb.Step
		if f.Type != doorpb.FrameType_FRAME_TYPE_STEP || f.Unmarshal(&m) != nil {
			return false
		}
		if hold != nil && hold(m.GetNumber()) {
			return true
		}
		return c.Send(doorpb.FrameType_FRAME_TYPE_DECISION, &doorpb.Decision{Step: m.GetNumber(), Pause: m.GetFinished()}, nil) == nil
	}
}

func openSteps(t *testing.T, o StepsOptions) *Steps {
	t.Helper()
	o.Engine = "e"
	s, err := OpenSteps(shortly(t), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func stepsOf(all []*doorpb.Decision) (numbers []uint64) {
	for _, d := range all {
		numbers = append(numbers, d.GetStep())
	}
	return numbers
}

func TestStepsAndDecisions(t *testing.T) {
	s := openSteps(t, StepsOptions{Socket: agentOf(t, governing(func(n uint64) bool { return n == 3 }))})
	if s.Terms().GetWaitUs() != 9 {
		t.Errorf("terms %v", s.Terms())
	}
	if s.Send(&doorpb.Step{Number: 1}) {
		t.Error("sent before the engine knew of the connection")
	}
	if !s.Renewed() || s.Renewed() {
		t.Error("a connection is new once")
	}
	if !s.Send(&doorpb.Step{Number: 1, Finished: []uint64{4}}) {
		t.Fatal("the agent is there")
	}
	if come := s.Take(time.Minute); !slices.Equal(stepsOf(come), []uint64{1}) || come[0].GetPause()[0] != 4 {
		t.Errorf("%v", come)
	}
	if come := s.Take(0); come != nil {
		t.Errorf("%v came twice", come)
	}
	// One that is not answered is waited for, and the others come all the same.
	for n := range uint64(2) {
		s.Send(&doorpb.Step{Number: 2 + n})
	}
	var come []uint64
	became := time.Now()
	for len(come) == 0 && time.Since(became) < time.Minute {
		come = append(come, stepsOf(s.Take(time.Millisecond))...)
	}
	if !slices.Equal(come, []uint64{2}) {
		t.Errorf("%v", come)
	}
	s.Send(&doorpb.Step{Number: 4})
	if come := s.Take(time.Minute); !slices.Equal(stepsOf(come), []uint64{4}) {
		t.Errorf("%v", come)
	}
	// What is too long for the agent is not told, and what it knows is void.
	if s.Send(&doorpb.Step{Number: 5, Evicted: make([]uint32, 2<<10)}) || s.Send(&doorpb.Step{Number: 6}) {
		t.Error("a long step was told")
	}
	until.True(t, "there is a new connection", s.Renewed)
	s.Close()
	if s.Send(&doorpb.Step{Number: 7}) || s.Take(time.Minute) != nil || s.Connected() {
		t.Error("it is closed")
	}
}

// Where the agent ends the connection, what it knew is told anew.
func TestStepsAfterAnEnd(t *testing.T) {
	s := openSteps(t, StepsOptions{Socket: agentOf(t, func(c *Conn, f Frame) bool {
		var m doorpb.Step
		if f.Type == doorpb.FrameType_FRAME_TYPE_STEP && f.Unmarshal(&m) == nil && len(m.GetFinished()) > 0 {
			_ = c.Send(doorpb.FrameType_FRAME_TYPE_REPLY, &doorpb.Reply{Problem: &doorpb.Problem{Code: CodeRequest}}, nil)
			return false
		}
		return governing(nil)(c, f)
	})})
	for number := uint64(1); number < 5; number++ {
		until.True(t, "there is a new connection", s.Renewed)
		if !s.Send(&doorpb.Step{Number: 10 * number}) || !slices.Equal(stepsOf(s.Take(time.Minute)), []uint64{10 * number}) {
			t.Fatal("it does not go on")
		}
		s.Send(&doorpb.Step{Number: 10*number + 1, Finished: []uint64{1}})
		if come := s.Take(time.Minute); come != nil {
			t.Errorf("%v came", come)
		}
	}
}

// An agent that hangs costs a moment once, and then nothing.
func TestStepsOfAnAgentThatHangs(t *testing.T) {
	release := make(chan struct{})
	var dialled atomic.Int32
	s := openSteps(t, StepsOptions{Socket: agentOf(t, func(c *Conn, f Frame) bool {
		if f.Type == doorpb.FrameType_FRAME_TYPE_HELLO && dialled.Add(1) == 1 {
			return governing(nil)(c, f)
		}
		<-release
		return false
	})})
	defer close(release)
	s.Renewed()
	number := uint64(0)
	for s.Send(&doorpb.Step{Number: number + 1, Evicted: make([]uint32, 1000)}) {
		if number++; number > 1e6 {
			t.Fatal("a socket holds everything")
		}
	}
	began := time.Now()
	for range 1000 {
		if s.Send(&doorpb.Step{Number: number + 1}) || s.Take(time.Second) != nil {
			t.Fatal("it takes steps and answers without an agent")
		}
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("an agent that is away costs %v", took/1000)
	}
}

func TestStepsWithoutAnAgent(t *testing.T) {
	dir, err := os.MkdirTemp("", "mrd")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket := filepath.Join(dir, "door.sock")
	if _, err := OpenSteps(shortly(t), StepsOptions{Socket: socket, Engine: "e"}); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	s := openSteps(t, StepsOptions{Socket: socket, AgentMayBeAway: true})
	if s.Send(&doorpb.Step{Number: 1}) || s.Take(time.Minute) != nil || s.Renewed() || s.Terms() != nil {
		t.Error("it takes steps and answers without an agent")
	}
	agentAt(t, socket, governing(nil))
	until.True(t, "the agent is found", s.Renewed)
	if !s.Send(&doorpb.Step{Number: 1}) || len(s.Take(time.Minute)) != 1 {
		t.Error("it does not decide")
	}
	s.Close() // before the agent, which waits for it
	// An agent that does not govern says so.
	_, err = OpenSteps(shortly(t), StepsOptions{Engine: "e", AgentMayBeAway: true, Socket: agentOf(t, welcome)})
	var p *Problem
	if !errors.As(err, &p) || p.Code != CodeUnsupported {
		t.Error(err)
	}
}
