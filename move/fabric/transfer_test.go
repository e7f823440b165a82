package fabric

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"

	"meridian/kv"
	"meridian/move/mem"
	"meridian/move/mrdn"
)

// empty is a request that touches no memory, so that a Transfer can be looked
// at by itself.
func empty(t interface{ Fatal(...any) }) *Prepared {
	p, err := NewPrepared(&Regions{}, Write, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// slow is a fabric that takes its time to become quiet after a stop.
type slow struct {
	mu       sync.Mutex // protects transfer, causes
	transfer *Transfer
	causes   []error
	quiet    time.Duration
}

func (s *slow) stop(cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.causes = append(s.causes, cause); len(s.causes) == 1 {
		go func(t *Transfer) {
			time.Sleep(s.quiet)
			t.Finish(InDoubt, fmt.Errorf("stopped: %w", cause))
		}(s.transfer)
	}
}

func (s *slow) post(t *testing.T, ctx context.Context) *Transfer { //nolint:revive // t first, as everywhere in tests
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	var err error
	if s.transfer, err = NewTransfer(ctx, SystemClock, empty(t), kv.ID{1}, s.stop); err != nil {
		t.Fatal(err)
	}
	return s.transfer
}

func TestCancelWaitsForQuiet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slow{quiet: time.Second}
		transfer := s.post(t, t.Context())
		start := time.Now()
		if err := transfer.Cancel(t.Context()); err != nil {
			t.Fatal(err)
		}
		if waited := time.Since(start); waited != time.Second {
			t.Errorf("Cancel returned after %v, memory was quiet after 1s", waited)
		}
		if err := transfer.Await(t.Context()); !errors.Is(err, ErrCancelled) {
			t.Errorf("a cancelled transfer ends with %v", err)
		}
		if err := transfer.Cancel(t.Context()); err != nil {
			t.Errorf("cancelling again: %v", err)
		}
	})
}

func TestCancelGivesUpWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slow{quiet: time.Second}
		transfer := s.post(t, t.Context())
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if err := transfer.Cancel(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Cancel said the memory is quiet: %v", err)
		}
		if state, err := transfer.Status(); state.Ended() || err != nil {
			t.Errorf("ended as %v, %v", state, err)
		}
		if err := transfer.Cancel(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestCancelAfterDoneChangesNothing(t *testing.T) {
	stopped := 0
	transfer, err := NewTransfer(t.Context(), SystemClock, empty(t), kv.ID{1}, func(error) { stopped++ })
	if err != nil {
		t.Fatal(err)
	}
	transfer.Finish(Done, nil)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := errors.Join(transfer.Cancel(ended), transfer.Await(ended)); err != nil {
		t.Errorf("over, but: %v", err)
	}
	if state, err := transfer.Status(); state != Done || err != nil {
		t.Errorf("%v, %v", state, err)
	}
	if stopped != 0 {
		t.Error("the fabric was asked to stop what had ended")
	}
}

func TestAwaitLeavesTheTransferAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slow{}
		transfer := s.post(t, t.Context())
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := transfer.Await(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		if state, _ := transfer.Status(); state.Ended() || len(s.causes) != 0 {
			t.Errorf("giving up waiting ended it: %v, %v", state, s.causes)
		}
		transfer.Finish(Done, nil)
		if err := transfer.Await(ctx); err != nil {
			t.Errorf("the end is seen even by a context that is over: %v", err)
		}
		<-transfer.Done()
	})
}

func TestDeadlineStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, left := range []time.Duration{time.Minute, 0, -time.Minute} {
			s := &slow{quiet: time.Second}
			ctx, cancel := context.WithDeadline(t.Context(), time.Now().Add(left))
			start := time.Now()
			err := s.post(t, ctx).Await(t.Context())
			if want := max(left, 0) + time.Second; !errors.Is(err, ErrDeadline) || time.Since(start) != want {
				t.Errorf("%v left: ended after %v, want %v, with %v", left, time.Since(start), want, err)
			}
			cancel()
		}
	})
}

func TestCancelledContextIsNoDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slow{}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		transfer := s.post(t, ctx)
		cancel() // only the deadline is the transfer's
		time.Sleep(time.Minute)
		if state, _ := transfer.Status(); state.Ended() {
			t.Errorf("ended as %v", state)
		}
		transfer.Finish(Done, nil)
		time.Sleep(2 * time.Hour)
		if len(s.causes) != 0 {
			t.Errorf("the deadline of a finished transfer still rang: %v", s.causes)
		}
	})
}

