package doorstore

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"meridian/serve/door"
	"meridian/serve/doorserver"
)

// hold takes memory and keeps it.
func hold(t *testing.T, s *staging, c doorserver.Client, size uint64) (giveBack func(), err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, giveBack, err = s.take(ctx, c, size)
	return giveBack, err
}

// A client that gives nothing back holds its share, and the next is served at once, also before
// those of the first that wait.
func TestAClientHasItsShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, slow, other := newStaging(1), doorserver.Client{User: 1, Process: 10}, doorserver.Client{User: 1, Process: 11}
		for range processTokens {
			if _, err := hold(t, s, slow, stagingToken); err != nil {
				t.Fatal(err)
			}
		}
		waits := make(chan error, 1)
		go func() {
			_, err := hold(t, s, slow, 1)
			waits <- err
		}()
		synctest.Wait()
		began := time.Now()
		giveBack, err := hold(t, s, other, 1<<30) // more than all: it counts as a share
		if err != nil || time.Since(began) > 0 {
			t.Fatalf("another client waited %v: %v", time.Since(began), err)
		}
		giveBack()
		if err := <-waits; !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("beyond its share a client got %v", err)
		}
		if s.free != stagingTokens-processTokens || len(s.waiting) != 0 || len(s.held) != 1 {
			t.Errorf("%d are free, %d wait, %v is held", s.free, len(s.waiting), s.held)
		}
	})
}

// Another user may start processes without end: all of them together have half.
func TestAUserHasItsShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStaging(1)
		took := 0
		for pid := range 8 {
			if _, err := hold(t, s, doorserver.Client{User: 2, Process: pid + 1}, 32*stagingToken); err == nil {
				took++
			}
		}
		if took*32 != userTokens {
			t.Errorf("processes of another user hold %d tokens", took*32)
		}
		for pid := range 2 {
			if _, err := hold(t, s, doorserver.Client{User: 1, Process: pid + 1}, 1<<30); err != nil {
				t.Error(err)
			}
		}
	})
}

// Who wants much is not overtaken by those that came later.
func TestALargeWantIsNotOvertaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStaging(1)
		var givesBack []func()
		for pid := range 4 {
			giveBack, err := hold(t, s, doorserver.Client{User: 1, Process: pid + 1}, 60*stagingToken)
			if err != nil {
				t.Fatal(err)
			}
			givesBack = append(givesBack, giveBack)
		}
		order := make(chan int, 2)
		for _, tokens := range []int{64, 16} { // for the second there would be enough
			go func() {
				if _, err := hold(t, s, doorserver.Client{User: 1, Process: 8 + tokens}, uint64(tokens)*stagingToken); err == nil {
					order <- tokens
				}
			}()
			synctest.Wait()
		}
		for i, want := range []int{64, 16} {
			givesBack[i]()
			synctest.Wait()
			if len(order) != 1 || <-order != want {
				t.Fatalf("%d tokens were not the next", want)
			}
		}
	})
}

// A copy that does not end is counted and told of, its client gets no more, and it fails when it ends.
func TestSlowMemoryIsToldOf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &Cache{staging: newStaging(1), slow: newSlowMemory(slog.New(slog.DiscardHandler))}
		slow, other := doorserver.Client{User: 1, Process: 10}, doorserver.Client{User: 1, Process: 11}
		comes, ended := make(chan struct{}), make(chan error, 1)
		go func() { ended <- c.slow.copy(slow, func() error { <-comes; return nil }) }()
		time.Sleep(pieceTime - 1)
		synctest.Wait()
		if m := c.Metrics(); m.Overdue != 0 {
			t.Errorf("in time, and %+v", m)
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if m := c.Metrics(); m.Overdue != 1 || m.SlowPieces != 1 {
			t.Errorf("%+v", m)
		}
		var p *door.Problem
		if _, _, err := c.stage(t.Context(), slow, 1); !errors.As(err, &p) || p.Code != door.CodeBusy {
			t.Errorf("a client whose memory does not come got %v", err)
		}
		if _, giveBack, err := c.stage(t.Context(), other, 1); err != nil {
			t.Error(err)
		} else {
			giveBack()
		}
		close(comes)
		if err := <-ended; !errors.As(err, &p) || p.Code != door.CodeDeadline {
			t.Errorf("a copy that took too long ended with %v", err)
		}
		if m := c.Metrics(); m.Overdue != 0 || m.SlowPieces != 1 {
			t.Errorf("it has ended, and %+v", m)
		}
		if _, giveBack, err := c.stage(t.Context(), slow, 1); err != nil {
			t.Errorf("its memory came, and %v", err)
		} else {
			giveBack()
		}
	})
}

// What a process wants that is large comes though the same process goes on to want small ones.
func TestALargeWantIsNotOvertakenByItsOwnProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, client := newStaging(1), doorserver.Client{User: 1, Process: 10}
		first, err := hold(t, s, client, stagingToken)
		if err != nil {
			t.Fatal(err)
		}
		order := make(chan int, 2)
		for _, tokens := range []int{processTokens, 1} { // for the second there would be enough
			go func() {
				giveBack, err := hold(t, s, client, uint64(tokens)*stagingToken)
				if err != nil {
					t.Error(err)
					return
				}
				order <- tokens
				giveBack()
			}()
			synctest.Wait()
		}
		if _, err := hold(t, s, doorserver.Client{User: 1, Process: 11}, stagingToken); err != nil || len(order) > 0 {
			t.Errorf("%d are served before the large one, another process: %v", len(order), err)
		}
		first()
		if first, second := <-order, <-order; first != processTokens || second != 1 {
			t.Errorf("%d tokens came before %d", first, second)
		}
	})
}
