package cell

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"meridian/internal/until"
)

// sorted sorts what may happen in any order within stages of the given sizes.
func sorted(events []string, sizes ...int) []string {
	for _, size := range sizes {
		slices.Sort(events[:min(size, len(events))])
		events = events[min(size, len(events)):]
	}
	return events
}

func TestStartsAndStopsInOrder(t *testing.T) {
	s := newStage(t)
	c := s.open()
	r := c.Record()
	if len(r.Parts) != 8 || r.Gateway == "" || r.Admin == "" {
		t.Errorf("%+v", r)
	}
	onDisk, err := ReadRecord(s.options.StateDir)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range onDisk.Parts {
		if p.State != Ready || p.Process == nil || !p.Process.Alive() {
			t.Errorf("%s is %s, process %+v", p.Name, p.State, p.Process)
		}
	}
	s.close(c)
	got := s.chronicle()
	sorted(got, 1, 2, 4, 1, 1, 4, 2, 1)
	want := "start directory, start agent-decode, start agent-prefill, " +
		"start decode-0, start decode-1, start prefill-0, start prefill-1, start gateway, " +
		"stop gateway, stop decode-0, stop decode-1, stop prefill-0, stop prefill-1, " +
		"stop agent-decode, stop agent-prefill, stop directory"
	if text := strings.Join(got, ", "); text != want {
		t.Errorf("happened:\n%s\nwant:\n%s", text, want)
	}
	if _, err := ReadRecord(s.options.StateDir); !errors.Is(err, ErrNoCell) {
		t.Errorf("after a clean end: %v", err)
	}
	for _, p := range onDisk.Parts {
		if p.Process.Alive() {
			t.Errorf("%s still runs", p.Name)
		}
	}
}

func TestPartThatFailsIsShownWithItsLog(t *testing.T) {
	s := newStage(t)
	s.habit("decode-1", "fail")
	_, err := Open(t.Context(), s.options)
	var end *EndError
	if !errors.As(err, &end) || end.Part != "decode-1" {
		t.Fatalf("%v", err)
	}
	for _, want := range []string{"ended before it was ready: exit status 1", "\n  no luck today"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v\nlacks %q", err, want)
		}
	}
	if !strings.Contains(end.Hint(), "logs/decode-1.log") {
		t.Error(end.Hint())
	}
	got := s.chronicle()
	if slices.Contains(got, "start gateway") || got[len(got)-1] != "stop directory" {
		t.Errorf("%v", got)
	}
}

// enough is how long a part that gets ready may take on a busy machine, where
// others never do.
const enough = 10 * time.Second

func TestPartThatIsNeverReadyIsNotWaitedForForever(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.habit("agent-prefill", "silent")
	s.options.Ready = enough
	_, err := Open(t.Context(), s.options)
	if err == nil || !strings.Contains(err.Error(), "agent-prefill was not ready after 10s; the end of its log:\n  I am agent-prefill") {
		t.Fatal(err)
	}
}

func TestStartThatIsCancelledLeavesNothing(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.habit("gateway", "silent")
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		s.await("gateway", Starting)
		cancel()
	}()
	s.options.Drain = enough / 2 // the silent one has no ears
	if _, err := Open(ctx, s.options); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if got := s.chronicle(); got[len(got)-1] != "stop directory" {
		t.Errorf("%v", got)
	}
}

func TestStartThatIsKilledDoesNotWait(t *testing.T) {
	s := newStage(t)
	s.habit("gateway", "silent") // and deaf
	s.habit("decode-0", "deaf")
	ctx, cancel := context.WithCancel(t.Context())
	kill, killNow := context.WithCancel(t.Context())
	go func() {
		s.await("gateway", Starting)
		cancel()
		s.await("gateway", Stopping)
		killNow()
	}()
	s.options.Drain, s.options.Kill = time.Hour, kill
	if _, err := Open(ctx, s.options); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if e := s.await("decode-0", Stopped); e.Detail != "was killed" {
		t.Errorf("%+v", e)
	}
}

