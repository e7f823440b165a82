package prefix_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"meridian/internal/until"
	"meridian/keep/prefix"
	"meridian/keep/store"
	"meridian/kv"
	"meridian/move/agent"
	"meridian/move/transceiver/handoff"
)

const arenaBytes = 16 << 20

var (
	publisher = shape{tp: 2, blockTokens: 16, blocks: 64, layout: "LFBNHD"}
	reader    = shape{tp: 1, blockTokens: 24, blocks: 64, layout: "BLNFHD"}
	large     = shape{tp: 2, blockTokens: 16, blocks: 4096, layout: "LFBNHD"} // has room for long prompts
)

// What an engine has kept, one with another split, another block size and another layout
// finds on another agent, byte by byte; what is behind the last whole unit is not kept.
func TestKeepAndFind(t *testing.T) {
	for _, fabric := range []string{"inproc", "tcp", "host"} {
		t.Run(fabric, func(t *testing.T) {
			c := newCell(t, fabric)
			a, b := c.start("a", nodeOptions{keeps: arenaBytes}), c.start("b", nodeOptions{})
			writer, other := c.engine("writer", publisher, a), c.engine("reader", reader, b)
			p := prompt(300, 1)
			if e := writer.keep(t, p); e.Problem.Err() != nil {
				t.Fatal(e.Problem.Err())
			}
			a.settled(t)
			found := other.find(t, p, 0)
			if found.Tokens != 256 || len(found.Segments) != 1 || found.Segments[0].Owner != "a" || found.Reason != "" {
				t.Fatalf("%+v", found)
			}
			blocks, err := other.accept(t, p, found)
			if err != nil {
				t.Fatal(err)
			}
			if wrong := other.wrong(blocks, p, kv.TokenRange{End: 256}); wrong > 0 {
				t.Fatalf("%d bytes are wrong", wrong)
			}
			until.True(t, "its units are let go", func() bool { return a.Metrics().Granted == 0 })

			longer, else1 := prompt(500, 1), prompt(300, 2)
			if found := other.find(t, longer, 0); found.Tokens != 256 || found.Reason != "miss" {
				t.Fatalf("of a longer prompt: %+v", found)
			}
			if found := other.find(t, else1, 0); found.Tokens != 0 || found.Reason != "miss" {
				t.Fatalf("of another prompt: %+v", found)
			}
			if found := other.find(t, prompt(60, 1), 0); found.Tokens != 0 || found.Reason != "short" {
				t.Fatalf("of a short prompt: %+v", found)
			}
			m := b.Metrics()
			if m.TokensFound != 512 || m.Finds["whole"] != 1 || m.Finds["part"] != 1 || m.Finds["miss"] != 1 || m.Finds["short"] != 1 {
				t.Errorf("%+v", m)
			}
		})
	}
}

// An engine that has a part already takes the rest, from the middle of a unit on.
func TestFindBehindWhatIsPresent(t *testing.T) {
	c := newCell(t, "inproc")
	a, b := c.start("a", nodeOptions{keeps: arenaBytes}), c.start("b", nodeOptions{})
	writer, other := c.engine("writer", publisher, a), c.engine("reader", reader, b)
	p := prompt(320, 1)
	writer.keep(t, p)
	a.settled(t)
	found := other.find(t, p, 168)
	if found.Tokens != 320 || len(found.Segments) != 1 || found.Segments[0].Start != 168 {
		t.Fatalf("%+v", found)
	}
	blocks, err := other.accept(t, p, found)
	if err != nil {
		t.Fatal(err)
	}
	if wrong := other.wrong(blocks, p, kv.TokenRange{Start: 168, End: 320}); wrong > 0 {
		t.Fatalf("%d bytes are wrong", wrong)
	}
	if found := other.find(t, p, 320); found.Tokens != 0 {
		t.Fatalf("of what is all there: %+v", found)
	}
}

