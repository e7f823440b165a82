package engine

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"meridian/internal/until"
	"meridian/kv"
	"meridian/move/reshard"
	"meridian/serve/door"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = time.Minute

func within(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// cell plays the agents between engines: it copies bytes from arena to arena as
// a plan of reshard says, and can be told to fail.
type cell struct {
	mu        sync.Mutex // protects the rest
	offers    map[[16]byte]*testOffer
	fakeCache *fakeCache // nil: it keeps no prefixes
	withdrawn map[[16]byte]bool
	early     int // bytes that were taken before all of their prompt was computed
	layered   int // times that it was told of the first layers of tokens alone
	trouble
}

// testOffer is a cache that can be fetched: an engine's, or, without an engine, what
// was found.
type testOffer struct {
	from *testDoor
	site
	first int // token that it has
	door.Offer
	// takers are told when more is computed: of tokens before Whole all layers are, of
	// those before tokens the first layers.
	layers, tokens int
	takers         []func()
}

// computed is how many tokens of a layer are.
func (o *testOffer) computed(layer int) int {
	switch {
	case o.complete():
		return len(o.Tokens)
	case layer < o.layers:
		return max(o.tokens, o.Whole)
	}
	return o.Whole
}

// complete reports whether all of it is computed, as what is found is.
func (o *testOffer) complete() bool {
	return o.from == nil || o.Layers == o.all() || o.Whole == len(o.Tokens)
}

func (o *testOffer) all() int { return len(o.side.Geometry.Layers) }

// Progress is of an offer that is being computed.
func (d *testDoor) Progress(transfer [16]byte, layers, tokens int) {
	d.cell.mu.Lock()
	defer d.cell.mu.Unlock()
	o := d.cell.offers[transfer]
	if o == nil || o.from != d || o.complete() {
		return
	}
	if tokens == 0 {
		tokens = len(o.Tokens)
	}
	if tokens < o.tokens || tokens == o.tokens && layers <= o.layers || layers > o.all() {
		panic(fmt.Sprintf("%d layers of %d tokens are computed after %d of %d", layers, tokens, o.layers, o.tokens))
	}
	if o.layers, o.tokens = layers, tokens; layers == o.all() {
		o.Whole = tokens
	} else {
		d.cell.layered++
	}
	o.tellTakers()
}

func (o *testOffer) tellTakers() {
	for _, taker := range o.takers {
		taker()
	}
}

// site is where a cache lies.
type site struct {
	side  reshard.Side
	bytes func(rank int, at, size int64) []byte
}

func siteOf(e *Engine) site {
	return site{sideOf(e), func(rank int, at, size int64) []byte { return e.arenas[rank].Bytes(uint64(at), uint64(size)) }}
}

// trouble is how often, of 100, something goes wrong.
type trouble struct {
	dice                                       *rand.Rand
	refuse, fail, silence, late, mute, slowest int
}

func (c *cell) hit(percent int) bool { return c.dice != nil && c.dice.IntN(100) < percent }

func newCell() *cell {
	return &cell{offers: make(map[[16]byte]*testOffer), withdrawn: make(map[[16]byte]bool)}
}

// testDoor is the portal of one engine.
type testDoor struct {
	cell    *cell
	engine  *Engine
	serving bool // protected by the cell's mu
	running map[testHandOff]bool
	losses  int
	later   sync.WaitGroup
}

type testHandOff struct {
	transfer [16]byte
	accepted bool
}

func (d *testDoor) Serving() bool {
	d.cell.mu.Lock()
	defer d.cell.mu.Unlock()
	return d.serving
}

func (d *testDoor) tell(events ...door.Event) {
	for _, e := range events {
		d.engine.post(func() { d.engine.happened(e) })
	}
}

func ticketOf(transfer [16]byte) []byte { return append([]byte("ticket "), transfer[:]...) }

func (d *testDoor) Offer(_ context.Context, o door.Offer) ([]byte, error) {
	d.cell.mu.Lock()
	defer d.cell.mu.Unlock()
	if !d.serving {
		return nil, door.ErrNotServing
	}
	if d.cell.hit(d.cell.refuse) || d.cell.withdrawn[o.Transfer] {
		return nil, &door.Problem{Code: "refused", Message: "no"}
	}
	d.running[testHandOff{o.Transfer, false}] = true
	if d.cell.hit(d.cell.mute) {
		d.soon(func() { d.lose(true) })
		return nil, door.ErrNoAnswer
	}
	d.cell.offers[o.Transfer] = &testOffer{from: d, site: siteOf(d.engine), Offer: o}
	return ticketOf(o.Transfer), nil
}

// end lets go of one side of a hand-off, once.
func (d *testDoor) end(h testHandOff, events ...door.Event) {
	if d.running[h] {
		delete(d.running, h)
		d.tell(events...)
	}
}

func (c *cell) endOffer(transfer [16]byte) {
	if o := c.offers[transfer]; o != nil {
		delete(c.offers, transfer)
		if o.from == nil { // what is found stays where it is
			return
		}
		o.from.end(testHandOff{transfer, false}, door.Event{Kind: door.Freed, Transfer: transfer})
		o.tellTakers()
	}
}

func (d *testDoor) Accept(_ context.Context, a door.Accept) ([16]byte, error) {
	c := d.cell
	c.mu.Lock()
	defer c.mu.Unlock()
	if !d.serving {
		return [16]byte{}, door.ErrNotServing
	}
	transfer := [16]byte(a.Ticket[len("ticket "):])
	if c.offers[transfer] == nil || c.hit(c.refuse) {
		c.endOffer(transfer)
		return transfer, &door.Problem{Code: "unknown", Message: "there is no such offer"}
	}
	if c.hit(c.mute) {
		connection := d.losses
		d.soon(func() {
			c.mu.Lock()
			still := d.losses == connection
			if still {
				d.scribble(a) // until the connection has ended
			}
			c.mu.Unlock()
			if still {
				d.lose(true)
			}
		})
		return transfer, door.ErrNoAnswer
	}
	h := testHandOff{transfer, true}
	d.running[h] = true
	a.Begun(transfer)
	var pause time.Duration
	if c.dice != nil {
		pause = time.Duration(c.dice.IntN(c.slowest+1)) * time.Microsecond
	}
	if c.hit(c.silence) {
		return transfer, nil
	}
	fails, late := c.hit(c.fail), c.hit(c.late)
	d.later.Add(1)
	time.AfterFunc(pause, func() {
		defer d.later.Done()
		d.move(h, a, fails, late)
	})
	return transfer, nil
}

func (d *testDoor) soon(do func()) {
	d.later.Add(1)
	time.AfterFunc(5*time.Millisecond, func() {
		defer d.later.Done()
		do()
	})
}

func (d *testDoor) move(h testHandOff, a door.Accept, fails, late bool) {
	c := d.cell
	c.mu.Lock()
	defer c.mu.Unlock()
	o := c.offers[h.transfer]
	if !d.running[h] {
		return
	}
	if fails || o == nil {
		d.scribble(a)
		d.tell(door.Event{Kind: door.Failed, Transfer: h.transfer, Accepted: true, Problem: &door.Problem{Code: "lost", Message: "the peer is gone"}})
		freed := door.Event{Kind: door.Freed, Transfer: h.transfer, Accepted: true}
		c.endOffer(h.transfer)
		if !late {
			d.end(h, freed)
			return
		}
		d.soon(func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			if d.running[h] {
				d.scribble(a)
			}
			d.end(h, freed)
		})
		return
	}
	if !slices.Equal(o.Tokens, a.Tokens) || o.Scope != a.Scope {
		panic("the contents differ")
	}
	move := cacheMove{from: o.site, to: siteOf(d.engine), tokens: kv.TokenRange{Start: max(a.Present, o.first), End: len(a.Tokens)}, src: o.Tables, dst: a.Tables}
	taken := make([]int, o.all()) // tokens of each layer
	take := func() {
		if !d.running[h] {
			return
		}
		if c.offers[h.transfer] != o { // it was withdrawn, or its engine is lost
			problem := &door.Problem{Code: "withdrawn", Message: "the prefill engine has taken it back"}
			d.end(h, door.Event{Kind: door.Failed, Transfer: h.transfer, Accepted: true, Problem: problem}, door.Event{Kind: door.Freed, Transfer: h.transfer, Accepted: true})
			return
		}
		// Everything is taken once, as soon as it is said to be computed.
		for layer := range taken {
			tokens := o.computed(layer)
			bytes := move.part(layer, kv.TokenRange{Start: taken[layer], End: tokens})
			taken[layer] = tokens
			if !o.complete() {
				c.early += bytes
			}
		}
		if o.complete() {
			d.end(h, door.Event{Kind: door.Ready, Transfer: h.transfer, Accepted: true})
			c.endOffer(h.transfer)
		}
	}
	o.takers = append(o.takers, take)
	take()
}

