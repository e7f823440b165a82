package doorserver_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"meridian/internal/until"
	"meridian/kv"
	"meridian/member/trust"
	"meridian/move/agent"
	"meridian/move/reshard"
	"meridian/move/transceiver"
	"meridian/move/transceiver/handoff"
	"meridian/serve/door"
	"meridian/serve/door/doorpb"
	"meridian/serve/doorserver"
)

// holder offers what a fake finds: an engine of the test, whose memory is filled.
type holder struct {
	*engine
	at         *node
	start, end int
}

// fakeOffload finds what its holders have, and keeps nothing but what it is told of.
type fakeOffload struct {
	holders []holder

	mu     sync.Mutex
	relay  *doorserver.Relay
	answer func(doorserver.Run) doorserver.Run // changes what is found
	hold   chan struct{}                       // Find waits for it, or for its context
	joined map[string]bool
	kept   []doorserver.Prefix
	offers []kv.ID
	finds  int
	found  string // whose the last Find was
}

func (f *fakeOffload) Join(engine string, _ reshard.Side) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.joined[engine] = true
	return nil
}

func (f *fakeOffload) Leave(engine string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.joined, engine)
}

func (f *fakeOffload) Keep(_ context.Context, k doorserver.Prefix) error {
	if len(k.Content.Tokens) == 0 {
		return fmt.Errorf("%w: nothing", handoff.ErrDeclined)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.kept = append(f.kept, k)
	return nil
}

// CancelKeep ends one as if nothing of it were read.
func (f *fakeOffload) CancelKeep(transfer kv.ID) {
	f.mu.Lock()
	at := slices.IndexFunc(f.kept, func(k doorserver.Prefix) bool { return k.Transfer == transfer })
	k := f.kept[at]
	f.kept = slices.Delete(f.kept, at, at+1)
	f.mu.Unlock()
	f.relay.Events(handoff.Event{Kind: handoff.Freed, As: handoff.Source, Engine: k.Engine, Transfer: transfer, Problem: handoff.ProblemOf(handoff.ErrWithdrawn)})
}

// free ends everything that is kept.
func (f *fakeOffload) free() {
	f.mu.Lock()
	kept := f.kept
	f.kept = nil
	f.mu.Unlock()
	for _, k := range kept {
		f.relay.Events(handoff.Event{Kind: handoff.Freed, As: handoff.Source, Engine: k.Engine, Transfer: k.Transfer})
	}
}

func (f *fakeOffload) Find(ctx context.Context, w doorserver.Wanted) (run doorserver.Run, err error) {
	content, present := w.Content, w.Present
	f.mu.Lock()
	f.finds++
	f.found = w.Tenant
	hold, answer := f.hold, f.answer
	f.mu.Unlock()
	if hold != nil {
		select {
		case <-hold:
		case <-ctx.Done():
			return doorserver.Run{Reason: "late"}, nil
		}
	}
	for _, h := range f.holders {
		if h.end <= present || h.end > len(content.Tokens) {
			continue
		}
		id := agent.NewID()
		out, err := h.at.transceiver.Offer(transceiver.Offer{
			Transfer: id, Engine: h.id, Content: handoff.Content{Scope: content.Scope, Tokens: content.Tokens[:h.end]},
			Holding: reshard.Holding{Tables: [][]uint32{h.blocksFor(h.end)}}, Layers: len(model.Layers),
		})
		if err != nil {
			return run, err
		}
		f.mu.Lock()
		f.offers = append(f.offers, id)
		f.mu.Unlock()
		run.Segments = append(run.Segments, doorserver.Segment{Ticket: out.Ticket, Start: max(h.start, present), End: h.end})
		run.Tokens = h.end
	}
	if answer != nil {
		run = answer(run)
	}
	return run, nil
}

func (f *fakeOffload) change(do func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	do()
}

func (f *fakeOffload) offer(i int) kv.ID {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.offers[i]
}

func (f *fakeOffload) count(of func() int) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return of()
}

// shortOffload finds that everything is too short.
type shortOffload struct{ relay *doorserver.Relay }

func (shortOffload) Join(string, reshard.Side) error { return nil }
func (shortOffload) Leave(string)                    {}
func (shortOffload) CancelKeep(kv.ID)                {}

func (f shortOffload) Keep(_ context.Context, k doorserver.Prefix) error {
	f.relay.Events(handoff.Event{Kind: handoff.Freed, As: handoff.Source, Engine: k.Engine, Transfer: k.Transfer})
	return nil
}

