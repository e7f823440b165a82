package prefix_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"meridian/internal/until"
	"meridian/keep/prefix"
	"meridian/keep/store"
	"meridian/kv"
	"meridian/member/directory/memdir"
	"meridian/move/agent"
	"meridian/move/fabric"
	"meridian/move/fabric/host"
	"meridian/move/fabric/inproc"
	"meridian/move/fabric/tcp"
	"meridian/move/mem"
	"meridian/move/reshard"
	"meridian/move/transceiver"
	"meridian/move/transceiver/handoff"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// cell is agents that know one another, each with a transceiver, a store and a cache.
type cell struct {
	t         testing.TB
	fabric    string
	network   *inproc.Network
	dir       string
	directory *memdir.Store

	mu    sync.Mutex
	nodes map[string]*node
}

type node struct {
	*prefix.Cache
	name        string
	agent       *agent.Agent
	transceiver *transceiver.Transceiver
	store       *store.Store
	directory   *memdir.Client
	stopped     bool

	mu    sync.Mutex
	freed map[kv.ID][]handoff.Event
}

var ticketKey = handoff.Key{7}

func newCell(t testing.TB, fabricName string) *cell {
	dir, err := os.MkdirTemp("", "mrd")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return &cell{t: t, fabric: fabricName, network: inproc.NewNetwork(), dir: dir, directory: memdir.New(memdir.Options{}), nodes: make(map[string]*node)}
}

func (c *cell) opener(ctx context.Context, self agent.Self) (fabric.Fabric, error) {
	switch c.fabric {
	case "inproc":
		return inproc.Open(ctx, inproc.Options{Network: c.network, Agent: self.Name, Incarnation: self.Incarnation, Guard: self.Guard, Events: self.Events})
	case "host":
		return host.Open(ctx, host.Options{Agent: self.Name, Incarnation: self.Incarnation, Dir: c.dir, Guard: self.Guard, Events: self.Events, Logger: self.Logger})
	}
	return tcp.Open(ctx, tcp.Options{
		Agent: self.Name, Incarnation: self.Incarnation, Listen: "127.0.0.1:0", Guard: self.Guard, Events: self.Events, Metadata: self.Metadata, Logger: self.Logger,
	})
}

// nodeOptions of a node: how much it keeps, and what is else.
type nodeOptions struct {
	keeps   uint64
	store   func(*store.Options)
	offload func(*prefix.Options)
}

// start opens an agent with all that stands on it. The first one is the master.
func (c *cell) start(name string, o nodeOptions) *node {
	c.t.Helper()
	a, err := agent.Open(context.Background(), agent.Options{Name: name, Fabrics: []agent.Opener{c.opener}})
	c.must(err)
	n := &node{name: name, agent: a, freed: make(map[kv.ID][]handoff.Event)}
	n.directory, err = c.directory.Open(memdir.ClientOptions{})
	c.must(err)
	find := func(_ context.Context, name string) (*agent.Peer, error) {
		c.mu.Lock()
		other := c.nodes[name]
		c.mu.Unlock()
		if other == nil {
			return nil, fmt.Errorf("no agent %q", name)
		}
		return a.LoadMetadata(other.agent.MetadataBlob())
	}
	c.mu.Lock()
	first := len(c.nodes) == 0
	c.nodes[name] = n
	c.mu.Unlock()
	n.transceiver, err = transceiver.Open(context.Background(), transceiver.Options{Agent: a, TicketKey: ticketKey, MaxHeldFraction: 1, Find: find, Events: n.onEvent, Ended: func(r *handoff.Record) { n.Ended(r) }})
	c.must(err)
	so := store.Options{Agent: a, Directory: n.directory, MasterTTL: 30 * time.Second, Lease: 15 * time.Second, Find: find, Candidate: first}
	if o.keeps > 0 {
		so.Owner = &store.OwnerOptions{Bytes: o.keeps, Prefixes: prefix.Reads}
	}
	if o.store != nil {
		o.store(&so)
	}
	n.store, err = store.Open(soon(c.t), so)
	c.must(err)
	oo := prefix.Options{
		Agent: a, Transceiver: n.transceiver, Store: n.store, TicketKey: ticketKey, Find: find, Events: n.onEvent, FindTimeout: patience, KeepTimeout: patience, LocateTimeout: patience,
	}
	if o.offload != nil {
		o.offload(&oo)
	}
	n.Cache, err = prefix.Open(context.Background(), oo)
	c.must(err)
	c.t.Cleanup(func() { n.stop(c.t) })
	if o.keeps > 0 { // until it has its lease
		until.True(c.t, "an owner answers", func() bool {
			_, err := n.store.Locate(soon(c.t), "nothing", store.LocateOptions{Preferred: name})
			return err != nil
		})
	}
	return n
}

