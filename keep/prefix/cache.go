package prefix

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"meridian/internal/join"
	"meridian/keep/prefix/keys"
	"meridian/keep/store"
	"meridian/kv"
	"meridian/move/agent"
	"meridian/move/fabric"
	"meridian/move/reshard"
	"meridian/move/transceiver"
	"meridian/move/transceiver/handoff"
)

// What can be wrong with a call.
var (
	ErrClosed  = errors.New("offload: closed")
	ErrUnknown = errors.New("offload: no such engine; it must join first")
)

// MaxSegments is in how many pieces a found run may come.
const MaxSegments = keys.MaxSegments

// Reads is what an owner whose agent has a Cache of this build says of itself, as
// store.OwnerOptions.Prefixes.
const Reads = keys.LastKind

// Options configures Open.
type Options struct {
	Agent       *agent.Agent
	Transceiver *transceiver.Transceiver
	// Store is where objects are kept: at its own owner, if it has one, or at others.
	Store *store.Store
	// TicketKey is the cell's, as the transceiver has it.
	TicketKey handoff.Key
	// Replicas is how many copies there are to be of what is used often, each at another
	// owner; default 1, at most 8. It is the same for all agents of a cell.
	Replicas int
	// Find looks an agent up; default Agent.Find.
	Find func(ctx context.Context, name string) (*agent.Peer, error)
	// BlockTokens is how many tokens one object holds, where an engine's cache can be cut
	// so; default 64.
	BlockTokens int
	// MaxBytesInFlight bounds what engines of this agent have on its way to owners, and
	// what its owner takes, at a time; default 256 MiB each. What is beyond waits.
	MaxBytesInFlight uint64
	// KeepTimeout bounds how long a Keep has an engine's blocks; default 10 s.
	KeepTimeout time.Duration
	// LocateTimeout bounds how long the master is asked who has what; default 300 ms.
	LocateTimeout time.Duration
	// FindTimeout bounds a Find; default half a second.
	FindTimeout time.Duration
	// OfferTimeout is how long what was found waits for its engine; default 5 s.
	OfferTimeout time.Duration
	// Events is told Freed of a Keep that came to no offer, as the transceiver tells of
	// one that did. It must not block.
	Events func(handoff.Event)
	// Ended, if not nil, is told what came of each Find and Keep. It must not block.
	Ended  func(*Record)
	Clock  fabric.Clock
	Logger *slog.Logger
}

func (o Options) withDefaults() (Options, error) {
	switch {
	case o.Agent == nil || o.Transceiver == nil || o.Store == nil:
		return o, errors.New("offload: Options needs an Agent, a Transceiver and a Store")
	case o.TicketKey == (handoff.Key{}):
		return o, errors.New("offload: Options needs a TicketKey; derive it from the cell's key")
	case o.BlockTokens < 0 || o.KeepTimeout < 0 || o.FindTimeout < 0 || o.OfferTimeout < 0 || o.LocateTimeout < 0:
		return o, errors.New("offload: a span or a bound in Options is negative")
	}
	if o.Replicas = cmp.Or(o.Replicas, 1); o.Replicas < 1 || o.Replicas > keys.MaxCopies {
		return o, fmt.Errorf("offload: %d replicas; there are 1 to %d", o.Replicas, keys.MaxCopies)
	}
	o.BlockTokens = cmp.Or(o.BlockTokens, 64)
	o.MaxBytesInFlight = cmp.Or(o.MaxBytesInFlight, 256<<20)
	o.KeepTimeout = cmp.Or(o.KeepTimeout, 10*time.Second)
	o.LocateTimeout = cmp.Or(o.LocateTimeout, 300*time.Millisecond)
	o.FindTimeout = cmp.Or(o.FindTimeout, 500*time.Millisecond)
	o.OfferTimeout = cmp.Or(o.OfferTimeout, 5*time.Second)
	if o.Events == nil {
		o.Events = func(handoff.Event) {}
	}
	o.Clock = cmp.Or(o.Clock, fabric.SystemClock)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	return o, nil
}