func (shortOffload) Find(context.Context, doorserver.Wanted) (doorserver.Run, error) {
	return doorserver.Run{Reason: "short"}, nil
}

// foundCell is an engine that finds, and two holders of parts of a prompt elsewhere.
type foundCell struct {
	*cell
	offload *fakeOffload
	reader  *engine
	here    *node
	there   [2]*node
}

func newFoundCell(t *testing.T, fabric string) *foundCell {
	c := &foundCell{cell: newCell(t, fabric), offload: &fakeOffload{joined: make(map[string]bool)}}
	shape := prefillCut
	shape.blocks = 2048 // offers of the same blocks are counted one by one
	for i, ends := range [][2]int{{0, 64}, {64, 128}} {
		at := c.start(fmt.Sprintf("n%d", i))
		e := c.engine(fmt.Sprintf("holder%d", i), at, shape)
		e.fill(e.blocksFor(ends[1]), ends[1])
		e.each(e.blocksFor(ends[0]), ends[0], func(at *byte, _ byte) { *at = 0 }) // it has not what is before
		c.there[i] = at
		c.offload.holders = append(c.offload.holders, holder{e, at, ends[0], ends[1]})
	}
	c.here = c.start("here", func(o *doorserver.Options) {
		o.Offload, o.CacheTerms, o.RequireLeg, o.RequireCacheLeg = c.offload, door.CacheTerms{BlockTokens: 64, FindWait: 300 * time.Microsecond}, true, true
		c.offload.relay = o.Relay
	})
	c.reader = c.engine("reader", c.here, decodeCut)
	return c
}

// legFor is a gateway's word for a request of a tenant.
func legFor(engine, tenant string) []byte {
	return trust.Leg{Kind: trust.LegDecode, ID: [16]byte{1}, Engine: engine, Tenant: tenant}.Seal(legKey)
}

func (c *foundCell) finds(t *testing.T) door.Found {
	t.Helper()
	found, err := c.reader.Find(soon(t), door.Find{Tokens: prompt(150), Within: time.Second, Leg: legFor("reader", "team")})
	if err != nil || found.Tokens != 128 {
		t.Fatalf("found %d tokens: %s, %v", found.Tokens, found.Reason, err)
	}
	return found
}

