package agent_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"meridian/agent"
	"meridian/fabric"
	"meridian/mem"
	"meridian/mrdn"
)

// soon bounds what must not take long.
func soon(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
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

func TestEveryFabricFails(t *testing.T) {
	first, posts := hold()
	second := &script{connect: func(context.Context) error { return fmt.Errorf("%w: today", fabric.ErrRefused) }}
	p := couple(t, twoFlaky(first, second)...)
	tr := p.post(t, agent.PostOptions{})
	(<-posts).finish(fabric.NotSubmitted, fabric.ErrPeerGone)
	over(t, p, tr, fabric.NotSubmitted, fabric.ErrPeerGone)
	over(t, p, tr, fabric.NotSubmitted, fabric.ErrRefused)
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
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	tr, err := p.request.Post(ctx, agent.PostOptions{})
	if err != nil {
		t.Fatal(err)
	}
	(<-posts).finish(fabric.NotSubmitted, fabric.ErrPeerGone)
	over(t, p, tr, fabric.NotSubmitted, fabric.ErrDeadline)
}

func TestCancelOnTheFirstFabric(t *testing.T) {
	first, posts := hold()
	p := couple(t, first.open, overSteady)
	tr := p.post(t, agent.PostOptions{})
	<-posts
	if err := tr.Cancel(soon(t)); err != nil {
		t.Fatal(err)
	}
	over(t, p, tr, fabric.NotSubmitted, fabric.ErrCancelled)
	if r := tr.Record(); len(r.Attempts) != 1 {
		t.Errorf("went on after a cancel: %+v", r)
	}
}

// Between two fabrics nothing touches memory: a cancel needs nobody's consent,
// not even that of a fabric that does not listen.
func TestCancelBetweenTwoFabrics(t *testing.T) {
	first, posts := hold()
	connecting, release := make(chan struct{}), make(chan struct{})
	second, secondPosts := hold()
	second.connect = func(context.Context) error {
		close(connecting)
		<-release
		return nil
	}
	p := couple(t, twoFlaky(first, second)...)
	tr := p.post(t, agent.PostOptions{Notification: []byte("never")})
	(<-posts).finish(fabric.NotSubmitted, fabric.ErrPeerGone)
	<-connecting
	if state, err := tr.Status(); state != fabric.Admitted || err != nil {
		t.Errorf("between two fabrics: %v, %v", state, err)
	}
	if err := tr.Cancel(soon(t)); err != nil {
		t.Fatal(err)
	}
	over(t, p, tr, fabric.NotSubmitted, fabric.ErrCancelled)
	close(release)
	if err := p.a.Close(soon(t)); err != nil { // waits for the search
		t.Fatal(err)
	}
	select {
	case <-secondPosts:
		t.Error("posted after the end")
	default:
	}
}

// While a fabric is posting, memory may be touched any moment: the cancel waits
// for the post and ends what came of it.
func TestCancelDuringPost(t *testing.T) {
	for _, sync := range []bool{true, false} {
		t.Run(fmt.Sprintf("first attempt %v", sync), func(t *testing.T) {
			first, posts := hold()
			slow, slowPosts := hold()
			entered := make(chan struct{})
			reallyPost := slow.post
			slow.post = func(ctx context.Context, p *fabric.Prepared, o fabric.PostOptions) (*fabric.Transfer, error) {
				close(entered)
				<-ctx.Done()
				return reallyPost(ctx, p, o)
			}
			var p *pair
			posted := make(chan *agent.Transfer, 1)
			o := agent.PostOptions{ID: agent.NewID()}
			if sync {
				p = couple(t, twoFlaky(slow, first)...)
				go func() {
					tr, _ := p.request.Post(context.Background(), o)
					posted <- tr
				}()
				<-entered
				posted <- p.post(t, o) // repeated: the same transfer, at once
			} else {
				p = couple(t, twoFlaky(first, slow)...)
				posted <- p.post(t, o)
				(<-posts).finish(fabric.NotSubmitted, fabric.ErrPeerGone)
				<-entered
			}
			tr := <-posted
			if err := tr.Cancel(soon(t)); err != nil {
				t.Fatal(err)
			}
			over(t, p, tr, fabric.NotSubmitted, fabric.ErrCancelled)
			if state, _ := (<-slowPosts).transfer.Status(); !state.Ended() {
				t.Errorf("the transfer is over, and its fabric is %v", state)
			}
			if sync && <-posted != tr {
				t.Error("two transfers of one id")
			}
		})
	}
}

// A fabric that fails because of the cancel is no reason to try another:
// neither while it runs,
func TestCancelIsNoFailure(t *testing.T) {
	first, posts := hold()
	first.stop = func(h *held, _ error) { h.finish(fabric.NotSubmitted, fabric.ErrPeerGone) }
	second := &script{connect: func(context.Context) error {
		t.Error("the search went on")
		return nil
	}}
	p := couple(t, twoFlaky(first, second)...)
	tr := p.post(t, agent.PostOptions{})
	<-posts
	if err := tr.Cancel(soon(t)); err != nil {
		t.Fatal(err)
	}
	over(t, p, tr, fabric.NotSubmitted, fabric.ErrCancelled)
}

// nor while it is posted.
func TestCancelEndsTheSearch(t *testing.T) {
	entered := make(chan struct{})
	first := &script{post: func(ctx context.Context, _ *fabric.Prepared, _ fabric.PostOptions) (*fabric.Transfer, error) {
		close(entered)
		<-ctx.Done()
		return nil, fmt.Errorf("%w: %w", fabric.ErrPeerGone, ctx.Err())
	}}
	second := &script{connect: func(context.Context) error {
		t.Error("the search went on")
		return nil
	}}
	p := couple(t, twoFlaky(first, second)...)
	o := agent.PostOptions{ID: agent.NewID()}
	refused := make(chan error, 1)
	go func() {
		_, err := p.request.Post(context.Background(), o)
		refused <- err
	}()
	<-entered
	tr := p.post(t, o)
	if err := tr.Cancel(soon(t)); err != nil {
		t.Fatal(err)
	}
	over(t, p, tr, fabric.NotSubmitted, fabric.ErrCancelled)
	if err := <-refused; !errors.Is(err, fabric.ErrCancelled) {
		t.Errorf("Post returned %v", err)
	}
}

func TestCancelOnTheSecondFabric(t *testing.T) {
	first, posts := hold()
	second, secondPosts := hold()
	p := couple(t, twoFlaky(first, second)...)
	tr := p.post(t, agent.PostOptions{})
	(<-posts).finish(fabric.NotSubmitted, fabric.ErrPeerGone)
	<-secondPosts
	if err := tr.Cancel(soon(t)); err != nil {
		t.Fatal(err)
	}
	over(t, p, tr, fabric.NotSubmitted, fabric.ErrCancelled)
	if r := tr.Record(); len(r.Attempts) != 2 || r.Attempts[1].State != fabric.NotSubmitted {
		t.Errorf("%+v", r)
	}
}

// A cancel, a failure and the next attempt meet in every order: there is one
// end, with one notification if it is Done, and no memory is held after it.
func TestCancelRacesTheNextFabric(t *testing.T) {
	first, posts := hold()
	p := couple(t, first.open, overSteady)
	done, inDoubt := 0, make(map[mrdn.ID]bool)
	for i := range 300 {
		tr := p.post(t, agent.PostOptions{Notification: []byte{byte(i)}})
		h := <-posts
		var both sync.WaitGroup
		both.Go(func() { h.finish(fabric.NotSubmitted, fabric.ErrPeerGone) })
		pause := time.Duration(rand.IntN(400)) * time.Microsecond
		both.Go(func() {
			time.Sleep(pause)
			if err := tr.Cancel(soon(t)); err != nil {
				t.Error(err)
			}
		})
		both.Wait()
		select {
		case <-tr.Done():
		default:
			t.Fatal("Cancel returned before the end")
		}
		switch state, err := tr.Status(); {
		case state == fabric.Done && err == nil:
			done++
			n := <-p.b.Notifications()
			for inDoubt[n.Transfer] { // it may come, once
				delete(inDoubt, n.Transfer)
				n = <-p.b.Notifications()
			}
			if n.Transfer != tr.ID {
				t.Fatalf("notified of %s", n.Transfer)
			}
		case state == fabric.NotSubmitted && err != nil:
		case state == fabric.InDoubt && errors.Is(err, fabric.ErrCancelled):
			inDoubt[tr.ID] = true
		default:
			t.Fatalf("ended %v, %v", state, err)
		}
	}
	t.Logf("%d of 300 were done before the cancel", done)
	p.request.Release()
	if n := p.a.arena.References(); n != 0 {
		t.Errorf("%d references are left", n)
	}
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

// While another fabric may take it, nobody sees an end.
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

// A post that repeats one which is just being made finds it.
func TestRepeatedPostsMeet(t *testing.T) {
	first := &script{connect: func(context.Context) error {
		time.Sleep(time.Millisecond)
		return nil
	}}
	p := couple(t, first.open)
	o := agent.PostOptions{ID: agent.NewID(), Notification: []byte("once")}
	var all sync.WaitGroup
	var same atomic.Pointer[agent.Transfer]
	for range 8 {
		all.Go(func() {
			tr, err := p.request.Post(soon(t), o)
			if err != nil {
				t.Error(err)
				return
			}
			if was := same.Swap(tr); was != nil && was != tr {
				t.Error("two transfers of one id")
			}
			if err := tr.Await(soon(t)); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	notified(t, p.b, 1)
	if m := p.a.Metrics(); m.Posted != 1 || m.Done != 1 {
		t.Errorf("counted %+v", m)
	}
	local, remote := lists(t, p.a, p.peer, p.b, blocks+1)
	if _, err := mustPrepare(t, p.a, local, remote).Post(t.Context(), o); err == nil || !strings.Contains(err.Error(), "another one") {
		t.Errorf("one id for two requests: %v", err)
	}
}

// What Post refused leaves a record, and its id free.
func TestRefusedPost(t *testing.T) {
	var working atomic.Bool
	first := &script{connect: func(context.Context) error {
		if !working.Load() {
			return fmt.Errorf("%w: not yet", fabric.ErrPeerGone)
		}
		return nil
	}}
	p := coupleOf(t, agent.Options{Fabrics: []agent.Opener{first.open}, Records: 1})
	o := agent.PostOptions{ID: agent.NewID()}
	if _, err := p.request.Post(t.Context(), o); !errors.Is(err, fabric.ErrPeerGone) {
		t.Fatalf("got %v", err)
	}
	if r, err := p.a.Explain(o.ID); err != nil || r.State != fabric.NotSubmitted || !strings.Contains(r.Error, "not yet") {
		t.Errorf("%+v, %v", r, err)
	}
	working.Store(true)
	over(t, p, p.post(t, o), fabric.Done, nil)
	if r, err := p.a.Explain(o.ID); err != nil || r.State != fabric.Done || len(p.a.Transfers()) != 1 {
		t.Errorf("%+v, %v", r, err)
	}
	if m := p.a.Metrics(); m.Posted != 2 || m.Done != 1 || m.Failed != 1 {
		t.Errorf("counted %+v", m)
	}
}

// However many run, each is found: only records of ended ones are limited.
func TestRunningTransfersKeepTheirRecords(t *testing.T) {
	first, posts := hold()
	p := coupleOf(t, agent.Options{Fabrics: []agent.Opener{first.open}, Records: 2})
	a := p.a
	var all []*agent.Transfer
	for range 5 {
		all = append(all, p.post(t, agent.PostOptions{}))
	}
	if again := p.post(t, agent.PostOptions{ID: all[0].ID}); again != all[0] {
		t.Error("a running transfer was forgotten")
	}
	records := a.Transfers()
	if len(records) != 5 || records[0].ID != all[0].ID || records[4].ID != all[4].ID {
		t.Errorf("%d records", len(records))
	}
	for range all {
		(<-posts).finish(fabric.Done, nil)
	}
	if records := a.Transfers(); len(records) != 2 || records[1].ID != all[4].ID {
		t.Errorf("%d records, want the last 2", len(records))
	}
	if _, err := a.Explain(all[0].ID); err == nil {
		t.Error("the oldest is still there")
	}
}