// What runs at a time, of each kind.
const (
	maxKeeps    = 256
	maxFinds    = 1024
	maxInFlight = 1024 // messages to one agent
	// maxOfPeer is how many asks of one other agent are looked at.
	maxOfPeer = maxFinds / 4
	// maxTold is how many owners are being told that something was used.
	maxTold = 32
)

// Cache is what engines of one agent keep and find, and what its owner keeps for all. Its
// methods may be called from several goroutines.
type Cache struct {
	options Options
	self    kv.Member
	names   keys.NamesKey
	peers   *agent.Peers
	calls   *agent.Calls[keys.Message] // asks of this agent that wait for an answer
	wait    sync.WaitGroup             // everything that runs here
	ctx     context.Context
	cancel  context.CancelFunc

	out, in *inFlight // bytes of this agent's engines on their way to owners, and to its owner

	mu       sync.Mutex // protects the rest
	closed   bool
	engines  map[string]*engine
	stores   map[kv.Hash]*storeEngine
	keepings map[kv.ID]*keeping // of this agent's engines
	keeps    keys.Budget
	taking   keys.Budget // of its owner
	granting keys.Budget
	telling  keys.Budget // owners elsewhere what was used
	// verifying is what is being looked at for finders; uses counts hand-offs of stores.
	verifying keys.Budget
	uses      uint64
	asks      map[kv.Member]int // of other agents, that are being looked at
	finding   keys.Budget
	fetches   map[kv.ID]fetch // that were found and have not ended
	master    masterBackoff
	copier    *copier // nil where no copies are made
	metrics   Metrics
	tally     keys.Tally
	models    keys.ModelTally
}

// engine is one that may keep and find.
type engine struct {
	shape  keys.Shape
	unit   reshard.Unit
	digest kv.Hash
	layers int
	blocks int // it has
	// lent is how many of them are being kept. The cache's mu protects it.
	lent int
	// breakEven is when fetching is worth it, tokenTime what the engine last said that a
	// token costs it. The cache's mu protects them.
	breakEven keys.BreakEven
	tokenTime time.Duration
	// last is the Keep that came last of each request, while it is under way. The cache's mu
	// protects it.
	last map[string]*keeping
	// life ends when the engine leaves. Leave waits for those of its Keeps of which nothing is
	// offered yet, and for what is about to be: none may offer blocks of the engine that takes
	// this one's place. Mu is held to add to them.
	life    context.Context
	endLife context.CancelFunc
	early   sync.WaitGroup
}

// maxLentPart is the part of an engine's blocks that are being kept at a time. One Keep alone
// may have more, as much as the transceiver lets offers have: what it would keep is longer
// than the part.
const maxLentPart = 0.25

