package agent_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"meridian/kv"
	"meridian/move/agent"
	"meridian/move/fabric"
)

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

// Between two fabrics nothing touches memory: a cancel needs no consent,
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
	if err := p.a.Close(soon(t)); err != nil { // waits for the attempts
		t.Fatal(err)
	}
	select {
	case <-secondPosts:
		t.Error("posted after the end")
	default:
	}
}

// What a fabric prepares for a post that was cancelled meanwhile, of a request
// that was released, is given back.
func TestCancelWhileTheSecondPrepares(t *testing.T) {
	first, posts := hold()
	second, _ := hold()
	preparing, release := make(chan struct{}), make(chan struct{})
	second.prepare = func() {
		close(preparing)
		<-release
	}
	p := couple(t, twoFlaky(first, second)...)
	tr := p.post(t, agent.PostOptions{})
	(<-posts).finish(fabric.NotSubmitted, fabric.ErrPeerGone)
	<-preparing
	if err := tr.Cancel(soon(t)); err != nil {
		t.Fatal(err)
	}
	p.request.Release()
	close(release)
	if err := p.a.Close(soon(t)); err != nil { // waits for the attempts
		t.Fatal(err)
	}
	if n := p.a.arena.References(); n != 0 {
		t.Errorf("%d references are left", n)
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
		t.Error("the attempts went on")
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
		t.Error("the attempts went on")
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
	done, inDoubt := 0, make(map[kv.ID]bool)
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
