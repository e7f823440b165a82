package store_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"

	"meridian/agent"
	"meridian/kv"
	"meridian/store"
	"meridian/store/protocol"
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
				}
				_ = peers.Tell(ctx, to, protocol.AppendMessage(nil, n+1, questions[n/16%uint64(len(questions))])) // refused or not
			}
		})
	}
	return func() {
		cancel()
		senders.Wait()
		if err := a.Close(soon(c.t)); err != nil {
			c.t.Error(err)
		}
	}
}

// An agent that asks without end and takes no answer has its share of an owner: the
// others are answered, and what waits for it is bounded.
func TestAPeerThatFloods(t *testing.T) {
	c := newCell(t, "tcp")
	owner := c.start("owner", keeps(64<<20), candidate)
	client := c.start("client")
	var names [][]byte
	for i := range 100 {
		key := fmt.Sprint("k", i)
		mustPut(t, client, key, 160000, store.PutOptions{})
		name, err := client.Name("", key)
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, name)
	}
	stop := c.flood(owner, names)
	defer stop()
	eventually(t, "answers that the flood does not take", func() bool { return owner.Metrics().MessagesLost > 100 })
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
