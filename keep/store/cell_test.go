package store_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"meridian/keep/store"
	"meridian/member/directory/memdir"
	"meridian/move/agent"
	"meridian/move/fabric"
	"meridian/move/fabric/host"
	"meridian/move/fabric/inproc"
	"meridian/move/fabric/tcp"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// cell is agents that know one another, each with a store, and a directory.
type cell struct {
	t         testing.TB
	fabric    string
	network   *inproc.Network
	dir       string
	directory *memdir.Store
	prove     func(name string, o *tcp.Options)                // nil, or how agents prove who they are, over tcp
	events    func(name string, e fabric.Events) fabric.Events // nil, or what hears what happens to agents, in process

	mu    sync.Mutex
	nodes map[string]*node
}

type node struct {
	*store.Store
	name      string
	agent     *agent.Agent
	directory *memdir.Client
	stopped   bool
}

func newCell(t testing.TB, fabricName string) *cell {
	dir, err := os.MkdirTemp("", "mrd") // short enough for a socket's address
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return &cell{
		t: t, fabric: fabricName, network: inproc.NewNetwork(), dir: dir,
		directory: memdir.New(memdir.Options{}), nodes: make(map[string]*node),
	}
}

func (c *cell) opener(ctx context.Context, self agent.Self) (fabric.Fabric, error) {
	switch c.fabric {
	case "inproc":
		events := self.Events
		if c.events != nil {
			events = c.events(self.Name, events)
		}
		return inproc.Open(ctx, inproc.Options{
			Network: c.network, Agent: self.Name, Incarnation: self.Incarnation, Guard: self.Guard, Events: events,
		})
	case "host":
		return host.Open(ctx, host.Options{
			Agent: self.Name, Incarnation: self.Incarnation, Dir: c.dir, Guard: self.Guard, Events: self.Events, Logger: self.Logger,
		})
	}
	o := tcp.Options{
		Agent: self.Name, Incarnation: self.Incarnation, Listen: "127.0.0.1:0", Guard: self.Guard, Events: self.Events,
		Metadata: self.Metadata, Logger: self.Logger,
	}
	if c.prove != nil {
		c.prove(self.Name, &o)
	}
	return tcp.Open(ctx, o)
}

// start opens an agent and its store. Leases are so long that a machine which stands
// still for seconds costs none; tests of who dies make theirs short.
func (c *cell) start(name string, change ...func(*store.Options)) *node {
	c.t.Helper()
	a, err := agent.Open(context.Background(), agent.Options{Name: name, Fabrics: []agent.Opener{c.opener}})
	if err != nil {
		c.t.Fatal(err)
	}
	d, err := c.directory.Open(memdir.ClientOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	o := store.Options{
		Agent: a, Directory: d, MasterTTL: 30 * time.Second, Lease: 15 * time.Second,
		Find: func(_ context.Context, name string) (*agent.Peer, error) {
			c.mu.Lock()
			other := c.nodes[name]
			c.mu.Unlock()
			if other == nil {
				return nil, fmt.Errorf("no agent %q", name)
			}
			return a.LoadMetadata(other.agent.MetadataBlob())
		},
	}
	for _, f := range change {
		f(&o)
	}
	n := &node{name: name, agent: a, directory: d}
	c.mu.Lock()
	c.nodes[name] = n
	c.mu.Unlock()
	if n.Store, err = store.Open(soon(c.t), o); err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { n.stop(c.t) })
	return n
}

// operator is a client of the directory without an agent.
func (c *cell) operator() *memdir.Client {
	c.t.Helper()
	d, err := c.directory.Open(memdir.ClientOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() {
		if err := d.Close(context.Background()); err != nil {
			c.t.Error(err)
		}
	})
	return d
}

func keeps(bytes uint64) func(*store.Options) {
	return func(o *store.Options) { o.Owner = &store.OwnerOptions{Bytes: bytes} }
}

func candidate(o *store.Options) { o.Candidate = true }

// An owner that dies is given up soon, by a master with such leases; a master that
// dies is followed soon.
func shortLease(o *store.Options)  { o.Lease = 2 * time.Second }
func shortMaster(o *store.Options) { o.MasterTTL = 2 * time.Second }

func (n *node) stop(t testing.TB) {
	if n.stopped {
		return
	}
	n.stopped = true
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for _, close := range []func(context.Context) error{n.Close, n.agent.Close, n.directory.Close} {
		if err := close(ctx); err != nil {
			t.Errorf("%s: %v", n.name, err)
		}
	}
}

// kill ends a node's agent and cuts it off from the directory: it says no more.
func (n *node) kill(t testing.TB) {
	n.directory.SetOutage(memdir.Refused)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := n.agent.Close(ctx); err != nil {
		t.Errorf("%s: %v", n.name, err)
	}
}

// patience only ends tests that failed: the machine stands still for seconds at times.
const patience = time.Minute

func soon(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// value is bytes that belong to a key.
func value(key string, size int) []byte {
	seed := [32]byte{}
	copy(seed[:], key)
	b := make([]byte, size)
	_, _ = rand.NewChaCha8(seed).Read(b)
	return b
}

func mustPut(t testing.TB, n *node, key string, size int, o store.PutOptions) {
	t.Helper()
	if err := n.Put(soon(t), key, value(key, size), o); err != nil {
		t.Fatalf("put %s of %d: %v", key, size, err)
	}
}

func mustGet(t testing.TB, n *node, key string, size int) {
	t.Helper()
	into := make([]byte, size+10)
	got, err := n.Get(soon(t), key, into, store.GetOptions{})
	if err != nil {
		t.Fatalf("get %s of %d: %v", key, size, err)
	}
	if !bytes.Equal(into[:got], value(key, size)) {
		t.Fatalf("get %s of %d: wrong bytes, %d of them", key, size, got)
	}
}

func mustMiss(t testing.TB, n *node, key string) {
	t.Helper()
	if _, err := n.Get(soon(t), key, make([]byte, 1<<20), store.GetOptions{}); !errors.Is(err, store.ErrMissing) {
		t.Fatalf("get %s: %v, want ErrMissing", key, err)
	}
}
