package transceiver_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"meridian/kv"
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

// cell is agents that know one another, each with a transceiver.
type cell struct {
	t       testing.TB
	fabric  string
	network *inproc.Network
	dir     string
	pace    handoff.Timing

	mu    sync.Mutex
	nodes map[string]*node
}

type node struct {
	*transceiver.Transceiver
	agent  *agent.Agent
	member kv.Member
}

var ticketKey = handoff.Key{7}

func newCell(t testing.TB, fabricName string) *cell {
	return &cell{t: t, fabric: fabricName, network: inproc.NewNetwork(), dir: socketDir(t), nodes: make(map[string]*node)}
}

// socketDir is short enough for a socket's address, and for this user alone.
func socketDir(t testing.TB) string {
	dir, err := os.MkdirTemp("", "mrd")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func (c *cell) opener(ctx context.Context, self agent.Self) (fabric.Fabric, error) {
	switch c.fabric {
	case "inproc":
		return inproc.Open(ctx, inproc.Options{
			Network: c.network, Agent: self.Name, Incarnation: self.Incarnation, Guard: self.Guard, Events: self.Events,
		})
	case "host":
		return host.Open(ctx, host.Options{
			Agent: self.Name, Incarnation: self.Incarnation, Dir: c.dir, Guard: self.Guard, Events: self.Events, Logger: self.Logger,
		})
	}
	return tcp.Open(ctx, tcp.Options{
		Agent: self.Name, Incarnation: self.Incarnation, Listen: "127.0.0.1:0", Guard: self.Guard, Events: self.Events,
		Metadata: self.Metadata, Logger: self.Logger,
	})
}

// shown is what a decode engine shows its agent to have a cache.
type shown struct {
	Ticket  []byte
	Engine  string
	Content handoff.Content
	Known   *transceiver.KnownContent // of an object cache, in the place of Content
	Holding reshard.Holding
	Present int
	Push    bool

	AnswerWithin time.Duration
}

// accept opens the ticket for the engine's own request, and accepts.
func (n *node) accept(ctx context.Context, s shown) (*transceiver.AcceptHandle, error) {
	own, end := &s.Content, len(s.Content.Tokens)
	if s.Known != nil {
		own, end = nil, s.Known.Tokens
	}
	ticket, err := n.OpenTicket(s.Ticket, own)
	if err != nil {
		return nil, err
	}
	return n.Accept(ctx, transceiver.Accept{
		Ticket: ticket, Engine: s.Engine, Holding: s.Holding, Tokens: kv.TokenRange{Start: s.Present, End: end}, Push: s.Push, AnswerWithin: s.AnswerWithin,
	})
}

// start opens an agent and its transceiver, which find the others by name.
func (c *cell) start(name string, change ...func(*transceiver.Options)) *node {
	c.t.Helper()
	a, err := agent.Open(context.Background(), agent.Options{Name: name, Fabrics: []agent.Opener{c.opener}})
	if err != nil {
		c.t.Fatal(err)
	}
	o := transceiver.Options{
		Agent: a, TicketKey: ticketKey, MaxHeldFraction: 1, Timing: c.pace,
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
	tr, err := transceiver.Open(context.Background(), o)
	if err != nil {
		c.t.Fatal(err)
	}
	n := &node{tr, a, kv.Member{Name: name, Incarnation: a.Incarnation()}}
	c.mu.Lock()
	c.nodes[name] = n
	c.mu.Unlock()
	c.t.Cleanup(func() { n.stop(c.t) })
	return n
}

func (n *node) stop(t testing.TB) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := n.Close(ctx); err != nil {
		t.Error(err)
	}
	if err := n.agent.Close(ctx); err != nil {
		t.Error(err)
	}
}

// engine is an engine on nodes of a cell, with real memory.
type engine struct {
	handoff.Engine
	home   *node
	memory [][]arenaAt // by rank
}

// arenaAt is a stretch of a rank's memory.
type arenaAt struct {
	*mem.Arena
	start uint64
}

// at finds a byte of a rank.
func (e *engine) at(rank int, offset uint64) *byte {
	for _, a := range e.memory[rank] {
		if offset-a.start < a.Size() && offset >= a.start {
			return &a.Bytes(offset-a.start, 1)[0]
		}
	}
	panic("beyond memory")
}

type shape struct {
	tp, pp, blockTokens, blocks int
	layout                      string
	// extents is in how many pieces a rank registers its memory.
	extents int
}

func (s shape) side(t testing.TB, g kv.Geometry) reshard.Side {
	layout, err := kv.ParseLayout(s.layout)
	if err != nil {
		t.Fatal(err)
	}
	return reshard.Side{
		Geometry: g, Parallelism: kv.Split(len(g.Layers), s.tp, s.pp), Layout: layout, BlockTokens: s.blockTokens, Blocks: s.blocks,
	}
}

// engine puts an engine's ranks on nodes, one after the other around; the first
// node is its home.
func (c *cell) engine(id string, g kv.Geometry, s shape, nodes ...*node) *engine {
	c.t.Helper()
	e := &engine{Engine: handoff.Engine{ID: id, Side: s.side(c.t, g)}, home: nodes[0]}
	served := make(map[*node]map[int]handoff.Memory)
	for rank := range e.Side.Parallelism.Ranks() {
		size, err := e.Side.MemoryBytes(rank)
		if err != nil {
			c.t.Fatal(err)
		}
		n := nodes[rank%len(nodes)]
		memory := c.lend(e, n, uint64(size), max(1, s.extents))
		e.Ranks = append(e.Ranks, handoff.Rank{Agent: n.member, Memory: memory, Capabilities: handoff.AllCapabilities})
		if served[n] == nil {
			served[n] = make(map[int]handoff.Memory)
		}
		served[n][rank] = memory
	}
	for n, memory := range served {
		if n != e.home {
			if err := n.Serve(id, e.home.member.Name, memory); err != nil {
				c.t.Fatal(err)
			}
		}
	}
	if err := e.home.Join(e.Engine); err != nil {
		c.t.Fatal(err)
	}
	return e
}

// lend registers a rank's memory as so many regions.
func (c *cell) lend(e *engine, n *node, size uint64, extents int) handoff.Memory {
	var memory handoff.Memory
	var arenas []arenaAt
	page := uint64(os.Getpagesize())
	each := max(page, (size/uint64(extents)+page-1)/page*page)
	for start := uint64(0); start < size; start += each {
		arena, err := mem.NewArena(mem.ArenaOptions{Name: e.ID, SizeBytes: min(each, size-start), NUMANode: -1})
		if err != nil {
			c.t.Fatal(err)
		}
		c.t.Cleanup(func() {
			if err := arena.Close(context.Background()); err != nil {
				c.t.Error(err)
			}
		})
		region, err := n.agent.Register(arena.Section, e.ID)
		if err != nil {
			c.t.Fatal(err)
		}
		arenas = append(arenas, arenaAt{arena, start})
		memory = append(memory, handoff.Extent{Region: region.ID, Epoch: region.Epoch, Length: min(each, size-start)})
	}
	e.memory = append(e.memory, arenas)
	return memory
}

// each visits every byte of a request's tokens in all ranks, with what it should
// hold. It places them by the layout alone, as a direct shard would.
func (e *engine) each(layer int, blocks []uint32, tokens kv.TokenRange, visit func(at *byte, want byte)) {
	s := &e.Side
	l, size := s.Geometry.Layers[layer], s.Geometry.DType.Bytes()
	for number := range e.memory {
		rank := s.Parallelism.Rank(number)
		first, end := s.Parallelism.Layers(rank.PP)
		if layer < first || layer >= end {
			continue
		}
		firstHead, endHead := s.Parallelism.Heads(rank.TP, l.KVHeads)
		strides, err := s.Layout.Strides(kv.Extents{
			Layers: end - first, Blocks: s.Blocks, Parts: l.Factor(), Heads: endHead - firstHead, Tokens: s.BlockTokens, Elements: l.HeadDim,
		})
		if err != nil {
			panic(err)
		}
		for token := tokens.Start; token < tokens.End; token++ {
			for part := range l.Factor() {
				for head := firstHead; head < endHead; head++ {
					for element := range l.HeadDim {
						at := uint64(strides.Offset(kv.Point{
							Layers: layer - first, Blocks: int(blocks[token/s.BlockTokens]), Parts: part, Heads: head - firstHead,
							Tokens: token % s.BlockTokens, Elements: element,
						})) * uint64(size)
						for i := range size {
							visit(e.at(number, at+uint64(i)), byte(layer*31+part*17+head*13+token*7+element*3+i*5+1))
						}
					}
				}
			}
		}
	}
}

func (e *engine) fill(layer int, blocks []uint32, tokens kv.TokenRange) {
	e.each(layer, blocks, tokens, func(at *byte, want byte) { *at = want })
}

// wrong counts bytes that are not what they should be.
func (e *engine) wrong(blocks []uint32, tokens kv.TokenRange) (count int) {
	for layer := range e.Side.Geometry.Layers {
		e.each(layer, blocks, tokens, func(at *byte, want byte) {
			if *at != want {
				count++
			}
		})
	}
	return count
}

// blocksFor takes so many blocks from the middle of an engine, backwards and
// with gaps.
func (e *engine) blocksFor(tokens, gap int) []uint32 {
	n := (tokens + e.Side.BlockTokens - 1) / e.Side.BlockTokens
	blocks := make([]uint32, n)
	for i := range blocks {
		blocks[i] = uint32((e.Side.Blocks - 1 - i*gap) % e.Side.Blocks)
	}
	if len(slices.Compact(slices.Sorted(slices.Values(blocks)))) != n {
		panic("blocks repeat")
	}
	return blocks
}

func holding(blocks []uint32) reshard.Holding { return reshard.Holding{Tables: [][]uint32{blocks}} }

func prompt(tokens int) handoff.Content {
	c := handoff.Content{Scope: kv.Scope{Model: "test", Salt: "s"}, Tokens: make([]uint32, tokens)}
	for i := range c.Tokens {
		c.Tokens[i] = uint32(i * i)
	}
	return c
}

func soon(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}