// Whatever a fabric reports in whatever order, the state only goes forward, and
// the first end is the end.
func TestStatesOnlyGoForward(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		transfer, err := NewTransfer(context.Background(), SystemClock, empty(t), kv.ID{1}, func(error) {})
		if err != nil {
			t.Fatal(err)
		}
		want := Admitted
		for range rapid.IntRange(0, 12).Draw(t, "steps") {
			s := State(rapid.IntRange(0, 5).Draw(t, "state"))
			finish := rapid.Bool().Draw(t, "finish")
			switch {
			case finish && s.Ended():
				transfer.Finish(s, nil)
				if !want.Ended() {
					want = s
				}
			case !finish:
				transfer.Advance(s)
				if !want.Ended() && !s.Ended() {
					want = max(want, s)
				}
			}
			got, _ := transfer.Status()
			if got != want {
				t.Fatalf("%v, want %v", got, want)
			}
			times := transfer.Times()
			if times.Posted.IsZero() || times.Ended.IsZero() == got.Ended() || got == Done && times.Submitted.IsZero() {
				t.Fatalf("in state %v the times are %+v", got, times)
			}
			select {
			case <-transfer.Done():
				if !got.Ended() {
					t.Fatalf("Done is closed in state %v", got)
				}
			default:
				if got.Ended() {
					t.Fatalf("Done is open in state %v", got)
				}
			}
		}
	})
}

func TestErrorsSurviveTheWire(t *testing.T) {
	for _, known := range sentinels {
		code, sentinel := known.code, known.err
		gotCode, message := ToCode(fmt.Errorf("region 7: %w", sentinel))
		back := FromCode(gotCode, message)
		if gotCode != code || !errors.Is(back, sentinel) || message == "" {
			t.Errorf("%v became %v, then %v", sentinel, gotCode, back)
		}
	}
	if code, message := ToCode(nil); code != mrdn.OK || message != "" || FromCode(code, message) != nil {
		t.Error("no error became one")
	}
	if code, _ := ToCode(errors.New("anything")); code != mrdn.CodeRefused {
		t.Errorf("an unnamed error became %v", code)
	}
	if err := FromCode(9999, ""); !errors.Is(err, ErrRefused) {
		t.Errorf("an unknown code became %v", err)
	}
	wrapped := &Error{Op: "connect", Subject: "b", Err: mem.ErrBounds}
	if !errors.Is(wrapped, mem.ErrBounds) || wrapped.Error() != "connect b: mem: out of bounds" {
		t.Errorf("%v", wrapped)
	}
}

func TestAStrangersWordsAreCut(t *testing.T) {
	long := strings.Repeat("é", 1<<20)
	if err := FromCode(mrdn.CodeBusy, long); len(err.Error()) > MaxTold+len(ErrBusy.Error())+2 || !errors.Is(err, ErrBusy) || !utf8.ValidString(err.Error()) {
		t.Errorf("%d bytes of a peer's message became an error of %d", len(long), len(err.Error()))
	}
	for _, err := range []error{errors.New(long), fmt.Errorf("%w: %s", ErrBusy, long)} {
		if _, message := ToCode(err); len(message) > MaxTold {
			t.Errorf("a peer is told %d bytes", len(message))
		}
	}
	if short := strings.Repeat("x", MaxTold); Told(short) != short {
		t.Error("what may be kept was cut")
	}
}

func TestHints(t *testing.T) {
	inner := &Error{Op: "connect", Subject: "b", Err: ErrPeerGone, Hint: "start it"}
	for _, c := range []struct {
		err  error
		want string
	}{
		{inner, "start it"},
		{&Error{Op: "read", Subject: "b", Err: fmt.Errorf("tcp: %w", inner)}, "start it"},
		{fmt.Errorf("all: %w", errors.Join(errors.New("other"), ErrPeerGone)), "meridian peers"},
		{FromCode(mrdn.CodeGrantExpired, "an hour ago"), "another grant"},
	} {
		if got := Hint(c.err); !strings.Contains(got, c.want) {
			t.Errorf("%v: %q", c.err, got)
		}
	}
	if got := Hint(errors.New("other")) + Hint(nil); got != "" {
		t.Errorf("a hint for nothing: %q", got)
	}
}

func TestNamesOfStates(t *testing.T) {
	for s, want := range map[State]string{Admitted: "admitted", InDoubt: "in doubt", 9: "state(9)"} {
		if got := s.String(); got != want {
			t.Errorf("%d is %q, want %q", s, got, want)
		}
	}
	if Read.String() != "read" || Write.String() != "write" || Op(9).String() == "" {
		t.Error("names of operations")
	}
}
