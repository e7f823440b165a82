package doorserver_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"meridian/kv"
	"meridian/member/directory/memdir"
	"meridian/move/agent"
	"meridian/move/fabric"
	"meridian/move/fabric/host"
	"meridian/move/fabric/tcp"
	"meridian/move/mem"
	"meridian/move/reshard"
	"meridian/move/transceiver"
	"meridian/serve/door"
	"meridian/serve/doorserver"
)

func TestMain(m *testing.M) {
	if run := os.Getenv(puppetVariable); run != "" {
		puppet(run)
	}
	goleak.VerifyTestMain(m)
}

var (
	ticketKey = [32]byte{7}
	legKey    = [32]byte{8}
)

// cell is agents with doors, and a directory they share.
type cell struct {
	t         testing.TB
	fabric    string
	dir       string
	directory *memdir.Store
}

func newCell(t testing.TB, fabricName string) *cell {
	dir, err := os.MkdirTemp("", "mrd") // short enough for a socket's address
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return &cell{t: t, fabric: fabricName, dir: dir, directory: memdir.New(memdir.Options{})}
}

// node is one agent and its door.
type node struct {
	*doorserver.Server
	agent       *agent.Agent
	transceiver *transceiver.Transceiver
	directory   *memdir.Client
	socket      string
	stopped     bool
}

func (c *cell) opener(ctx context.Context, self agent.Self) (fabric.Fabric, error) {
	if c.fabric == "host" {
		return host.Open(ctx, host.Options{
			Agent: self.Name, Incarnation: self.Incarnation, Dir: c.dir, Guard: self.Guard, Events: self.Events, Logger: self.Logger,
		})
	}
	return overTCP(ctx, self)
}

func overTCP(ctx context.Context, self agent.Self) (fabric.Fabric, error) {
	return tcp.Open(ctx, tcp.Options{
		Agent: self.Name, Incarnation: self.Incarnation, Listen: "127.0.0.1:0", Guard: self.Guard, Events: self.Events,
		Metadata: self.Metadata, Logger: self.Logger,
	})
}

// start opens an agent and its door.
func (c *cell) start(name string, change ...func(*doorserver.Options)) *node {
	c.t.Helper()
	ctx := soon(c.t)
	logger := slog.New(slog.DiscardHandler)
	if testing.Verbose() {
		logger = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug})).With("at", name)
	}
	n := &node{socket: filepath.Join(c.dir, name+".sock")}
	must := func(err error) {
		c.t.Helper()
		if err != nil {
			c.t.Fatal(err)
		}
	}
	var err error
	n.directory, err = c.directory.Open(memdir.ClientOptions{CallTimeout: time.Second})
	must(err)
	openers := []agent.Opener{c.opener}
	if c.fabric == "host" {
		openers = append(openers, overTCP) // agents fetch one another's metadata over it
	}
	n.agent, err = agent.Open(ctx, agent.Options{Name: name, Fabrics: openers, Directory: n.directory, Logger: logger})
	must(err)
	var relay doorserver.Relay
	n.transceiver, err = transceiver.Open(ctx, transceiver.Options{
		Agent: n.agent, TicketKey: ticketKey, PromiseKey: legKey, Events: relay.Events, NotifyRanks: relay.Passed, Logger: logger,
	})
	must(err)
	o := doorserver.Options{
		Agent: n.agent, Transceiver: n.transceiver, Relay: &relay, Directory: n.directory, Socket: n.socket, LegKey: legKey, Logger: logger,
	}
	for _, f := range change {
		f(&o)
	}
	n.Server, err = doorserver.Open(ctx, o)
	must(err)
	c.t.Cleanup(func() { n.stop(c.t) })
	return n
}

func (n *node) stop(t testing.TB) {
	if n.stopped {
		return
	}
	n.stopped = true
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, closing := range []func(context.Context) error{n.Close, n.transceiver.Close, n.agent.Close, n.directory.Close} {
		if err := closing(ctx); err != nil {
			t.Error(err)
		}
	}
}

// cut is how an engine of a test is cut.
type cut struct {
	tp, pp, blockTokens, blocks int
	layout                      string
}

var model = kv.Uniform(4, kv.Layer{KVHeads: 4, HeadDim: 8}, kv.BFloat16)

func (c cut) publication() door.Publication {
	layout, err := kv.ParseLayout(c.layout)
	if err != nil {
		panic(err)
	}
	return door.Publication{
		Geometry: model, Parallelism: kv.Split(len(model.Layers), c.tp, c.pp), Layout: layout, BlockTokens: c.blockTokens, Blocks: c.blocks,
		Scope: kv.Scope{Model: "m", Revision: "1"},
	}
}

func sideOf(p door.Publication) reshard.Side {
	return reshard.Side{Geometry: p.Geometry, Parallelism: p.Parallelism, Layout: p.Layout, BlockTokens: p.BlockTokens, Blocks: p.Blocks}
}

// engine is an engine of this process, with real memory.
type engine struct {
	*door.Client
	door.Publication
	id       string
	memory   [][]byte // by rank
	sections []*mem.Section
	mu       sync.Mutex
	events   []door.Event
	changed  chan struct{}
}