func TestCellIsReadyWhenTheGatewayKnowsAllWorkers(t *testing.T) {
	for habit, want := range map[string]string{
		"half blind": "has not found all workers after 10s: it does not know prefill-0, prefill-1, or gets no answer there",
		"mute":       "has not found all workers after 10s: ",
	} {
		t.Run(habit, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			s.habit("gateway", habit)
			s.options.Ready = enough
			if _, err := Open(t.Context(), s.options); err == nil || !strings.Contains(err.Error(), want) {
				t.Error(err)
			}
		})
	}
}

func TestWorkerThatDiesComesBack(t *testing.T) {
	s := newStage(t)
	c := s.open()
	before := *c.Record().Part("decode-0")
	if err := syscall.Kill(before.Process.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if e := s.await("decode-0", Pausing); !strings.Contains(e.Detail, "signal: killed; starts again in 10ms") {
		t.Errorf("%+v", e)
	}
	s.await("decode-0", Ready)
	after := *c.Record().Part("decode-0")
	if after.Restarts != 1 || after.Process.PID == before.Process.PID || after.State != Ready || after.LastEnd != "ended: signal: killed" {
		t.Errorf("%+v", after)
	}
}

// However often a part dies, it is started again, and the pauses stay short
// enough for a cell to be whole again soon after what killed it has ended.
func TestPartThatDiesAgainAndAgainIsNotGivenUp(t *testing.T) {
	s := newStage(t)
	s.habit("prefill-0", "die")
	s.options.FirstPause = time.Microsecond
	c := s.open()
	for range 14 {
		if e := s.await("prefill-0", Pausing); !strings.Contains(e.Detail, "exit status 3") {
			t.Errorf("%+v", e)
		}
	}
	if status, err := ReadStatus(t.Context(), s.options.StateDir); err != nil || status.AllUp {
		t.Errorf("%+v, %v", status, err)
	}
	s.habit("prefill-0", "")
	until.Well(t, "prefill-0 is ready", func() string {
		if p := c.Record().Part("prefill-0"); p.State != Ready {
			return fmt.Sprintf("%+v", p)
		}
		return ""
	})
	if falls := 1000; pauseAfter(falls, defaultFirstPause) != longestPause || pauseAfter(1, defaultFirstPause) != defaultFirstPause {
		t.Errorf("the pause after %d deaths is %v, after one %v", falls, pauseAfter(falls, defaultFirstPause), pauseAfter(1, defaultFirstPause))
	}
}

func TestPausesGrow(t *testing.T) {
	s := newStage(t)
	s.habit("prefill-0", "die")
	s.options.FirstPause = time.Millisecond
	s.open()
	for _, want := range []string{"in 1ms", "in 2ms", "in 4ms", "in 8ms"} {
		if e := s.await("prefill-0", Pausing); !strings.HasSuffix(e.Detail, want) {
			t.Errorf("%q, want %q", e.Detail, want)
		}
	}
}

func TestGatewayComesBackWhereItWas(t *testing.T) {
	s := newStage(t) // the system chooses its ports
	c := s.open()
	before := c.Record()
	if err := syscall.Kill(before.Part("gateway").Process.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	s.await("gateway", Pausing)
	s.await("gateway", Ready)
	if after := c.Record(); after.Gateway != before.Gateway {
		t.Errorf("it was at %s and is at %s", before.Gateway, after.Gateway)
	}
}

func TestNoRestart(t *testing.T) {
	s := newStage(t)
	s.options.NoRestart = true
	c := s.open()
	if err := syscall.Kill(c.Record().Part("decode-0").Process.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	s.await("decode-0", Dead)
	if r := c.Record().Part("decode-0"); r.Restarts != 0 || r.Process != nil {
		t.Errorf("%+v", r)
	}
}

func TestDeafPartIsKilled(t *testing.T) {
	s := newStage(t)
	s.habit("gateway", "deaf")
	s.options.Drain = 200 * time.Millisecond
	c := s.open()
	s.close(c)
	if e := s.await("gateway", Stopped); !strings.Contains(e.Detail, "was killed: it had not stopped after 200ms") {
		t.Errorf("%+v", e)
	}
}

func TestImpatientCloseKills(t *testing.T) {
	s := newStage(t)
	s.habit("gateway", "deaf")
	s.options.Drain = time.Hour
	c := s.open()
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		s.await("gateway", Stopping)
		cancel()
	}()
	if err := c.Close(ctx); err != nil {
		t.Error(err)
	}
	if e := s.await("gateway", Stopped); e.Detail != "was killed" {
		t.Errorf("%+v", e)
	}
}

func TestOneCellToAStateDirectory(t *testing.T) {
	s := newStage(t)
	s.open()
	_, err := Open(t.Context(), s.options)
	var running *RunningError
	if !errors.As(err, &running) || running.Record == nil || running.Record.Supervisor.PID != os.Getpid() {
		t.Fatal(err)
	}
	if !strings.Contains(err.Error(), fmt.Sprintf("process %d", os.Getpid())) || !strings.Contains(running.Hint(), "meridian down") {
		t.Error(err, running.Hint())
	}
}

func TestOthersMustNotEnterTheStateDirectory(t *testing.T) {
	s := newStage(t)
	if err := os.Chmod(s.options.StateDir, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), s.options); err == nil || !strings.Contains(err.Error(), "0755; chmod 700") {
		t.Error(err)
	}
}

func TestAnotherPartBesideTheCell(t *testing.T) {
	s := newStage(t)
	c := s.open()
	plan, err := s.options.Spec.Alone("alone")
	if err != nil {
		t.Fatal(err)
	}
	plan.Args = append(plan.Args, "--state", s.options.StateDir) // where the fake writes its chronicle
	r, err := c.Add(t.Context(), plan)
	if err != nil || r.URL == "" || !slices.Contains(r.Args, "--no-door") {
		t.Fatalf("%+v, %v", r, err)
	}
	s.close(c)
	if got := s.chronicle(); !slices.Contains(got, "stop alone") || slices.Index(got, "stop alone") > slices.Index(got, "stop gateway") {
		t.Errorf("%v", got)
	}
}

func TestAPartThatWasAddedIsStopped(t *testing.T) {
	s := newStage(t)
	c := s.open()
	defer s.close(c)
	plan, err := s.options.Spec.Alone("alone")
	if err != nil {
		t.Fatal(err)
	}
	plan.Args = append(plan.Args, "--state", s.options.StateDir)
	if _, err := c.Add(t.Context(), plan); err != nil {
		t.Fatal(err)
	}
	if err := c.Stop("alone"); err != nil || c.Record().Part("alone").State != Stopped || !slices.Contains(s.chronicle(), "stop alone") {
		t.Errorf("%v, %+v, %v", err, c.Record().Part("alone"), s.chronicle())
	}
	if slices.Contains(s.chronicle(), "stop gateway") {
		t.Error("others were stopped, too")
	}
	if err := c.Stop("absent"); err == nil {
		t.Error("what is not there was stopped")
	}
}

func TestTakenPortIsPassedOver(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	standard := taken.Addr().String()
	found, err := freeFrom(standard)
	if err != nil || found == standard {
		t.Fatalf("%s, %v", found, err)
	}
	if another, err := freeFrom(standard, found); err != nil || another == found || another == standard {
		t.Errorf("%s, %v", another, err)
	}
	var told []Event
	c := &Cell{options: Options{Watch: func(e Event) { told = append(told, e) }}}
	if _, err := c.address("gateway", "", standard); err != nil || len(told) != 1 || !strings.Contains(told[0].Detail, standard+" is taken") {
		t.Errorf("%v, %v", told, err)
	}
	if asked, err := c.address("gateway", standard, DefaultListen); err != nil || asked != standard || len(told) != 1 {
		t.Errorf("%s, %v: who names an address gets it, or the gateway's own error", asked, err)
	}
}
