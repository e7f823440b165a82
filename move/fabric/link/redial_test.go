package link

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"meridian/internal/until"
	"meridian/move/fabric"
)

// life is a connection that does nothing.
type life struct{ poster *Poster }

func (l *life) Posting() *Poster { return l.poster }
func (l *life) Wait()            {}

// redialing is a link whose attempts go as the test says.
type redialing struct {
	*Redial
	dials atomic.Int32
	fail  atomic.Pointer[error]
	lost  atomic.Int32
	gate  chan struct{} // an attempt waits for it
}

func newRedialing() *redialing {
	r := &redialing{gate: make(chan struct{})}
	r.Redial = NewRedial(RedialOptions{
		LastBackoff: time.Millisecond, FirstBackoff: time.Millisecond, Lost: func(fabric.Peer, error) { r.lost.Add(1) },
		Dial: func(ctx context.Context) (Connection, error) {
			r.dials.Add(1)
			select {
			case <-r.gate:
			case <-ctx.Done():
				return nil, ctx.Err()
			}
			if fail := r.fail.Load(); fail != nil {
				return nil, *fail
			}
			c := &life{}
			c.poster = NewPoster(PosterOptions{Clock: fabric.SystemClock, MaxTransfers: 1, OnLost: func(err error) { r.Drop(c, err) }})
			return c, nil
		},
	})
	return r
}

// One dials while the others wait, and all get the same connection; a lost one
// is made again, and told of once.
func TestOneDialsForAll(t *testing.T) {
	r := newRedialing()
	var all sync.WaitGroup
	var lives sync.Map
	for range 8 {
		all.Go(func() {
			c, err := r.Connected(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			lives.Store(c, true)
		})
	}
	close(r.gate)
	all.Wait()
	count := 0
	lives.Range(func(any, any) bool { count++; return true })
	if count != 1 || r.dials.Load() != 1 {
		t.Fatalf("%d connections by %d attempts", count, r.dials.Load())
	}
	first, err := r.Connected(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	first.Posting().Lost(errors.New("cut"))
	second, err := r.Connected(t.Context())
	if err != nil || second == first || r.lost.Load() != 1 {
		t.Errorf("after a loss: %v, the same %v, told %d times", err, second == first, r.lost.Load())
	}
	if err := r.Close(t.Context()); err != nil || second.Posting().Gone() == nil || r.lost.Load() != 1 {
		t.Errorf("closed: %v, %v, told %d times", err, second.Posting().Gone(), r.lost.Load())
	}
	if _, err := r.Connected(t.Context()); !errors.Is(err, fabric.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// A caller that waits for another's attempt has a deadline of its own, and a
// connection that comes after Close is ended.
func TestWaitingForAnAttempt(t *testing.T) {
	r := newRedialing()
	var dialing sync.WaitGroup
	dialing.Go(func() {
		if _, err := r.Connected(t.Context()); !errors.Is(err, fabric.ErrClosed) {
			t.Errorf("connected after Close: %v", err)
		}
	})
	until.True(t, "it dials", func() bool { return r.dials.Load() > 0 })
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := r.Connected(ctx); !errors.Is(err, fabric.ErrPeerGone) || r.dials.Load() != 1 {
		t.Errorf("waiting: %v after %d attempts", err, r.dials.Load())
	}
	if err := r.Close(t.Context()); err != nil {
		t.Error(err)
	}
	close(r.gate)
	dialing.Wait()
}

// An attempt that failed is followed by another, and a stale peer is believed
// for a while only.
func TestAttemptsGoOn(t *testing.T) {
	r := newRedialing()
	close(r.gate)
	for _, fail := range []error{errors.New("refused"), fabric.ErrStalePeer} {
		r.fail.Store(&fail)
		if _, err := r.Connected(t.Context()); !errors.Is(err, fail) {
			t.Errorf("%v, want %v", err, fail)
		}
	}
	r.fail.Store(nil)
	until.Well(t, "it is connected", func() string {
		if _, err := r.Connected(t.Context()); err != nil {
			return err.Error()
		}
		return ""
	})
}

// Callers whose deadlines are shorter than the pause between attempts do not keep
// the link from dialing: the pause ends, whether a caller waits for it or not.
func TestHurriedCallersDial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRedialing()
		r.options.FirstBackoff, r.options.LastBackoff = time.Second, 8*time.Second
		close(r.gate)
		refused := errors.New("refused")
		r.fail.Store(&refused)
		hurried := func() error {
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			_, err := r.Connected(ctx)
			return err
		}
		for start := time.Now(); time.Since(start) < time.Minute; {
			if hurried() == nil {
				t.Fatal("connected to a peer that refuses")
			}
		}
		// At 0, 1, 3, 7, 15 and then every 8 seconds; who gave up waiting has not tried.
		if n := r.dials.Load(); n < 9 || n > 11 {
			t.Errorf("%d attempts in a minute", n)
		}
		r.fail.Store(nil)
		for start := time.Now(); hurried() != nil; {
			if time.Since(start) > 9*time.Second {
				t.Fatal("the peer is back, and no caller reaches it")
			}
		}
	})
}