// newEngine has memory and is not registered yet.
func newEngine(id string, p door.Publication) (*engine, error) {
	e := &engine{id: id, Publication: p, changed: make(chan struct{})}
	for rank := range p.Parallelism.Ranks() {
		size, err := sideOf(p).MemoryBytes(rank)
		if err != nil {
			return nil, err
		}
		a, err := mem.NewArena(mem.ArenaOptions{Name: "kv", SizeBytes: uint64(size), NUMANode: -1})
		if err != nil {
			return nil, err
		}
		e.memory, e.sections = append(e.memory, a.Bytes(0, a.Size())), append(e.sections, a.Section)
	}
	return e, nil
}

func (e *engine) options(socket string) door.Options {
	return door.Options{
		Socket: socket, Engine: e.id, URL: "http://127.0.0.1:1", Role: "both", Model: "m", Publish: e.Publication, Memory: e.sections, Events: e.happened,
	}
}

// engine registers an engine at a node's door.
func (c *cell) engine(id string, at *node, shape cut, change ...func(*door.Options)) *engine {
	c.t.Helper()
	e, err := newEngine(id, shape.publication())
	if err != nil {
		c.t.Fatal(err)
	}
	o := e.options(at.socket)
	for _, f := range change {
		f(&o)
	}
	if e.Client, err = door.Open(soon(c.t), o); err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { e.leave(c.t) })
	return e
}

func (e *engine) leave(t testing.TB) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := e.Close(ctx); err != nil {
		t.Error(err)
	}
	for _, s := range e.sections {
		if err := s.Close(ctx); err != nil {
			t.Error(err)
		}
	}
}

func (e *engine) happened(event door.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.events = append(e.events, event)
	close(e.changed)
	e.changed = make(chan struct{})
}

// heard waits for an event and takes it out.
func (e *engine) heard(t testing.TB, what string, match func(door.Event) bool) door.Event {
	t.Helper()
	deadline := time.After(time.Minute)
	for {
		e.mu.Lock()
		if i := slices.IndexFunc(e.events, match); i >= 0 {
			event := e.events[i]
			e.events = slices.Delete(e.events, i, i+1)
			e.mu.Unlock()
			return event
		}
		changed, seen := e.changed, slices.Clone(e.events)
		e.mu.Unlock()
		select {
		case <-changed:
		case <-deadline:
			t.Fatalf("engine %s has not heard %s, but %v", e.id, what, seen)
		}
	}
}

func (e *engine) hears(t testing.TB, kind door.EventKind, transfer [16]byte) door.Event {
	t.Helper()
	return e.heard(t, kind.String(), func(event door.Event) bool { return event.Kind == kind && event.Transfer == transfer })
}

// each visits every byte of a request's tokens in all ranks, with what it should
// hold. It places them by the layout alone, as a direct shard would.
func (e *engine) each(blocks []uint32, tokens int, visit func(at *byte, want byte)) {
	s := sideOf(e.Publication)
	for number, memory := range e.memory {
		rank := s.Parallelism.Rank(number)
		first, end := s.Parallelism.Layers(rank.PP)
		for layer := first; layer < end; layer++ {
			l := s.Geometry.Layers[layer]
			firstHead, endHead := s.Parallelism.Heads(rank.TP, l.KVHeads)
			strides, err := s.Layout.Strides(kv.Extents{
				Layers: end - first, Blocks: s.Blocks, Parts: l.Factor(), Heads: endHead - firstHead, Tokens: s.BlockTokens, Elements: l.HeadDim,
			})
			if err != nil {
				panic(err)
			}
			for token := range tokens {
				for part := range l.Factor() {
					for head := firstHead; head < endHead; head++ {
						for element := range l.HeadDim {
							at := 2 * strides.Offset(kv.Point{
								Layers: layer - first, Blocks: int(blocks[token/s.BlockTokens]), Parts: part, Heads: head - firstHead,
								Tokens: token % s.BlockTokens, Elements: element,
							})
							want := byte(layer*31 + part*17 + head*13 + token*7 + element*3 + 1)
							visit(&memory[at], want)
							visit(&memory[at+1], ^want)
						}
					}
				}
			}
		}
	}
}

func (e *engine) fill(blocks []uint32, tokens int) {
	e.each(blocks, tokens, func(at *byte, want byte) { *at = want })
}

func (e *engine) wrong(blocks []uint32, tokens int) (count int) {
	e.each(blocks, tokens, func(at *byte, want byte) {
		if *at != want {
			count++
		}
	})
	return count
}

// blocksFor takes so many blocks from the end, with gaps.
func (e *engine) blocksFor(tokens int) []uint32 {
	blocks := make([]uint32, (tokens+e.BlockTokens-1)/e.BlockTokens)
	for i := range blocks {
		blocks[i] = uint32((e.Blocks - 1 - 3*i%e.Blocks) % e.Blocks)
	}
	return blocks
}

func prompt(tokens int) []uint32 {
	all := make([]uint32, tokens)
	for i := range all {
		all[i] = uint32(i * i)
	}
	return all
}

func soon(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}