// scribble is half a transfer: the blocks that were to be filled hold nonsense.
func (d *testDoor) scribble(a door.Accept) {
	size := d.engine.cut.BlockTokens
	for i := (a.Present + size - 1) / size; i < len(a.Tables[0]); i++ {
		for rank, arena := range d.engine.arenas {
			bytes := d.engine.cut.MemoryBytes(d.engine.source.model.Config(), rank)
			if d.engine.cut.Layout.String() == "BLHNC" { // a block is one piece
				each := bytes / int64(d.engine.cut.Blocks)
				at := each * int64(a.Tables[0][i])
				for j, b := 0, arena.Bytes(uint64(at), uint64(each)); j < len(b); j += 4 {
					binary.LittleEndian.PutUint32(b[j:], 0x7FC00000) // NaN
				}
			}
		}
	}
}

func sideOf(e *Engine) reshard.Side {
	p := e.publication()
	return reshard.Side{Geometry: p.Geometry, Parallelism: p.Parallelism, Layout: p.Layout, Packing: p.Packing, BlockTokens: p.BlockTokens, Blocks: p.Blocks}
}

// cacheMove copies tokens as a plan says.
type cacheMove struct {
	from, to site
	tokens   kv.TokenRange
	src, dst [][]uint32
}

func (m cacheMove) run() error {
	shape, err := reshard.Prepare(m.from.side, m.to.side)
	if err != nil {
		return err
	}
	plan, err := shape.Plan(reshard.Request{Tokens: m.tokens, Src: reshard.Holding{Tables: m.src}, Dst: reshard.Holding{Tables: m.dst}})
	if err != nil {
		return err
	}
	for _, f := range plan.Flows() {
		m.copy(f)
	}
	return nil
}

