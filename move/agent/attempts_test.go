package agent_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"meridian/move/agent"
	"meridian/move/fabric"
	"meridian/move/mem"
)

// soon bounds what must not take long.
func soon(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// over demands an end, and that nothing of the transfer is left.
func over(t *testing.T, p *pair, tr *agent.Transfer, state fabric.State, want error) {
	t.Helper()
	err := tr.Await(soon(t))
	if got, _ := tr.Status(); got != state || !errors.Is(err, want) {
		t.Errorf("ended %v, %v; want %v, %v", got, err, state, want)
	}
	p.request.Release()
	if n := p.a.arena.References(); n != 0 {
		t.Errorf("%d references are left", n)
	}
}

func TestGoesOnWithTheNextFabric(t *testing.T) {
	for _, why := range []error{
		fabric.ErrPeerGone, fabric.ErrRefused, fabric.ErrUnsupported, fabric.ErrVersion, fabric.ErrBusy,
		errors.New("something that has no name"),
	} {
		t.Run(why.Error(), func(t *testing.T) {
			first, posts := hold()
			p := couple(t, first.open, overSteady)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			payload := []byte("once")
			o := agent.PostOptions{ID: agent.NewID(), Notification: payload}
			tr, err := p.request.Post(ctx, o)
			if err != nil {
				t.Fatal(err)
			}
			cancel() // a caller's context ends with the call
			payload[0] = 'X'
			h := <-posts
			h.transfer.Advance(fabric.Submitting)
			if state, _ := tr.Status(); state != fabric.Submitting || tr.Record().Fabric != "flaky" {
				t.Errorf("%v on %s", state, tr.Record().Fabric)
			}
			h.finish(fabric.NotSubmitted, fmt.Errorf("%w: on purpose", why))
			over(t, p, tr, fabric.Done, nil)
			p.arrived(t)
			n := <-p.b.Notifications()
			if n.Transfer != o.ID || string(n.Payload) != "once" {
				t.Errorf("notified of %s with %q", n.Transfer, n.Payload)
			}
			notified(t, p.b, 0)
			record, err := p.a.Explain(o.ID)
			if err != nil || record.Fabric != "steady" || len(record.Attempts) != 2 || record.Error != "" {
				t.Fatalf("%+v, %v", record, err)
			}
			if a := record.Attempts[0]; a.Fabric != "flaky" || a.State != fabric.NotSubmitted || !strings.Contains(a.Error, "on purpose") {
				t.Errorf("first attempt: %+v", a)
			}
			text := tr.Explain()
			for _, line := range []string{"attempt 1 flaky: not submitted after", why.Error() + ": on purpose", "attempt 2 steady: done after"} {
				if !strings.Contains(text, line) {
					t.Errorf("%q is not in\n%s", line, text)
				}
			}
			if m := p.a.Metrics(); m.Posted != 1 || m.Done != 1 || m.Failed != 0 {
				t.Errorf("counted %+v", m)
			}
		})
	}
}

// What is wrong everywhere, or may have moved something, is not tried again.
func TestStaysWithWhatNoFabricCures(t *testing.T) {
	for _, c := range []struct {
		state fabric.State
		err   error
	}{
		{fabric.NotSubmitted, fabric.ErrDeadline},
		{fabric.NotSubmitted, fabric.ErrStalePeer},
		{fabric.NotSubmitted, fabric.ErrStaleEpoch},
		{fabric.NotSubmitted, fabric.ErrUnknownRegion},
		{fabric.NotSubmitted, mem.ErrBounds},
		{fabric.NotSubmitted, fabric.ErrGrantRevoked},
		{fabric.InDoubt, fabric.ErrPeerGone},
		{fabric.InDoubt, fabric.ErrChecksum},
	} {
		t.Run(fmt.Sprint(c.state, c.err), func(t *testing.T) {
			first, posts := hold()
			p := couple(t, first.open, overSteady)
			tr := p.post(t, agent.PostOptions{Notification: []byte("never")})
			(<-posts).finish(c.state, c.err)
			over(t, p, tr, c.state, c.err)
			if r := tr.Record(); len(r.Attempts) != 1 || r.Fabric != "flaky" {
				t.Errorf("%+v", r)
			}
			notified(t, p.b, 0)
		})
	}
}

// A record outlives its transfer by thousands of others: whatever a fabric or a
// peer says, little of it is kept.
func TestRecordsKeepLittleOfAnError(t *testing.T) {
	first, posts := hold()
	p := couple(t, first.open)
	tr := p.post(t, agent.PostOptions{})
	(<-posts).finish(fabric.NotSubmitted, fmt.Errorf("%w: %s", fabric.ErrRefused, strings.Repeat("no ", 1<<20)))
	over(t, p, tr, fabric.NotSubmitted, fabric.ErrRefused)
	r := tr.Record()
	if len(r.Error) > fabric.MaxTold || len(r.Attempts[0].Error) > fabric.MaxTold || !strings.Contains(r.Error, "refused by the peer: no no") {
		t.Errorf("the record keeps %d bytes, its attempt %d", len(r.Error), len(r.Attempts[0].Error))
	}
}

func TestEveryFabricFails(t *testing.T) {
	first, posts := hold()
	second := &script{connect: func(context.Context) error { return fmt.Errorf("%w: today", fabric.ErrRefused) }}
	p := couple(t, twoFlaky(first, second)...)
	tr := p.post(t, agent.PostOptions{})
	(<-posts).finish(fabric.NotSubmitted, fabric.ErrPeerGone)
	over(t, p, tr, fabric.NotSubmitted, fabric.ErrPeerGone)
	over(t, p, tr, fabric.NotSubmitted, fabric.ErrRefused)
	if text := tr.Explain(); !strings.Contains(text, "\n  hint      "+fabric.Hint(fabric.ErrPeerGone)+"\n") {
		t.Errorf("no hint in\n%s", text)
	}
	if r := tr.Record(); !strings.Contains(r.Error, "flaky: ") || !strings.Contains(r.Error, "second: ") || len(r.Attempts) != 2 {
		t.Errorf("%+v", r)
	}
}

type renamed struct {
	fabric.Fabric
	name string
}

func (r renamed) Name() string { return r.name }

// twoFlaky makes fabrics "flaky" and "second" of two scripts.
func twoFlaky(first, second *script) []agent.Opener {
	return []agent.Opener{first.open, func(ctx context.Context, self agent.Self) (fabric.Fabric, error) {
		f, err := second.open(ctx, self)
		return renamed{f, "second"}, err
	}}
}

func TestTheDeadlineStaysTheSame(t *testing.T) {
	first, posts := hold()
	second, secondPosts := hold()
	p := couple(t, twoFlaky(first, second)...)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tr, err := p.request.Post(ctx, agent.PostOptions{})
	if err != nil {
		t.Fatal(err)
	}
	(<-posts).finish(fabric.NotSubmitted, fabric.ErrPeerGone)
	h := <-secondPosts
	if want, _ := ctx.Deadline(); !h.deadline.Equal(want) {
		t.Errorf("the second attempt ends %v, the first %v", h.deadline, want)
	}
	h.finish(fabric.Done, nil)
	over(t, p, tr, fabric.Done, nil)
}

func TestDeadlineBetweenTwoFabrics(t *testing.T) {
	first, posts := hold()
	second := &script{connect: func(ctx context.Context) error {
		<-ctx.Done()
		return fmt.Errorf("%w: %w", fabric.ErrPeerGone, ctx.Err())
	}}
	p := couple(t, twoFlaky(first, second)...)
	if err := p.peer.Notify(soon(t), nil); err != nil { // connects the first, which a busy machine may take long for
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	tr, err := p.request.Post(ctx, agent.PostOptions{})
	if err != nil {
		t.Fatal(err)
	}
	(<-posts).finish(fabric.NotSubmitted, fabric.ErrPeerGone)
	over(t, p, tr, fabric.NotSubmitted, fabric.ErrDeadline)
}

// Release waits for the transfer, not for its first fabric.
func TestReleasedRequestGoesOn(t *testing.T) {
	first, posts := hold()
	p := couple(t, first.open, overSteady)
	tr := p.post(t, agent.PostOptions{})
	h := <-posts
	p.request.Release()
	if _, err := p.request.Post(t.Context(), agent.PostOptions{}); !errors.Is(err, fabric.ErrReleased) {
		t.Errorf("posted after Release: %v", err)
	}
	h.finish(fabric.NotSubmitted, fabric.ErrPeerGone)
	if err := tr.Await(soon(t)); err != nil {
		t.Error(err)
	}
	if n := p.a.arena.References(); n != 0 {
		t.Errorf("%d references are left after the last post", n)
	}
	p.arrived(t)
}

func TestReleaseWaitsForTheLastPost(t *testing.T) {
	first, posts := hold()
	p := couple(t, first.open, overSteady)
	var all [3]*agent.Transfer
	for i := range all {
		all[i] = p.post(t, agent.PostOptions{})
	}
	for i, tr := range all {
		(<-posts).finish(fabric.NotSubmitted, fabric.ErrPeerGone)
		if err := tr.Await(soon(t)); err != nil {
			t.Error(err)
		}
		if i == 0 {
			p.request.Release() // both fabrics have prepared by now
		}
		if held := p.a.arena.References() > 0; held != (i < len(all)-1) {
			t.Errorf("after %d of %d posts memory is held: %v", i+1, len(all), held)
		}
	}
}

// While another fabric may take it, Status shows no end.
func TestStatusShowsOneEnd(t *testing.T) {
	first, posts := hold()
	p := couple(t, first.open, overSteady)
	for range 200 {
		tr := p.post(t, agent.PostOptions{})
		h := <-posts
		watched := make(chan fabric.State)
		go func() {
			for {
				if state, _ := tr.Status(); state.Ended() {
					watched <- state
					return
				}
			}
		}()
		h.finish(fabric.NotSubmitted, fabric.ErrPeerGone)
		if state := <-watched; state != fabric.Done {
			t.Fatalf("saw %v, which was not the end", state)
		}
	}
}

func TestRegionLeavesBetweenTwoFabrics(t *testing.T) {
	first, posts := hold()
	p := couple(t, first.open, overSteady)
	tr := p.post(t, agent.PostOptions{})
	h := <-posts
	if err := p.a.Deregister(t.Context(), p.a.region.ID); err != nil {
		t.Fatal(err)
	}
	h.finish(fabric.NotSubmitted, fabric.ErrPeerGone)
	over(t, p, tr, fabric.NotSubmitted, fabric.ErrUnknownRegion)
}

func TestCloseBetweenTwoFabrics(t *testing.T) {
	first, posts := hold()
	connecting := make(chan struct{})
	second := &script{connect: func(ctx context.Context) error {
		close(connecting)
		<-ctx.Done()
		return ctx.Err()
	}}
	p := couple(t, twoFlaky(first, second)...)
	tr := p.post(t, agent.PostOptions{})
	(<-posts).finish(fabric.NotSubmitted, fabric.ErrPeerGone)
	<-connecting
	if err := p.a.Close(soon(t)); err != nil {
		t.Fatal(err)
	}
	select {
	case <-tr.Done():
	default:
		t.Error("the agent is closed, the transfer is not over")
	}
	over(t, p, tr, fabric.NotSubmitted, fabric.ErrClosed)
	if err := p.a.Close(soon(t)); err != nil {
		t.Errorf("closing again: %v", err)
	}
}