func (c *cell) must(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

func (n *node) onEvent(e handoff.Event) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if e.As == handoff.Source && e.Kind == handoff.Freed {
		n.freed[e.Transfer] = append(n.freed[e.Transfer], e)
	}
}

func (n *node) stop(t testing.TB) {
	if n.stopped {
		return
	}
	n.stopped = true
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for _, end := range []func(context.Context) error{n.Close, n.transceiver.Close, n.store.Close, n.agent.Close, n.directory.Close} {
		if err := end(ctx); err != nil {
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

// patience only ends tests that failed.
const patience = time.Minute

func soon(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// engine is one of a node, with real memory.
type engine struct {
	handoff.Engine
	node   *node
	memory []*mem.Arena // by rank
}

type shape struct {
	tp, pp, blockTokens, blocks int // pp 0 is 1
	layout                      string
}

var geometry = kv.Uniform(3, kv.Layer{KVHeads: 4, HeadDim: 8}, kv.BFloat16)

func (c *cell) engine(id string, s shape, n *node) *engine {
	c.t.Helper()
	layout, err := kv.ParseLayout(s.layout)
	c.must(err)
	e := &engine{node: n, Engine: handoff.Engine{ID: id, Side: reshard.Side{
		Geometry: geometry, Parallelism: kv.Split(len(geometry.Layers), s.tp, max(1, s.pp)), Layout: layout, BlockTokens: s.blockTokens, Blocks: s.blocks,
	}}}
	sizes, err := e.Side.RankBytes()
	c.must(err)
	for _, size := range sizes {
		arena, err := mem.NewArena(mem.ArenaOptions{Name: id, SizeBytes: uint64(size), NUMANode: -1})
		c.must(err)
		c.t.Cleanup(func() { c.must(arena.Close(context.Background())) })
		region, err := n.agent.Register(arena.Section, id)
		c.must(err)
		e.memory = append(e.memory, arena)
		e.Ranks = append(e.Ranks, handoff.Rank{
			Agent: kv.Member{Name: n.name, Incarnation: n.agent.Incarnation()}, Memory: handoff.Memory{{Region: region.ID, Epoch: region.Epoch, Length: uint64(size)}},
		})
	}
	c.must(n.transceiver.Join(e.Engine))
	c.must(n.Join(id, e.Side))
	return e
}

// each visits every byte of a request's tokens in all ranks, with what it should hold: it
// is placed by the layout alone, and made of the prompt.
func (e *engine) each(blocks []uint32, p handoff.Content, tokens kv.TokenRange, visit func(at *byte, want byte)) {
	s := &e.Side
	for number := range e.memory {
		rank := s.Parallelism.Rank(number)
		firstLayer, endLayer := s.Parallelism.Layers(rank.PP)
		for layer := firstLayer; layer < endLayer; layer++ {
			l := s.Geometry.Layers[layer]
			firstHead, endHead := s.Parallelism.Heads(rank.TP, l.KVHeads)
			strides, err := s.Layout.Strides(kv.Extents{
				Layers: endLayer - firstLayer, Blocks: s.Blocks, Parts: l.Factor(), Heads: endHead - firstHead, Tokens: s.BlockTokens, Elements: l.HeadDim,
			})
			if err != nil {
				panic(err)
			}
			for token := tokens.Start; token < tokens.End; token++ {
				for part := range l.Factor() {
					for head := firstHead; head < endHead; head++ {
						for element := range l.HeadDim {
							at := 2 * uint64(strides.Offset(kv.Point{
								Layers: layer - firstLayer, Blocks: int(blocks[token/s.BlockTokens]), Parts: part, Heads: head - firstHead, Tokens: token % s.BlockTokens, Elements: element,
							}))
							for i := range 2 {
								visit(&e.memory[number].Bytes(at+uint64(i), 1)[0], byte(int(p.Tokens[token])*11+layer*31+part*17+head*13+element*3+i*5+1))
							}
						}
					}
				}
			}
		}
	}
}

func (e *engine) fill(blocks []uint32, p handoff.Content) {
	e.each(blocks, p, kv.TokenRange{End: len(p.Tokens)}, func(at *byte, want byte) { *at = want })
}

func (e *engine) wrong(blocks []uint32, p handoff.Content, tokens kv.TokenRange) (count int) {
	e.each(blocks, p, tokens, func(at *byte, want byte) {
		if *at != want {
			count++
		}
	})
	return count
}

// blocksFor takes so many blocks from the end of an engine, backwards and with gaps.
func (e *engine) blocksFor(tokens, gap int) []uint32 {
	blocks := make([]uint32, (tokens+e.Side.BlockTokens-1)/e.Side.BlockTokens)
	for i := range blocks {
		blocks[i] = uint32((e.Side.Blocks*gap - 1 - i*gap) % e.Side.Blocks)
	}
	if len(slices.Compact(slices.Sorted(slices.Values(blocks)))) != len(blocks) {
		panic("blocks repeat")
	}
	return blocks
}

func holding(blocks []uint32) reshard.Holding { return reshard.Holding{Tables: [][]uint32{blocks}} }

// prompt is so many tokens; seed makes them others.
func prompt(tokens, seed int) handoff.Content {
	p := handoff.Content{Scope: kv.Scope{Model: "test", Salt: "s"}, Tokens: make([]uint32, tokens)}
	for i := range p.Tokens {
		p.Tokens[i] = uint32(i*i + seed)
	}
	return p
}

// team is whose share of owners' memory prompts take.
const team = "team"

// keep keeps a prompt and waits until the blocks are the engine's again.
func (e *engine) keep(t testing.TB, p handoff.Content) handoff.Event {
	t.Helper()
	blocks := e.blocksFor(len(p.Tokens), 3)
	e.fill(blocks, p)
	id := agent.NewID()
	if err := e.node.Keep(soon(t), prefix.Keep{Engine: e.ID, Tenant: team, Transfer: id, Content: p, Holding: holding(blocks)}); err != nil {
		t.Fatal(err)
	}
	return e.node.awaitFreed(t, id)
}

// awaitFreed waits for the one event of a transfer.
func (n *node) awaitFreed(t testing.TB, id kv.ID) (e handoff.Event) {
	t.Helper()
	until.True(t, "Freed", func() bool {
		n.mu.Lock()
		defer n.mu.Unlock()
		if len(n.freed[id]) > 1 {
			t.Fatalf("Freed %d times", len(n.freed[id]))
		}
		if len(n.freed[id]) == 1 {
			e = n.freed[id][0]
			return true
		}
		return false
	})
	return e
}

// settled waits until nothing of a node is on its way, so that what it kept can be found.
func (n *node) settled(t testing.TB) {
	t.Helper()
	until.True(t, "it settles", func() bool {
		m := n.Metrics()
		stats, _ := n.store.Kept()
		return m.InFlight == 0 && m.Taking == 0 && stats.Writing == 0
	})
}

// find finds a prompt.
func (e *engine) find(t testing.TB, p handoff.Content, present int) prefix.Found {
	t.Helper()
	found, err := e.node.Find(soon(t), prefix.Find{Engine: e.ID, Tenant: team, Content: p, Present: present})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// findOnly gives back what was found, and waits until its owner has let it go.
func (e *engine) findOnly(t testing.TB, p handoff.Content) (tokens int) {
	t.Helper()
	found := e.find(t, p, 0)
	for _, s := range found.Segments {
		if err := e.node.transceiver.ReturnTicket(s.Ticket); err != nil {
			t.Fatal(err)
		}
	}
	until.True(t, "units are let go", func() bool { return e.node.Metrics().Granted == 0 })
	return found.Tokens
}

// accept takes all segments of what was found, and returns where it is.
func (e *engine) accept(t testing.TB, p handoff.Content, found prefix.Found) (blocks []uint32, err error) {
	t.Helper()
	return e.acceptWithin(soon(t), t, p, found)
}

func (e *engine) acceptWithin(ctx context.Context, t testing.TB, p handoff.Content, found prefix.Found) (blocks []uint32, err error) {
	t.Helper()
	blocks = e.blocksFor(found.Tokens, 1)
	for _, arena := range e.memory {
		clear(arena.Bytes(0, arena.Size()))
	}
	var running []*transceiver.AcceptHandle
	for _, s := range found.Segments {
		part := p
		part.Tokens = p.Tokens[:s.End]
		ticket, err := e.node.transceiver.OpenTicket(s.Ticket, &part)
		if err != nil {
			t.Fatal(err)
		}
		in, err := e.node.transceiver.Accept(ctx, transceiver.Accept{Ticket: ticket, Engine: e.ID, Tokens: kv.TokenRange{Start: s.Start, End: s.End}, Holding: holding(blocks)})
		if err != nil {
			t.Fatal(err)
		}
		running = append(running, in)
	}
	for _, in := range running {
		if ended := in.Wait(soon(t)); ended != nil {
			err = ended
		}
	}
	return blocks, err
}