// part copies a layer of some tokens, and returns how many bytes that were.
func (m cacheMove) part(layer int, tokens kv.TokenRange) (bytes int) {
	if tokens.Empty() {
		return 0
	}
	shape, err := reshard.Prepare(m.from.side, m.to.side)
	var plan *reshard.Plan
	if err == nil {
		plan, err = shape.Plan(reshard.Request{Tokens: m.tokens, Src: reshard.Holding{Tables: m.src}, Dst: reshard.Holding{Tables: m.dst}})
	}
	if err != nil {
		panic(err)
	}
	for _, f := range plan.Flows() {
		some, err := f.Layers(layer, layer+1).Tokens(tokens)
		if err != nil {
			panic(err)
		}
		m.copy(some)
		bytes += int(some.Bytes())
	}
	return bytes
}

func (m cacheMove) copy(f reshard.Flow) {
	for r := range f.Runs() {
		for i := range r.Count {
			copy(m.to.bytes(f.Dst, r.Dst+i*r.DstStride, r.Length), m.from.bytes(f.Src, r.Src+i*r.SrcStride, r.Length))
		}
	}
}

func (d *testDoor) Cancel(_ context.Context, what door.Cancel) error {
	c := d.cell
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case what.Ticket != nil:
		c.endOffer([16]byte(what.Ticket[len("ticket "):]))
	case what.Offered != [16]byte{}:
		c.withdrawn[what.Offered] = true
		c.endOffer(what.Offered)
	default:
		h := testHandOff{what.Accepted, true}
		d.end(h, door.Event{Kind: door.Failed, Transfer: what.Accepted, Accepted: true}, door.Event{Kind: door.Freed, Transfer: what.Accepted, Accepted: true})
		c.endOffer(what.Accepted)
	}
	return nil
}

