package store_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"meridian/internal/until"
	"meridian/keep/store"
	"meridian/keep/store/protocol"
	"meridian/kv"
	"meridian/move/agent"
)

// flood asks an owner without end, and takes no answer.
func (c *cell) flood(owner *node, names [][]byte) (stop func()) {
	c.t.Helper()
	a, err := agent.Open(context.Background(), agent.Options{Name: "flood", Fabrics: []agent.Opener{c.opener}})
	if err != nil {
		c.t.Fatal(err)
	}
	c.mu.Lock()
	c.nodes["flood"] = &node{name: "flood", agent: a}
	c.mu.Unlock()
	if _, err := a.Listen(protocol.Magic, agent.InboxLimits{Count: 1}); err != nil {
		c.t.Fatal(err)
	}
	stopAsking := c.askWithoutEnd(a, owner, names)
	return func() {
		stopAsking()
		if err := a.Close(soon(c.t)); err != nil {
			c.t.Error(err)
		}
	}
}

// askWithoutEnd has an agent ask an owner, and not wait for what it answers.
func (c *cell) askWithoutEnd(a *agent.Agent, owner *node, names [][]byte) (stop func()) {
	peers := agent.NewPeers(a, agent.PeersOptions{Find: func(context.Context, string) (*agent.Peer, error) {
		return a.LoadMetadata(owner.agent.MetadataBlob())
	}})
	to := kv.Member{Name: owner.name, Incarnation: owner.agent.Incarnation()}
	ctx, cancel := context.WithCancel(context.Background())
	var senders sync.WaitGroup
	for i := range 16 {
		senders.Go(func() {
			for n := uint64(i); ctx.Err() == nil; n += 16 {
				questions := []protocol.Message{
					&protocol.List{AllTenants: true, Prefix: "none has this"}, &protocol.List{AllTenants: true}, &protocol.Has{Names: names},
					&protocol.Get{Name: names[n%uint64(len(names))]}, &protocol.Get{Name: names[n%uint64(len(names))]}, &protocol.Describe{},
					&protocol.PutFrom{Name: fmt.Append(nil, "\x00flood", n), Source: protocol.Span{Region: 1, Epoch: 1, Length: 300 << 10}},
				}
				_ = peers.Tell(ctx, to, protocol.AppendMessage(nil, n+1, questions[n/16%uint64(len(questions))])) // refused or not
			}
		})
	}
	return func() {
		cancel()
		senders.Wait()
	}
}

// putMany puts so many objects, and returns their names.
func putMany(t *testing.T, client *node, count, size int) (names [][]byte) {
	t.Helper()
	for i := range count {
		key := fmt.Sprint("k", i)
		mustPut(t, client, key, size, store.PutOptions{})
		name, err := client.Name("", key)
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, name)
	}
	return names
}

// An agent that asks without end and takes no answer has its share of an owner: the
// others are answered, and what waits for it is bounded.
func TestAPeerThatFloods(t *testing.T) {
	c := newCell(t, "tcp")
	owner := c.start("owner", keeps(64<<20), candidate)
	client := c.start("client")
	names := putMany(t, client, 100, 160000)
	stop := c.flood(owner, names)
	defer stop()
	until.True(t, "answers that the flood does not take", func() bool { return owner.Metrics().MessagesLost > 100 })
	most := 0
	for i := range 10 {
		mustGet(t, client, fmt.Sprint("k", i), 160000)
		mustPut(t, client, fmt.Sprint("new", i), 1000, store.PutOptions{})
		most = max(most, runtime.NumGoroutine())
	}
	if most > 1500 {
		t.Errorf("%d goroutines for a peer that takes nothing", most)
	}
}

// An owner's word to the master does not wait behind answers. The process that is the
// master has asked for as much as an owner has on its way to one agent, and takes nothing:
// it hears no more answers, and still leases are renewed and keys claimed.
func TestWordsToAMasterThatTakesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCell(t, "inproc")
		master := c.start("master", candidate, shortLease)
		owner := c.start("owner", keeps(64<<20))
		client := c.start("client")
		mustPut(t, client, "k", 1000, store.PutOptions{Pinned: true})
		mustGet(t, master, "k", 1000)
		defer owner.FillOutbox(kv.Member{Name: "master", Incarnation: master.agent.Incarnation()})()
		for i, end := 0, time.Now().Add(3*time.Second); time.Now().Before(end); i++ { // longer than a lease
			time.Sleep(50 * time.Millisecond)
			mustPut(t, client, fmt.Sprint("new", i), 1000, store.PutOptions{})
			if stats, err := client.Stats(soon(t)); err != nil || len(stats.Owners) != 1 || !stats.Owners[0].Answers {
				t.Fatalf("the owner has no lease any more: %+v: %v", stats, err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		if _, err := master.Get(ctx, "k", make([]byte, 1000), store.GetOptions{}); !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("the master heard an answer: %v; its lane was not full", err)
		}
	})
}