// Engines that keep the same prompt at once write it once, also on two agents; and what is
// kept already is not written again.
func TestKeptOnce(t *testing.T) {
	c := newCell(t, "inproc")
	a, b := c.start("a", nodeOptions{keeps: arenaBytes}), c.start("b", nodeOptions{keeps: arenaBytes})
	engines := []*engine{c.engine("w1", publisher, a), c.engine("w2", reader, a), c.engine("w3", publisher, b)}
	p := prompt(640, 1)
	var wait sync.WaitGroup
	for _, e := range engines {
		wait.Go(func() { e.keep(t, p) })
	}
	wait.Wait()
	count := func() (units uint64) {
		for _, n := range []*node{a, b} {
			n.settled(t)
			stats, _ := n.store.Kept()
			units += stats.Ready
			if m := n.Metrics(); m.UnitsTaken != stats.Ready {
				t.Errorf("%s: %d units were written, %d are there", n.name, m.UnitsTaken, stats.Ready)
			}
		}
		return units
	}
	// Where both owners claimed units at once, some may be left for the next to keep.
	until.True(t, "all is kept", func() bool {
		if count() == 10 {
			return true
		}
		engines[0].keep(t, p)
		return false
	})
	if engines[0].keep(t, p); count() != 10 {
		t.Errorf("%d units of 10 are kept", count())
	}
	found := engines[2].find(t, p, 0)
	blocks, err := engines[2].accept(t, p, found)
	if err != nil || found.Tokens != 640 {
		t.Fatalf("%+v: %v", found, err)
	}
	if wrong := engines[2].wrong(blocks, p, kv.TokenRange{End: 640}); wrong > 0 {
		t.Fatalf("%d bytes are wrong", wrong)
	}
}

// A longer prompt adds what is new to what is kept, and what several owners have comes as
// segments side by side, four at most.
func TestSegments(t *testing.T) {
	c := newCell(t, "inproc")
	var nodes []*node
	var engines []*engine
	for i := range 5 {
		n := c.start(string(rune('a'+i)), nodeOptions{keeps: arenaBytes})
		nodes, engines = append(nodes, n), append(engines, c.engine("w"+n.name, publisher, n))
	}
	other := c.engine("reader", reader, nodes[4])
	whole := prompt(5*128, 1)
	for i, e := range engines {
		part := whole
		part.Tokens = whole.Tokens[:(i+1)*128]
		e.keep(t, part)
		nodes[i].settled(t)
		if stats, _ := nodes[i].store.Kept(); stats.Ready != 2 {
			t.Fatalf("%s keeps %d units, and 2 were new", nodes[i].name, stats.Ready)
		}
	}
	found := other.find(t, whole, 0)
	if len(found.Segments) != prefix.MaxSegments || found.Tokens != 4*128 || found.Reason != "miss" {
		t.Fatalf("%+v", found)
	}
	blocks, err := other.accept(t, whole, found)
	if err != nil {
		t.Fatal(err)
	}
	if wrong := other.wrong(blocks, whole, kv.TokenRange{End: found.Tokens}); wrong > 0 {
		t.Fatalf("%d bytes are wrong", wrong)
	}
	for _, n := range nodes {
		until.True(t, "units are let go", func() bool { return n.Metrics().Granted == 0 })
	}
}

// A byte that changed in the arena is a miss, never data; and it can be kept again.
func TestBrokenUnit(t *testing.T) {
	c := newCell(t, "inproc")
	a, b := c.start("a", nodeOptions{keeps: arenaBytes}), c.start("b", nodeOptions{})
	writer, other := c.engine("writer", publisher, a), c.engine("reader", reader, b)
	p := prompt(320, 1)
	writer.keep(t, p)
	a.settled(t)
	objects, err := a.store.List(soon(t), store.ListOptions{AllTenants: true})
	if err != nil || len(objects) != 5 {
		t.Fatal(objects, err)
	}
	for _, o := range objects {
		if !strings.HasPrefix(o.Key, "kv/") || o.Tenant == p.Scope.Salt {
			t.Fatalf("%+v", o)
		}
	}
	at, err := a.store.Locate(soon(t), objects[2].Key, store.LocateOptions{Tenant: objects[2].Tenant})
	if err != nil {
		t.Fatal(err)
	}
	a.store.Arena().Bytes(at.Offset, at.Bytes)[77] ^= 4
	found := other.find(t, p, 0)
	if found.Tokens >= 320 || found.Tokens%64 != 0 || found.Reason != "miss" || a.Metrics().Broken == 0 {
		t.Fatalf("%+v", found)
	}
	if found.Tokens > 0 {
		blocks, err := other.accept(t, p, found)
		if err != nil {
			t.Fatal(err)
		}
		if wrong := other.wrong(blocks, p, kv.TokenRange{End: found.Tokens}); wrong > 0 {
			t.Fatalf("%d bytes are wrong", wrong)
		}
	}
	writer.keep(t, p)
	a.settled(t)
	if found := other.find(t, p, 0); found.Tokens != 320 {
		t.Fatalf("kept again: %+v", found)
	}
}