// Open begins to listen for other agents.
func Open(_ context.Context, o Options) (*Cache, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	c := &Cache{
		options: o, self: kv.Member{Name: o.Agent.Name(), Incarnation: o.Agent.Incarnation()}, names: keys.NamesKeyOf(o.TicketKey),
		engines: make(map[string]*engine), stores: make(map[kv.Hash]*storeEngine), asks: make(map[kv.Member]int), fetches: make(map[kv.ID]fetch),
		keepings: make(map[kv.ID]*keeping), keeps: keys.Budget{MaxCount: maxKeeps}, taking: keys.Budget{MaxCount: maxKeeps},
		out: newInFlight(o.MaxBytesInFlight), in: newInFlight(o.MaxBytesInFlight),
		verifying: keys.Budget{MaxBytes: maxVerified, MaxCount: maxFinds},
		granting:  keys.Budget{MaxCount: maxFinds}, finding: keys.Budget{MaxCount: maxFinds},
		telling: keys.Budget{MaxCount: maxTold},
		metrics: Metrics{Keeps: make(map[string]uint64), Finds: make(map[string]uint64)},
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.calls = agent.NewCalls(c.giveBack)
	c.peers = agent.NewPeers(o.Agent, agent.PeersOptions{Find: o.Find, MaxInFlight: maxInFlight})
	if _, _, _, keeps := o.Store.Memory(); keeps && o.Replicas > 1 {
		c.copier = newCopier(o.Clock.Now())
	}
	inbox, err := o.Agent.Listen(keys.Magic, agent.InboxLimits{})
	if err != nil {
		return nil, err
	}
	c.wait.Go(func() {
		for n := range inbox {
			c.onNotification(n)
		}
	})
	if c.copier != nil {
		c.wait.Go(c.copyHot)
	}
	return c, nil
}

// Join lets an engine of this agent keep and find; err says why its cache cannot be kept.
func (c *Cache) Join(id string, side reshard.Side) error {
	unit, err := reshard.UnitOf(side, c.options.BlockTokens)
	if err != nil {
		return fmt.Errorf("offload: engine %s: %w", id, err)
	}
	e := &engine{
		shape: keys.Shape{Geometry: side.Geometry, Packing: side.Packing, Tokens: unit.Tokens},
		unit:  unit, digest: unit.Digest(), layers: len(side.Geometry.Layers), blocks: side.Blocks, last: make(map[string]*keeping),
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
		return ErrClosed
	case c.engines[id] != nil:
		return fmt.Errorf("offload: engine %s has joined already; it must leave first", id)
	}
	e.life, e.endLife = context.WithCancel(c.ctx)
	c.engines[id] = e
	return nil
}

// BlockTokens is how many tokens one object holds, of engines that do not pack their blocks.
func (c *Cache) BlockTokens() int { return c.options.BlockTokens }

// Leave ends that. When it returns, nothing that the engine wanted to be kept will be
// offered any more; what was offered or found ends when the engine leaves the transceiver,
// which comes next.
func (c *Cache) Leave(id string) {
	c.mu.Lock()
	e := c.engines[id]
	delete(c.engines, id)
	c.mu.Unlock()
	if e != nil {
		e.endLife()
		e.early.Wait()
	}
}

func (c *Cache) engine(id string) (*engine, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.engineLocked(id)
}

// engineLocked is engine for who holds mu.
func (c *Cache) engineLocked(id string) (*engine, error) {
	if c.closed {
		return nil, ErrClosed
	}
	e := c.engines[id]
	if e == nil {
		return nil, fmt.Errorf("%w: %q", ErrUnknown, id)
	}
	return e, nil
}

// objectBytes is how large the object of a unit is: as it must begin at a place, it has at
// least that size.
func objectBytes(u reshard.Unit) uint64 { return uint64(max(u.Bytes, reshard.PlaceBytes)) }

// runOf is a chain as the store knows it.
func runOf(c keys.Chain) store.Run {
	return store.Run{Tenant: c.Tenant, Keys: c.Names(), Payer: c.Payer}
}

// begin runs work that Close waits for, if there is room for it in a budget.
func (c *Cache) begin(b *keys.Budget, bytes uint64, work func()) bool {
	if !c.enter(b, bytes) {
		return false
	}
	go func() {
		defer c.leave(b, bytes)
		work()
	}()
	return true
}

// enter is begin for work on the caller's own goroutine; leave ends it.
func (c *Cache) enter(b *keys.Budget, bytes uint64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || !b.Take(bytes) {
		return false
	}
	c.wait.Add(1)
	return true
}

func (c *Cache) leave(b *keys.Budget, bytes uint64) {
	c.mu.Lock()
	b.Give(bytes)
	c.mu.Unlock()
	c.wait.Done()
}

// Close ends what engines keep and what is kept here for others, and returns when nothing
// of it runs. It comes before the transceiver's Close and the store's. After an error it
// may be called again.
func (c *Cache) Close(ctx context.Context) error {
	c.mu.Lock()
	listens := !c.closed
	c.closed = true
	var ids []string
	for _, s := range c.stores {
		ids = append(ids, s.id)
	}
	c.mu.Unlock()
	c.cancel()
	if listens {
		c.options.Agent.Unlisten(keys.Magic)
	}
	for _, id := range ids {
		if err := c.options.Transceiver.Leave(ctx, id); err != nil {
			return fmt.Errorf("offload: closing: %w", err)
		}
	}
	return join.Within(ctx, "offload: closing", c.wait.Wait)
}