func (c *foundCell) accepts(t *testing.T, found door.Found) [16]byte {
	t.Helper()
	id, err := c.reader.Accept(soon(t), door.Accept{Ticket: found.Ticket, Tokens: prompt(found.Tokens), Tables: [][]uint32{c.reader.blocksFor(found.Tokens)}})
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// quiet says that no offer of the holders stands, and no accept. Waiting for an offer to
// expire is not how it should come to that.
func (c *foundCell) quiet() bool {
	for _, n := range c.there {
		if n.transceiver.Metrics().Expired > 0 {
			c.t.Error("an offer was not given back, and expired")
		}
	}
	return c.there[0].transceiver.Metrics().Offers == 0 && c.there[1].transceiver.Metrics().Offers == 0 && c.here.transceiver.Metrics().Accepts == 0
}

// only says that a transfer is told of by these events and no others.
func (e *engine) only(t *testing.T, transfer [16]byte, kinds ...door.EventKind) {
	t.Helper()
	for _, kind := range kinds {
		e.hears(t, kind, transfer)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if i := slices.IndexFunc(e.events, func(event door.Event) bool { return event.Transfer != [16]byte{} }); i >= 0 {
		t.Errorf("besides, it hears %v of %x", e.events[i].Kind, e.events[i].Transfer)
	}
}

// What is kept and found is a tenant's whom the leg names: no engine says it by itself, nor with
// the leg of another. Where none is required and none came it is the engine's own.
func TestLegsOfKeepsAndFinds(t *testing.T) {
	for _, requires := range []bool{true, false} {
		c := newCell(t, "tcp")
		offload := &fakeOffload{joined: make(map[string]bool)}
		n := c.start("n", func(o *doorserver.Options) {
			o.Offload, o.CacheTerms, o.RequireCacheLeg = offload, door.CacheTerms{BlockTokens: 64}, requires
			offload.relay = o.Relay
		})
		e := c.engine("e", n, prefillCut)
		try := func(leg []byte) (err, other error) {
			_, err = e.Find(soon(t), door.Find{Tokens: prompt(150), Within: time.Second, Leg: leg})
			other = e.Keep(soon(t), door.Keep{Transfer: agent.NewID(), Tokens: prompt(20), Tables: [][]uint32{{1, 2}}, Leg: leg})
			return err, other
		}
		inAnotherCell := trust.Leg{Kind: trust.LegDecode, ID: [16]byte{1}, Engine: "e", Tenant: "team"}.Seal([32]byte{9})
		bad := map[string][]byte{"of another cell": inAnotherCell, "another engine's": legFor("other", "team"), "that is none": []byte("team")}
		if requires {
			bad["none"] = nil
		}
		for name, leg := range bad {
			find, keep := try(leg)
			for what, err := range map[string]error{"Find": find, "Keep": keep} {
				var refused *door.Problem
				if !errors.As(err, &refused) || refused.Code != door.CodeLeg {
					t.Errorf("legs required %v: a %s with a leg %s: %v", requires, what, name, err)
				}
			}
		}
		good := map[string][]byte{"team": legFor("e", "team"), "": legFor("e", "")}
		if !requires {
			good["engine"] = nil
		}
		for name, leg := range good {
			find, keep := try(leg)
			want := name
			if leg == nil {
				want = ""
			}
			offload.mu.Lock()
			if find != nil || keep != nil || offload.found != want || offload.kept[len(offload.kept)-1].Tenant != want {
				t.Errorf("legs required %v, of %q: %v, %v, found for %q, kept %+v", requires, name, find, keep, offload.found, offload.kept)
			}
			offload.mu.Unlock()
		}
		offload.free()
	}
}

// What two holders have comes as one hand-off, without a gateway's leg.
func TestFoundInParts(t *testing.T) {
	for _, fabric := range []string{"tcp", "host"} {
		t.Run(fabric, func(t *testing.T) {
			c := newFoundCell(t, fabric)
			if terms, has := c.reader.Cache(); !has || terms.BlockTokens != 64 || terms.FindWait != 300*time.Microsecond {
				t.Errorf("the terms are %+v, %v", terms, has)
			}
			found := c.finds(t)
			id := c.accepts(t, found)
			c.reader.only(t, id, door.Ready)
			if n := c.reader.wrong(c.reader.blocksFor(128), 128); n > 0 {
				t.Errorf("%d bytes are wrong", n)
			}
			if n := c.here.transceiver.Metrics().BytesReady; n != 128*512 { // K and V of 4 layers, 4 heads, 8 elements of 2 bytes
				t.Errorf("%d bytes came, of 128 tokens", n)
			}
			until.True(t, "nothing is left", c.quiet)
			_, err := c.reader.Accept(soon(t), door.Accept{Ticket: found.Ticket, Tokens: prompt(128), Tables: [][]uint32{c.reader.blocksFor(128)}})
			refusedWith(t, err, "used")
		})
	}
}

// What the engine has already is not fetched.
func TestFoundBeyondWhatIsPresent(t *testing.T) {
	c := newFoundCell(t, "tcp")
	found := c.finds(t)
	blocks := c.reader.blocksFor(128)
	id, err := c.reader.Accept(soon(t), door.Accept{Ticket: found.Ticket, Tokens: prompt(128), Tables: [][]uint32{blocks}, Present: 72})
	if err != nil {
		t.Fatal(err)
	}
	c.reader.only(t, id, door.Ready)
	c.reader.fill(blocks, 72)
	if n := c.reader.wrong(blocks, 128); n > 0 {
		t.Errorf("%d bytes are wrong", n)
	}
	until.True(t, "nothing is left", c.quiet)
	if n := c.there[0].transceiver.Metrics().Freed; n != 1 {
		t.Errorf("%d offers of what is present were given back", n)
	}
}

// An engine that has lost what was present when it asked is refused: no transfer would fill it.
func TestFoundBeyondWhatIsPresentNoMore(t *testing.T) {
	c := newFoundCell(t, "tcp")
	for had, has := range map[int]int{40: 0, 72: 71} { // in the first part, and in the second
		found, err := c.reader.Find(soon(t), door.Find{Tokens: prompt(150), Present: had, Within: time.Second, Leg: legFor("reader", "")})
		if err != nil || found.Tokens != 128 {
			t.Fatal(found, err)
		}
		_, err = c.reader.Accept(soon(t), door.Accept{Ticket: found.Ticket, Tokens: prompt(128), Tables: [][]uint32{c.reader.blocksFor(128)}, Present: has})
		refusedWith(t, err, door.CodeRequest)
		until.True(t, "nothing is left", c.quiet)
	}
}

// A part that does not come is told once, and the blocks are the engine's when all
// parts are quiet.
func TestFoundPartFails(t *testing.T) {
	spoil := map[string]func(*foundCell, door.Found){
		"withdrawn": func(c *foundCell, _ door.Found) { c.there[1].transceiver.Withdraw(c.offload.offer(1)) },
		"the first": func(c *foundCell, _ door.Found) { c.there[0].transceiver.Withdraw(c.offload.offer(0)) },
		"gone":      func(c *foundCell, _ door.Found) { c.offload.holders[1].leave(c.t) },
	}
	for name, do := range spoil {
		t.Run(name, func(t *testing.T) {
			c := newFoundCell(t, "tcp")
			found := c.finds(t)
			do(c, found)
			id := c.accepts(t, found)
			c.reader.only(t, id, door.Failed, door.Freed)
			until.True(t, "nothing is left", c.quiet)
		})
	}
}

// A part that is refused while others have begun is told by events; where none has
// begun the engine is refused.
func TestFoundPartIsRefused(t *testing.T) {
	for refused, name := range []string{"the first", "the second"} {
		t.Run(name, func(t *testing.T) {
			c := newFoundCell(t, "tcp")
			c.offload.change(func() {
				c.offload.answer = func(r doorserver.Run) doorserver.Run {
					// A ticket of another prompt: the taker refuses it by itself.
					home := c.there[refused]
					out, err := home.transceiver.Offer(transceiver.Offer{
						Transfer: agent.NewID(), Engine: c.offload.holders[refused].id, Content: handoff.Content{Tokens: make([]uint32, r.Segments[refused].End)},
						Holding: reshard.Holding{Tables: [][]uint32{c.offload.holders[refused].blocksFor(128)}}, Layers: len(model.Layers),
					})
					if err != nil {
						t.Error(err)
						return r
					}
					if err := c.here.transceiver.ReturnTicket(r.Segments[refused].Ticket); err != nil {
						t.Error(err)
					}
					r.Segments[refused].Ticket = out.Ticket
					return r
				}
			})
			found := c.finds(t)
			id, err := c.reader.Accept(soon(t), door.Accept{Ticket: found.Ticket, Tokens: prompt(128), Tables: [][]uint32{c.reader.blocksFor(128)}})
			if refused == 0 {
				refusedWith(t, err, "other_model")
			} else {
				c.reader.only(t, id, door.Failed, door.Freed)
			}
			until.True(t, "nothing is left", c.quiet)
		})
	}
}

// Cancel ends all parts, and a ticket that is not used gives all of them back.
func TestFoundIsNotWanted(t *testing.T) {
	c := newFoundCell(t, "tcp")
	id := c.accepts(t, c.finds(t))
	if err := c.reader.Cancel(soon(t), door.Cancel{Accepted: id}); err != nil {
		t.Fatal(err)
	}
	c.reader.heard(t, "an end", func(e door.Event) bool { return e.Transfer == id && e.Kind != door.Failed })
	found := c.finds(t)
	if err := c.reader.Cancel(soon(t), door.Cancel{Ticket: found.Ticket}); err != nil {
		t.Fatal(err)
	}
	until.True(t, "nothing is left", c.quiet)
	if err := c.reader.Cancel(soon(t), door.Cancel{Ticket: found.Ticket}); err != nil {
		t.Errorf("once more: %v", err)
	}
	found = c.finds(t)
	_, err := c.reader.Accept(soon(t), door.Accept{Ticket: found.Ticket, Tokens: prompt(127), Tables: [][]uint32{c.reader.blocksFor(127)}})
	refusedWith(t, err, "request")
	until.True(t, "nothing is left", c.quiet)
}

// What was found for an engine that is gone is given back, and so is what an engine
// never uses when much else was found since.
func TestFoundIsForgotten(t *testing.T) {
	c := newFoundCell(t, "tcp")
	first := c.finds(t)
	for range 64 {
		c.finds(t)
	}
	until.True(t, "the oldest is given back", func() bool { return c.there[0].transceiver.Metrics().Offers == 64 })
	_, err := c.reader.Accept(soon(t), door.Accept{Ticket: first.Ticket, Tokens: prompt(128), Tables: [][]uint32{c.reader.blocksFor(128)}})
	refusedWith(t, err, "used")
	c.reader.leave(t)
	until.True(t, "nothing is left", c.quiet)
	if n := c.offload.count(func() int { return len(c.offload.joined) }); n > 0 {
		t.Errorf("%d engines have not left", n)
	}
}

// What agents say that cannot be is a miss.
func TestFoundCannotBe(t *testing.T) {
	c := newFoundCell(t, "tcp")
	for name, spoil := range map[string]func(r *doorserver.Run){
		"a gap":         func(r *doorserver.Run) { r.Segments[1].Start++ },
		"backwards":     func(r *doorserver.Run) { r.Segments[0].Start = 64 },
		"longer":        func(r *doorserver.Run) { r.Tokens++ },
		"no ticket":     func(r *doorserver.Run) { r.Segments[1].Ticket = []byte("MRDT") },
		"five segments": func(r *doorserver.Run) { r.Segments = slices.Repeat(r.Segments, 3) },
		"beyond": func(r *doorserver.Run) {
			r.Tokens, r.Segments = 200, []doorserver.Segment{{Ticket: r.Segments[0].Ticket, End: 200}}
		},
	} {
		c.offload.change(func() { c.offload.answer = func(r doorserver.Run) doorserver.Run { spoil(&r); return r } })
		found, err := c.reader.Find(soon(t), door.Find{Tokens: prompt(150), Within: time.Second, Leg: legFor("reader", "team")})
		if err != nil || found.Tokens != 0 || found.Ticket != nil || found.Reason != "broken" {
			t.Errorf("%s: %+v, %v", name, found, err)
		}
	}
	until.True(t, "all but what has no ticket is given back", func() bool {
		return c.there[0].transceiver.Metrics().Offers == 0 && c.there[1].transceiver.Metrics().Offers <= 2
	})
}

// Finds have a limit and a deadline, hold nothing else up, and end with their engine.
func TestFindsAreBounded(t *testing.T) {
	c := newFoundCell(t, "tcp")
	if found, err := c.reader.Find(soon(t), door.Find{Tokens: prompt(10), Leg: legFor("reader", "")}); err != nil || found.Tokens != 0 {
		t.Errorf("a miss: %+v, %v", found, err)
	}
	c.offload.change(func() { c.offload.hold = make(chan struct{}) })
	began := time.Now()
	if found, err := c.reader.Find(soon(t), door.Find{Tokens: prompt(150), Within: 5 * time.Millisecond, Leg: legFor("reader", "")}); err != nil || found.Reason != "late" {
		t.Errorf("after %v: %+v, %v", time.Since(began), found, err)
	}
	_, err := c.reader.Find(soon(t), door.Find{Tokens: prompt(3), Present: 4, Leg: legFor("reader", "")})
	refusedWith(t, err, "request")
	_, err = c.reader.Find(soon(t), door.Find{Tokens: make([]uint32, door.MaxPrefixTokens+1), Leg: legFor("reader", "")})
	refusedWith(t, err, "size")
	var all sync.WaitGroup
	before := c.offload.count(func() int { return c.offload.finds })
	for range door.MaxFinds {
		all.Go(func() {
			_, err := c.reader.Find(soon(t), door.Find{Tokens: prompt(150), Within: time.Minute, Leg: legFor("reader", "")})
			if err != nil && !errors.Is(err, door.ErrLost) && !errors.Is(err, door.ErrClosed) {
				t.Error(err)
			}
		})
	}
	until.True(t, "all are under way", func() bool { return c.offload.count(func() int { return c.offload.finds }) == before+door.MaxFinds })
	_, err = c.reader.Find(soon(t), door.Find{Tokens: prompt(150), Leg: legFor("reader", "")})
	refusedWith(t, err, "busy")
	if err := c.reader.Cancel(soon(t), door.Cancel{Offered: agent.NewID()}); err != nil {
		t.Errorf("something else: %v", err)
	}
	began = time.Now()
	c.reader.leave(t)
	all.Wait()
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("it took %v to end", took)
	}
}

// What is kept is the engine's again when that is said, and not before.
func TestKeep(t *testing.T) {
	c := newFoundCell(t, "tcp")
	e := c.reader
	keep := door.Keep{Transfer: agent.NewID(), Leg: legFor("reader", ""), Scope: kv.Scope{Salt: "s"}, Tokens: prompt(64), Tables: [][]uint32{e.blocksFor(64)}}
	if err := e.Keep(soon(t), keep); err != nil {
		t.Fatal(err)
	}
	refusedWith(t, e.Keep(soon(t), keep), "contradiction")
	c.offload.mu.Lock()
	k := c.offload.kept[0]
	c.offload.mu.Unlock()
	if k.Engine != "reader" || k.Transfer != keep.Transfer || k.Content.Scope != (kv.Scope{Model: "m", Revision: "1", Salt: "s"}) || len(k.Content.Tokens) != 64 || len(k.Holding.Tables) != 1 {
		t.Errorf("%+v is kept", k)
	}
	other := keep
	other.Transfer = agent.NewID()
	if err := e.Keep(soon(t), other); err != nil {
		t.Fatal(err)
	}
	if err := e.Cancel(soon(t), door.Cancel{Offered: other.Transfer}); err != nil {
		t.Error(err)
	}
	if event := e.hears(t, door.Freed, other.Transfer); event.Accepted || event.Problem == nil || event.Problem.Code != "withdrawn" {
		t.Errorf("%+v of one that was cancelled", event)
	}
	c.offload.free()
	if event := e.hears(t, door.Freed, keep.Transfer); event.Accepted || event.Problem != nil {
		t.Errorf("%+v", event)
	}
	refusedWith(t, e.Keep(soon(t), door.Keep{Leg: legFor("reader", ""), Transfer: agent.NewID()}), "declined")
	refusedWith(t, e.Keep(soon(t), door.Keep{Leg: legFor("reader", ""), Transfer: agent.NewID(), Tokens: make([]uint32, door.MaxPrefixTokens+1)}), "size")
	refusedWith(t, e.Keep(soon(t), door.Keep{Leg: legFor("reader", ""), Transfer: agent.NewID(), Tokens: make([]uint32, 4), Tables: [][]uint32{make([]uint32, door.MaxKeptBlocks), {1}}}), "size")
	for i := range 256 {
		keep.Transfer = [16]byte{1, byte(i)}
		if err := e.Keep(soon(t), keep); err != nil {
			t.Fatal(err)
		}
	}
	keep.Transfer = agent.NewID()
	refusedWith(t, e.Keep(soon(t), keep), "busy")
	c.offload.free()
	e.hears(t, door.Freed, [16]byte{1, 255})
	if err := e.Keep(soon(t), keep); err != nil {
		t.Errorf("afterwards: %v", err)
	}
	e.leave(t) // with one under way
	e.hears(t, door.Freed, keep.Transfer)
}

// Who keeps no prefixes says so, and an engine that was not told of the feature knows
// it without asking.
func TestNoPrefixes(t *testing.T) {
	c := newCell(t, "tcp")
	n := c.start("n")
	e := c.engine("e", n, prefillCut)
	if _, has := e.Cache(); has {
		t.Error("it is said to keep prefixes")
	}
	if _, err := e.Find(soon(t), door.Find{Tokens: prompt(1)}); !errors.Is(err, door.ErrNoCache) {
		t.Errorf("Find: %v", err)
	}
	if err := e.Keep(soon(t), door.Keep{Transfer: agent.NewID(), Tokens: prompt(1)}); !errors.Is(err, door.ErrNoCache) {
		t.Errorf("Keep: %v", err)
	}
	wire, _ := greet(t, n, &doorpb.Hello{Engine: "other", As: &doorpb.Hello_Control{Control: &doorpb.Control{Role: "both"}}})
	if err := wire.Send(doorpb.FrameType_FRAME_TYPE_FIND, &doorpb.Find{Request: 1}, nil); err != nil {
		t.Fatal(err)
	}
	if f, err := wire.Read(door.MaxFrameBytes); err != nil || codeOf(t, f) != "unsupported" {
		t.Errorf("Find: %v", err)
	}
}

// A gateway learns from the directory who keeps and finds, and in pieces of which size.
func TestRecordSaysWhoKeeps(t *testing.T) {
	c := newFoundCell(t, "tcp")
	for id, at := range map[string]struct {
		node   *node
		tokens int
	}{"reader": {c.here, 64}, "holder0": {c.there[0], 0}} {
		until.True(t, id+" has its record", func() bool { _, there := at.node.record(t, id); return there })
		if r, _ := at.node.record(t, id); r.CacheTokens != at.tokens {
			t.Errorf("%s keeps pieces of %d tokens, want %d", id, r.CacheTokens, at.tokens)
		}
	}
}