// A tenant never finds what another has kept.
func TestTenants(t *testing.T) {
	c := newCell(t, "inproc")
	a := c.start("a", nodeOptions{keeps: arenaBytes})
	writer, other := c.engine("writer", publisher, a), c.engine("reader", reader, a)
	p := prompt(256, 1)
	writer.keep(t, p)
	a.settled(t)
	for what, change := range map[string]func(*kv.Scope){
		"salt": func(s *kv.Scope) { s.Salt = "another" }, "no salt": func(s *kv.Scope) { s.Salt = "" }, "model": func(s *kv.Scope) { s.Model = "another" },
		"revision": func(s *kv.Scope) { s.Revision = "2" }, "adapter": func(s *kv.Scope) { s.Adapter = "lora" }, "media": func(s *kv.Scope) { s.Media = "image" },
	} {
		q := p
		change(&q.Scope)
		if found := other.find(t, q, 0); found.Tokens != 0 || found.Reason != "miss" {
			t.Errorf("with another %s: %+v", what, found)
		}
	}
	if found := other.find(t, p, 0); found.Tokens != 256 {
		t.Errorf("%+v", found)
	}
}

// An owner that dies after it has granted is a hand-off that fails; an owner that is silent
// is a miss when the time is over. Neither leaves anything behind.
func TestOwnerDies(t *testing.T) {
	c := newCell(t, "inproc")
	m := c.start("m", nodeOptions{})
	a := c.start("a", nodeOptions{keeps: arenaBytes})
	b := c.start("b", nodeOptions{offload: func(o *prefix.Options) { o.FindTimeout = 300 * time.Millisecond }})
	writer, other := c.engine("writer", publisher, a), c.engine("reader", reader, b)
	p := prompt(256, 1)
	writer.keep(t, p)
	a.settled(t)
	var found prefix.Found
	until.True(t, "it is found", func() bool { found = other.find(t, p, 0); return found.Tokens == 256 })
	a.kill(t)
	ctx, cancel := context.WithTimeout(soon(t), time.Second)
	defer cancel()
	if _, err := other.acceptWithin(ctx, t, p, found); err == nil {
		t.Fatal("the cache of an owner that is dead arrived")
	}
	began := time.Now()
	if found := other.find(t, p, 0); found.Tokens != 0 || found.Reason == "" {
		t.Fatalf("%+v", found)
	}
	if took := time.Since(began); took > patience/2 {
		t.Fatalf("a miss took %v", took)
	}
	if offers := a.transceiver.Metrics().Offers; offers > 0 {
		until.True(t, "offers end", func() bool { return a.transceiver.Metrics().Offers == 0 })
	}
	until.True(t, "units are let go", func() bool { return a.Metrics().Granted == 0 })
	_ = m
}

// What is too much at a time goes piece after piece; what no piece has room for is dropped.
func TestKeepInPieces(t *testing.T) {
	c := newCell(t, "inproc")
	unit := uint64(64 * 3 * 2 * 4 * 8 * 2)
	a := c.start("a", nodeOptions{keeps: arenaBytes, offload: func(o *prefix.Options) { o.MaxBytesInFlight = 5 * unit }})
	b := c.start("b", nodeOptions{offload: func(o *prefix.Options) { o.MaxBytesInFlight = unit - 1 }})
	writer, small := c.engine("writer", large, a), c.engine("small", publisher, b)
	p := prompt(40*64+5, 1)
	if e := writer.keep(t, p); e.Problem.Err() != nil {
		t.Fatal(e.Problem.Err())
	}
	a.settled(t)
	m := a.Metrics()
	if m.UnitsKept != 40 || m.UnitsTaken != 40 || m.BytesKept != 40*unit || m.BytesInFlight != 0 || m.Keeps["kept"] != 1 {
		t.Fatalf("%+v", m)
	}
	found := writer.find(t, p, 0)
	got, err := writer.accept(t, p, found)
	if err != nil || found.Tokens != 40*64 {
		t.Fatalf("%+v: %v", found, err)
	}
	if n := writer.wrong(got, p, kv.TokenRange{End: found.Tokens}); n > 0 {
		t.Errorf("%d bytes are wrong", n)
	}
	if e := small.keep(t, prompt(64, 2)); e.Problem.Err() == nil || b.Metrics().Keeps["dropped"] != 1 {
		t.Errorf("a unit was kept that is larger than all that may be on its way: %v", b.Metrics().Keeps)
	}
	blocks := writer.blocksFor(64, 1)
	if err := a.Keep(soon(t), prefix.Keep{Engine: "stranger", Transfer: agent.NewID(), Content: prompt(64, 1), Holding: holding(blocks)}); err == nil {
		t.Fatal("an engine that is not known keeps")
	}
}

