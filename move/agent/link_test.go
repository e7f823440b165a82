package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"meridian/member/directory"
	"meridian/member/directory/memdir"
	"meridian/move/agent"
	"meridian/move/fabric"
)

// A new incarnation ends the old one's links at once and in the background: not
// even a link that does not end keeps the news waiting.
func TestRebornPeerLosesItsLinks(t *testing.T) {
	closing, release := make(chan struct{}), make(chan struct{})
	first, posts := hold()
	first.close = sync.OnceFunc(func() {
		close(closing)
		<-release
	})
	p := couple(t, first.open)
	tr := p.post(t, agent.PostOptions{})
	h := <-posts
	reborn := start(t, agent.Options{Name: "b", Fabrics: []agent.Opener{first.open}})
	fresh, err := p.a.LoadMetadata(reborn.MetadataBlob())
	if err != nil {
		t.Fatal(err)
	}
	<-closing
	select {
	case <-tr.Done():
		t.Error("over before its link is")
	default:
	}
	h.finish(fabric.NotSubmitted, fabric.ErrPeerGone) // as its link would
	over(t, p, tr, fabric.NotSubmitted, fabric.ErrPeerGone)
	local, remote := lists(t, p.a, fresh, reborn, blocks)
	next, err := mustPrepare(t, p.a, local, remote).Post(t.Context(), agent.PostOptions{})
	if err != nil {
		t.Fatal(err)
	}
	(<-posts).finish(fabric.Done, nil)
	if err := next.Await(soon(t)); err != nil {
		t.Error(err)
	}
	hurried, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := p.a.Close(hurried); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("closed while a link is still ending: %v", err)
	}
	close(release)
	if err := p.a.Close(soon(t)); err != nil {
		t.Errorf("closing again: %v", err)
	}
	if _, open := <-p.a.Notifications(); open {
		t.Error("the agent is closed, its notifications are not")
	}
}

// The old links end for real: what they carried ends with them.
func TestRebornPeerEndsWhatRuns(t *testing.T) {
	p := couple(t, overTCP)
	transfer(t, p.request, agent.PostOptions{})
	links := make(chan error, 1)
	go func() {
		for p.peer.Notify(soon(t), nil) == nil {
			<-p.b.Notifications()
		}
		links <- p.peer.Notify(soon(t), nil)
	}()
	reborn := start(t, agent.Options{Name: "b"})
	if _, err := p.a.LoadMetadata(reborn.MetadataBlob()); err != nil {
		t.Fatal(err)
	}
	if err := <-links; !errors.Is(err, fabric.ErrStalePeer) {
		t.Errorf("the old link: %v", err)
	}
}

// Only callers that want something from the network wait for it.
func TestConnectingBlocksNobodyElse(t *testing.T) {
	connecting, release, closed := make(chan struct{}, 4), make(chan struct{}), make(chan struct{}, 4)
	first := &script{connect: func(context.Context) error {
		connecting <- struct{}{}
		<-release
		return nil
	}, close: func() { closed <- struct{}{} }}
	p := couple(t, first.open)
	posted := make(chan error, 2)
	post := func() {
		_, err := p.request.Post(context.Background(), agent.PostOptions{})
		posted <- err
	}
	go post()
	<-connecting
	go post() // waits for the same link
	impatient, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
	defer cancel()
	if _, err := p.request.Post(impatient, agent.PostOptions{}); !errors.Is(err, fabric.ErrDeadline) {
		t.Errorf("waited beyond its deadline: %v", err)
	}
	if again, err := p.a.LoadMetadata(p.b.MetadataBlob()); err != nil || again != p.peer || len(p.peer.Regions()) != 1 {
		t.Errorf("%v", err)
	}
	reborn := start(t, agent.Options{Name: "b", Fabrics: []agent.Opener{first.open}})
	if _, err := p.a.LoadMetadata(reborn.MetadataBlob()); err != nil {
		t.Fatal(err)
	}
	close(release)
	for range 2 {
		if err := <-posted; !errors.Is(err, fabric.ErrStalePeer) {
			t.Errorf("connected to a peer that was replaced meanwhile: %v", err)
		}
	}
	<-closed // no caller wants the link any more
	if len(connecting) != 0 {
		t.Error("two connected at a time")
	}
}

// Who gives up connecting does not speak for those who wait.
func TestWaitersConnectThemselves(t *testing.T) {
	var tries atomic.Int32
	connecting := make(chan struct{}, 2)
	first := &script{connect: func(ctx context.Context) error {
		connecting <- struct{}{}
		if tries.Add(1) == 1 {
			<-ctx.Done()
			return ctx.Err()
		}
		return nil
	}}
	p := couple(t, first.open)
	ctx, giveUp := context.WithCancel(t.Context())
	gaveUp := make(chan error, 1)
	go func() {
		_, err := p.request.Post(ctx, agent.PostOptions{})
		gaveUp <- err
	}()
	<-connecting
	waiting := &observed{Context: soon(t), asked: make(chan struct{}, 8)}
	patient := make(chan error, 1)
	go func() { patient <- p.peer.Notify(waiting, nil) }()
	<-waiting.asked
	giveUp()
	if err := <-gaveUp; !errors.Is(err, context.Canceled) {
		t.Errorf("gave up with %v", err)
	}
	if err := <-patient; err != nil {
		t.Error(err)
	}
}

// observed tells when a caller begins to wait for its end.
type observed struct {
	context.Context
	asked chan struct{}
}