// lose plays the end of the connection, and after it a new one.
func (d *testDoor) lose(back bool) {
	d.cell.mu.Lock()
	defer d.cell.mu.Unlock()
	d.serving = false
	d.losses++
	for h := range d.running {
		if h.accepted {
			d.tell(door.Event{Kind: door.Failed, Transfer: h.transfer, Accepted: true, Problem: &door.Problem{Code: "gone", Message: "gone"}})
		}
		d.tell(door.Event{Kind: door.Freed, Transfer: h.transfer, Accepted: h.accepted})
		delete(d.running, h)
		if o := d.cell.offers[h.transfer]; !h.accepted && o != nil {
			delete(d.cell.offers, h.transfer)
			o.tellTakers()
		}
	}
	d.tell(door.Event{Kind: door.Fenced})
	if back {
		d.serving = true
		d.tell(door.Event{Kind: door.Serving})
	}
}

func (d *testDoor) Close(context.Context) error {
	d.lose(false)
	d.later.Wait()
	return nil
}

// join opens an engine of the cell; a nil cell means that it has no door.
func join(t testing.TB, c *cell, o Options) *Engine {
	t.Helper()
	e, _ := joinAt(t, c, o)
	return e
}

func joinAt(t testing.TB, c *cell, o Options) (*Engine, *testDoor) {
	t.Helper()
	if o.ID == "" {
		o.ID = "test"
	}
	if o.Model == "" {
		o.Model = "tiny"
	}
	if o.Blocks == 0 {
		o.Blocks = 2048 / max(o.BlockTokens, 1)
	}
	e, err := prepare(o)
	if err != nil {
		t.Fatal(err)
	}
	r, err := e.openMemory()
	if err != nil {
		t.Fatal(err)
	}
	e.runner = r
	var d *testDoor
	if c != nil {
		d = &testDoor{cell: c, engine: e, serving: true, running: make(map[testHandOff]bool)}
		e.door = d
	}
	e.start()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := e.Close(ctx); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return e, d
}

// told is everything a stream has said of one answer.
type told struct {
	Tokens        []uint32
	Text, Thought string
	Logprobs      []Logprob
	Finish        string
}

func readAll(ctx context.Context, s *Stream, choices int) ([]told, Result, error) {
	all := make([]told, choices)
	for {
		outputs, err := s.Next(ctx)
		if errors.Is(err, io.EOF) {
			return all, s.Result(), nil
		}
		if err != nil {
			return all, Result{}, err
		}
		for _, o := range outputs {
			a := &all[o.Choice]
			if a.Finish != "" {
				return nil, Result{}, fmt.Errorf("answer %d goes on after its end", o.Choice)
			}
			a.Tokens = append(a.Tokens, o.Tokens...)
			a.Text += o.Text
			a.Thought += o.Thought
			a.Logprobs = append(a.Logprobs, o.Logprobs...)
			a.Finish = o.Finish
		}
	}
}

func ask(t testing.TB, e *Engine, r Request) ([]told, Result) {
	t.Helper()
	ctx := within(t)
	s, err := e.Submit(ctx, r)
	if err != nil {
		t.Fatal(err)
	}
	all, result, err := readAll(ctx, s, len(r.Prompts)*max(r.N, 1))
	if err != nil {
		t.Fatal(err)
	}
	return all, result
}

// idle waits until nothing runs and demands that no block is missing.
func idle(t testing.TB, e *Engine) Stats {
	t.Helper()
	var s Stats
	until.Well(t, "it comes to rest", func() string {
		s = e.Stats()
		if s.Blocks.Free+s.Blocks.Cached == s.Blocks.Total && s.Blocks.Held == 0 && s.Running+s.Waiting+s.Fetching == 0 {
			return ""
		}
		return fmt.Sprintf("%+v", s)
	})
	return s
}

// ended is how many requests of some engines are over.
func ended(engines ...*Engine) (n uint64) {
	for _, e := range engines {
		c := e.Metrics()
		n += c.Finished + c.Cancelled + c.Failed
	}
	return n
}

func prompt(seed uint64, n int) []uint32 {
	dice := rand.New(rand.NewPCG(seed, 1))
	list := make([]uint32, n)
	for i := range list {
		list[i] = ' ' + dice.Uint32N(95)
	}
	return list
}