// Of a prompt that is longer than an owner's memory the beginning is kept, and counted as that.
func TestKeptInPart(t *testing.T) {
	c := newCell(t, "inproc")
	unit := uint64(64 * 3 * 2 * 4 * 8 * 2)
	var kept recorder
	a := c.start("a", nodeOptions{keeps: 1 << 20, store: func(o *store.Options) { o.Owner.Headers = 128 }, offload: func(o *prefix.Options) { o.MaxBytesInFlight, o.Ended = 8*unit, kept.add }})
	writer := c.engine("writer", large, a)
	p := prompt(60*64, 1)
	writer.keep(t, p)
	a.settled(t)
	m, record := a.Metrics(), kept.next(t, 0)
	stats, _ := a.store.Kept()
	if units := int(m.UnitsKept); units < 16 || units >= 60 || m.Keeps["part"] != 1 || record.InParts() != units*64 || stats.Ready != m.UnitsKept || stats.Evictions > 0 {
		t.Errorf("%+v, %+v, %+v", m, record, stats)
	}
	if units := writer.findOnly(t, p) / 64; units < 16 || units > int(m.UnitsKept) { // half of the memory may be held
		t.Errorf("%d of %d units can be found", units, m.UnitsKept)
	}
}

// Keeps of one request keep on top of one another, however soon they come.
func TestKeepsOfARequest(t *testing.T) {
	c := newCell(t, "tcp")
	unit := uint64(64 * 3 * 2 * 4 * 8 * 2)
	a := c.start("a", nodeOptions{keeps: arenaBytes, offload: func(o *prefix.Options) { o.MaxBytesInFlight = 5 * unit }})
	writer := c.engine("writer", large, a)
	p := prompt(32*64, 1)
	blocks := writer.blocksFor(len(p.Tokens), 3)
	writer.fill(blocks, p)
	var ids []kv.ID
	for tokens := 4 * 64; tokens <= len(p.Tokens); tokens += 4 * 64 {
		whole := p
		whole.Tokens = p.Tokens[:tokens]
		ids = append(ids, agent.NewID())
		if err := a.Keep(soon(t), prefix.Keep{Engine: "writer", Request: "r", Transfer: ids[len(ids)-1], Content: whole, Holding: holding(blocks[:tokens/large.blockTokens])}); err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range ids {
		if e := a.awaitFreed(t, id); e.Problem.Err() != nil {
			t.Error(e.Problem.Err())
		}
	}
	a.settled(t)
	if m := a.Metrics(); m.UnitsKept != 32 || m.Keeps["kept"] != 8 {
		t.Errorf("%+v", m)
	}
}

// A Keep that is cancelled frees its blocks at once, though its owner says nothing.
func TestCancelKeep(t *testing.T) {
	c := newCell(t, "inproc")
	a, b := c.start("a", nodeOptions{keeps: arenaBytes}), c.start("b", nodeOptions{})
	until.True(t, "the owner is known", func() bool { return len(b.store.Owners()) == 1 })
	if err := a.Close(soon(t)); err != nil { // hears, does not answer
		t.Fatal(err)
	}
	inbox, err := a.agent.Listen("MRDK", agent.InboxLimits{})
	if err != nil {
		t.Fatal(err)
	}
	defer a.agent.Unlisten("MRDK")
	writer := c.engine("writer", publisher, b)
	id := agent.NewID()
	if err := b.Keep(soon(t), prefix.Keep{Engine: "writer", Transfer: id, Content: prompt(256, 1), Holding: holding(writer.blocksFor(256, 3))}); err != nil {
		t.Fatal(err)
	}
	<-inbox
	b.CancelKeep(agent.NewID()) // of none that is under way
	b.CancelKeep(id)
	if e := b.awaitFreed(t, id); !errors.Is(e.Problem.Err(), handoff.ErrWithdrawn) {
		t.Errorf("it is said that %v", e.Problem.Err())
	}
	b.settled(t)
}

// An owner that has no room lets the end of what was used least recently go, and keeps the
// new; what is larger than all of it goes to another.
func TestFullOwner(t *testing.T) {
	c := newCell(t, "inproc")
	a := c.start("a", nodeOptions{keeps: 1 << 20, store: func(o *store.Options) { o.Owner.Headers = 128 }})
	writer := c.engine("writer", publisher, a)
	for seed := range 12 { // 12·10 units of 24 KiB
		writer.keep(t, prompt(640, seed*1000))
		a.settled(t)
	}
	stats, _ := a.store.Kept()
	if stats.Evictions == 0 || stats.Ready < 20 {
		t.Fatalf("%+v", stats)
	}
	if tokens := writer.findOnly(t, prompt(640, 11000)); tokens != 640 {
		t.Fatalf("of the newest, %d tokens", tokens)
	}
	// Whatever is left of a prompt is its beginning: all that is there can be found.
	units := 0
	for seed := range 12 {
		units += writer.findOnly(t, prompt(640, seed*1000)) / 64
	}
	if units != int(stats.Ready) {
		t.Fatalf("%d units can be found, %d are there", units, stats.Ready)
	}
}

// An owner that hears and does not answer is a miss when the time is over, and a ticket
// that it sends after that is given back: nothing stays held for it.
func TestSilentOwner(t *testing.T) {
	c := newCell(t, "inproc")
	a := c.start("a", nodeOptions{keeps: arenaBytes})
	const within = 200 * time.Millisecond
	b := c.start("b", nodeOptions{offload: func(o *prefix.Options) { o.FindTimeout, o.KeepTimeout = within, 4*within }})
	writer, other := c.engine("writer", publisher, a), c.engine("reader", reader, b)
	p := prompt(256, 1)
	writer.keep(t, p)
	a.settled(t)
	if err := a.Close(soon(t)); err != nil { // its store goes on
		t.Fatal(err)
	}
	inbox, err := a.agent.Listen("MRDK", agent.InboxLimits{})
	if err != nil {
		t.Fatal(err)
	}
	for began := time.Now(); ; began = time.Now() {
		found := other.find(t, p, 0)
		if took := time.Since(began); took > patience/2 {
			t.Fatalf("a miss took %v", took)
		}
		if found.Tokens != 0 || found.Reason != "late" {
			t.Fatalf("%+v", found)
		}
		if len(inbox) > 0 { // it had heard
			break
		}
	}
	if e := other.keep(t, prompt(256, 2)); e.Problem.Err() == nil {
		t.Fatal("it was kept at an owner that says nothing")
	}
	until.True(t, "nothing is on its way", func() bool {
		m := b.Metrics()
		return m.Keeps["busy"] == 1 && m.BytesInFlight == 0 && m.InFlight == 0 && b.transceiver.Metrics().Offers == 0
	})
	a.agent.Unlisten("MRDK")
}

// An engine that computes faster than anything can come is told to compute, once it is
// known how long that takes; one that is slow, or does not know, fetches.
func TestBelowBreakEven(t *testing.T) {
	c := newCell(t, "inproc")
	a, b := c.start("a", nodeOptions{keeps: arenaBytes}), c.start("b", nodeOptions{})
	writer, other := c.engine("writer", publisher, a), c.engine("reader", reader, b)
	p := prompt(320, 1)
	writer.keep(t, p)
	a.settled(t)
	find := func(token time.Duration) prefix.Found {
		found, err := b.Find(soon(t), prefix.Find{Engine: "reader", Content: p, TokenTime: token})
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	const fast, slow = time.Nanosecond, time.Second
	for range 4 {
		if _, err := other.accept(t, p, find(fast)); err != nil {
			t.Fatal(err)
		}
	}
	// A record comes after the engine was told; who asks before that fetches.
	until.True(t, "it is computed", func() bool { return find(fast).Reason == "compute" })
	if at := b.BreakEven("reader"); at < 1<<20 {
		t.Errorf("the break-even of an engine that computes at once is at %d tokens", at)
	}
	for range 20 {
		if found := find(slow); found.Tokens != 320 {
			t.Fatalf("a slow engine: %+v", found)
		}
	}
	if at := b.BreakEven("reader"); at > 64 {
		t.Errorf("the break-even of a slow engine is at %d tokens", at)
	}
	if found := find(0); found.Tokens != 320 {
		t.Fatalf("an engine that does not know: %+v", found)
	}
}