func (o *observed) Done() <-chan struct{} {
	select {
	case o.asked <- struct{}{}:
	default:
	}
	return o.Context.Done()
}

func TestForgottenPeer(t *testing.T) {
	first, posts := hold()
	p := couple(t, first.open, overSteady)
	tr := p.post(t, agent.PostOptions{})
	h := <-posts
	if err := p.a.Forget(t.Context(), "b"); err != nil {
		t.Fatal(err)
	}
	h.finish(fabric.NotSubmitted, fabric.ErrClosed)
	over(t, p, tr, fabric.NotSubmitted, agent.ErrForgotten)
	if err := p.peer.Notify(t.Context(), nil); !errors.Is(err, agent.ErrForgotten) {
		t.Errorf("notified a peer that was forgotten: %v", err)
	}
	if err := p.a.Forget(t.Context(), "b"); err == nil {
		t.Error("forgot an agent that was forgotten before")
	}
	again, err := p.a.LoadMetadata(p.b.MetadataBlob())
	if err != nil || again == p.peer {
		t.Fatalf("%v", err)
	}
	if err := again.Notify(t.Context(), nil); err != nil {
		t.Error(err)
	}
}

// A notification goes to another fabric only if the first has not sent it.
func TestNotifyOnce(t *testing.T) {
	for name, c := range map[string]struct {
		notify func(send func() error) error
		times  int
		want   error
	}{
		"lost after it was sent": {func(send func() error) error {
			return errors.Join(send(), fmt.Errorf("%w: before it answered", fabric.ErrPeerGone))
		}, 1, fabric.ErrPeerGone},
		"never connected": {func(func() error) error {
			return &fabric.Error{Op: "connect", Subject: "b", Err: fabric.ErrPeerGone}
		}, 1, nil},
		"not supported": {func(func() error) error { return fabric.ErrUnsupported }, 1, nil},
	} {
		t.Run(name, func(t *testing.T) {
			first := &script{notify: c.notify}
			p := couple(t, first.open, overSteady)
			if err := p.peer.Notify(soon(t), []byte("x")); !errors.Is(err, c.want) {
				t.Errorf("got %v, want %v", err, c.want)
			}
			notified(t, p.b, c.times)
		})
	}
}

// A Peer learns while others use it; under the race detector this fails when
// a reader looks without the lock.
func TestLearningWhileNotifying(t *testing.T) {
	p := couple(t, overTCP)
	blob := p.b.MetadataBlob()
	var all sync.WaitGroup
	all.Go(func() {
		for range 50 {
			if _, err := p.a.LoadMetadata(blob); err != nil {
				t.Error(err)
			}
		}
	})
	for range 50 {
		if err := p.peer.Notify(soon(t), nil); err != nil {
			t.Error(err)
		}
		<-p.b.Notifications()
	}
	all.Wait()
}

// A fabric that is open may be asked for metadata before the next one is.
func TestMetadataDuringOpen(t *testing.T) {
	var asking sync.WaitGroup
	eager := func(ctx context.Context, self agent.Self) (fabric.Fabric, error) {
		asking.Go(func() {
			for range 100 {
				self.Metadata()
			}
		})
		return overTCP(ctx, self)
	}
	start(t, agent.Options{Name: "a", Fabrics: []agent.Opener{eager, overSteady}})
	asking.Wait()
	_, err := agent.Open(t.Context(), agent.Options{Name: "twice", Fabrics: []agent.Opener{overTCP, overTCP}})
	if err == nil || !strings.Contains(err.Error(), `two fabrics are called "tcp"`) {
		t.Errorf("got %v", err)
	}
}

// Another that answers at an address that the directory has is not the peer.
func TestFindRefusesOthers(t *testing.T) {
	d, err := memdir.New(memdir.Options{}).Open(memdir.ClientOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close(context.Background()) })
	lease, err := d.Grant(t.Context(), directory.LeaseOptions{})
	if err != nil {
		t.Fatal(err)
	}
	a, c := start(t, agent.Options{Name: "a", Directory: d}), start(t, agent.Options{Name: "c", Directory: d})
	standing, err := d.Get(t.Context(), agent.AgentKey("c"))
	if err != nil {
		t.Fatal(err)
	}
	write := func(name, incarnation string) {
		t.Helper()
		var r agent.AgentRecord
		if err := json.Unmarshal(standing.Value, &r); err != nil {
			t.Fatal(err)
		}
		if r.Name = name; incarnation != "" {
			r.Incarnation = incarnation
		}
		value, _ := json.Marshal(r)
		if _, err := d.Create(t.Context(), directory.Entry{Key: agent.AgentKey(name), Value: value, Lease: lease}); err != nil {
			t.Fatal(err)
		}
	}
	write("b", "") // b was here; now it is c's address
	if p, err := a.Find(t.Context(), "b"); !errors.Is(err, fabric.ErrStalePeer) || !strings.Contains(err.Error(), "c of "+c.Incarnation().String()) {
		t.Errorf("found %+v, %v", p, err)
	}
	write("long", strings.Repeat("f", 1<<15))
	if p, err := a.Find(t.Context(), "long"); err == nil || len(err.Error()) > 2*fabric.MaxTold {
		t.Errorf("found %+v, with an error of %d bytes", p, len(fmt.Sprint(err)))
	}
	if err := a.Forget(t.Context(), "c"); err == nil {
		t.Error("the stranger was let in")
	}
	if p, err := a.Find(t.Context(), "c"); err != nil || p.Incarnation != c.Incarnation() {
		t.Errorf("found %+v, %v", p, err)
	}
}
