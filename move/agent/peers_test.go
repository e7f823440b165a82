package agent_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"meridian/kv"
	"meridian/move/agent"
	"meridian/move/fabric"
)

// town is agents that find one another by name, and how often they did.
type town struct {
	mu      sync.Mutex // protects the rest
	agents  map[string]*side
	lookUps int
	gone    []kv.Member
}

func (w *town) add(t *testing.T, name string) *side {
	t.Helper()
	s := start(t, agent.Options{Name: name})
	w.mu.Lock()
	defer w.mu.Unlock()
	w.agents[name] = s
	return s
}

// peers is how one of them reaches the others.
func (w *town) peers(a *side, maxInFlight int) *agent.Peers {
	return agent.NewPeers(a.Agent, agent.PeersOptions{
		MaxInFlight: maxInFlight,
		Find: func(_ context.Context, name string) (*agent.Peer, error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.lookUps++
			if w.agents[name] == nil {
				return nil, fmt.Errorf("no agent %q", name)
			}
			return a.LoadMetadata(w.agents[name].MetadataBlob())
		},
		Gone: func(m kv.Member) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.gone = append(w.gone, m)
		},
	})
}

func member(s *side) kv.Member { return kv.Member{Name: s.Name(), Incarnation: s.Incarnation()} }

func TestPeersAreLookedUpWhenNeeded(t *testing.T) {
	w := &town{agents: make(map[string]*side)}
	a, b := w.add(t, "a"), w.add(t, "b")
	peers := w.peers(a, 0)
	tell := func(s *side, lookUps int) {
		t.Helper()
		if err := peers.Tell(soon(t), member(s), []byte("hello")); err != nil {
			t.Fatal(err)
		}
		if n := <-s.Notifications(); string(n.Payload) != "hello" || n.From != "a" {
			t.Errorf("got %+v", n)
		}
		if w.lookUps != lookUps {
			t.Errorf("looked up %d times, want %d", w.lookUps, lookUps)
		}
	}
	tell(b, 1)
	tell(b, 1)
	tell(a, 1) // itself
	if err := a.Forget(soon(t), "b"); err != nil {
		t.Fatal(err)
	}
	tell(b, 2)

	// What is registered later is found, too.
	if err := b.Deregister(soon(t), b.region.ID); err != nil {
		t.Fatal(err)
	}
	later, err := b.Register(b.arena.Section, "later")
	if err != nil {
		t.Fatal(err)
	}
	var tried int
	err = peers.With(soon(t), member(b), func(p *agent.Peer) error {
		tried++
		part := fabric.Part{Region: later.ID, Epoch: later.Epoch}
		if err := part.Spans.Add(0, block); err != nil {
			return err
		}
		_, err := p.RemoteSpans(fabric.List{part})
		return err
	})
	if err != nil || tried != 2 || w.lookUps != 3 {
		t.Errorf("tried %d times, looked up %d times: %v", tried, w.lookUps, err)
	}
	// Other failures are the caller's.
	failed := errors.New("something else")
	if err := peers.With(soon(t), member(b), func(*agent.Peer) error { return failed }); !errors.Is(err, failed) || w.lookUps != 3 {
		t.Errorf("looked up %d times: %v", w.lookUps, err)
	}
	if err := peers.Tell(soon(t), kv.Member{Name: "stranger"}, nil); err == nil || len(w.gone) != 0 {
		t.Errorf("told an agent that is not known: %v; gone are %v", err, w.gone)
	}
}

func TestPeersTellWhoIsGone(t *testing.T) {
	w := &town{agents: make(map[string]*side)}
	a, b := w.add(t, "a"), w.add(t, "b")
	peers := w.peers(a, 0)
	if err := peers.Tell(soon(t), member(b), nil); err != nil {
		t.Fatal(err)
	}
	if err := b.Close(soon(t)); err != nil {
		t.Fatal(err)
	}
	reborn := w.add(t, "b")
	if err := peers.Tell(soon(t), member(reborn), nil); err != nil {
		t.Fatal(err)
	}
	if len(w.gone) != 0 {
		t.Errorf("gone are %v before one was wanted that is", w.gone)
	}
	if err := peers.Tell(soon(t), member(b), nil); !errors.Is(err, fabric.ErrStalePeer) || !slices.Equal(w.gone, []kv.Member{member(b)}) {
		t.Errorf("told one that is gone: %v; gone are %v", err, w.gone)
	}
}

// A peer that does not answer keeps a bounded number of messages waiting, and
// no other peer's.
func TestPeersBoundWhatIsOnItsWay(t *testing.T) {
	w := &town{agents: make(map[string]*side)}
	a, b := w.add(t, "a"), w.add(t, "b")
	asked, answer := make(chan struct{}), make(chan struct{})
	peers := agent.NewPeers(a.Agent, agent.PeersOptions{
		MaxInFlight: 2,
		Find: func(_ context.Context, name string) (*agent.Peer, error) {
			if name == "slow" {
				asked <- struct{}{}
				<-answer
				return nil, errors.New("no answer")
			}
			return a.LoadMetadata(b.MetadataBlob())
		},
	})
	slow := kv.Member{Name: "slow"}
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() {
			if err := peers.Tell(soon(t), slow, nil); err == nil || errors.Is(err, fabric.ErrBusy) {
				t.Errorf("got %v", err)
			}
		})
		<-asked
	}
	if err := peers.Tell(soon(t), slow, nil); !errors.Is(err, fabric.ErrBusy) {
		t.Errorf("a third message: %v", err)
	}
	if err := peers.Tell(soon(t), member(b), nil); err != nil {
		t.Errorf("a message to another: %v", err)
	}
	close(answer)
	all.Wait()
	go func() { <-asked }()
	if err := peers.Tell(soon(t), slow, nil); err == nil || errors.Is(err, fabric.ErrBusy) {
		t.Errorf("after the others have failed: %v", err)
	}
}

func TestPeersHearHowAPostEnded(t *testing.T) {
	w := &town{agents: make(map[string]*side)}
	a, b := w.add(t, "a"), w.add(t, "b")
	listen(t, b, "FULL", agent.InboxLimits{Count: 1})
	peers := w.peers(a, 1)
	ended := make(chan error, 1)
	for i, want := range []error{nil, fabric.ErrBusy} { // one is never taken
		payload := []byte("FULL of one")
		if err := peers.Post(soon(t), member(b), payload, func(err error) { ended <- err }); err != nil {
			t.Fatalf("post %d: %v", i, err)
		}
		clear(payload) // ours again
		if err := <-ended; !errors.Is(err, want) {
			t.Errorf("post %d ended with %v, want %v", i, err, want)
		}
	}
	stranger := kv.Member{Name: "stranger", Incarnation: agent.NewID()}
	for range 2 { // what was not posted is not on its way
		err := peers.Post(soon(t), stranger, []byte("FULL"), func(error) { t.Error("it ended, and never began") })
		if err == nil || errors.Is(err, fabric.ErrBusy) {
			t.Errorf("a post to a stranger: %v", err)
		}
	}
}
