package protocol

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"syscall"
	"testing"
	"time"

	"meridian/keep/store/arena"
	"meridian/keep/store/master"
	"meridian/keep/store/owner"
	"meridian/kv"
)

// crowd is an owner of many small objects and a master, and what goes on between them,
// without a process around it.
type crowd struct {
	t       testing.TB
	now     kv.Instant
	heap    *arena.Heap
	objects *owner.Owner
	server  *Server
	master  *Coordinator
	term    uint64
	parts   int       // of Keys that were told
	answers []Message // to the client
	// watch has the machines take an event, so that a benchmark can see how long that takes; nil just does.
	watch func(what string, event func())
}

// take has a machine take an event.
func (c *crowd) take(what any, event func() []Effect) (effects []Effect) {
	if c.watch == nil {
		return event()
	}
	c.watch(fmt.Sprintf("%T", what)[len("*protocol."):], func() { effects = event() })
	return effects
}

func newCrowd(t testing.TB, count int) *crowd {
	return newCrowdIn(t, count*(arena.HeaderSize+128)*11/10+1<<20, count)
}

// fullCrowd has room for so many objects of 100 bytes, and headers for more.
func fullCrowd(t testing.TB, count int) *crowd {
	return newCrowdIn(t, count*(2*arena.HeaderSize+128)+128<<10, 2*count)
}

func newCrowdIn(t testing.TB, size, headers int) *crowd {
	t.Helper()
	memory, err := syscall.Mmap(-1, 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED|syscall.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Munmap(memory) })
	c := &crowd{t: t, now: kv.Second}
	if c.heap, err = arena.Format(memory, arena.Options{Headers: uint32(headers)}); err != nil {
		t.Fatal(err)
	}
	if c.objects, err = owner.New(c.heap, owner.Options{}); err != nil {
		t.Fatal(err)
	}
	c.server = NewServer(ServerOptions{Self: testOwner}, c.objects)
	return c
}

// elect makes another master, which knows nothing but whose word it must wait for.
func (c *crowd) elect(roster ...master.Mark) {
	c.t.Helper()
	c.term++
	c.master = NewCoordinator(master.New(c.now, master.Options{Term: c.term}, roster, nil), c.term)
	c.do(c.server.Elected(c.now, testMaster, c.term))
	for range 20 {
		if c.now += 100 * kv.Millisecond; c.server.Answers(c.now) {
			return
		}
		c.do(c.server.Tick(c.now))
	}
	c.t.Fatalf("no lease of master %d", c.term)
}

// do carries effects out, and what comes of them. Messages are made and read, as if they
// had travelled.
func (c *crowd) do(effects []Effect) {
	c.t.Helper()
	for len(effects) > 0 {
		e := effects[0]
		effects = effects[1:]
		switch e := e.(type) {
		case Send:
			request, m, err := ParseMessage(AppendMessage(nil, e.Request, e.Message))
			switch {
			case err != nil:
				c.t.Fatalf("%T cannot be read: %v", e.Message, err)
			case e.To == testMaster:
				if _, is := m.(*Keys); is {
					c.parts++
				}
				effects = append(effects, c.take(m, func() []Effect { return c.master.Receive(c.now, kv.Minute, testOwner, request, m) })...)
			case e.To == testOwner:
				effects = append(effects, c.take(m, func() []Effect { return c.server.Receive(c.now, testMaster, request, m) })...)
			default:
				c.answers = append(c.answers, m)
			}
		case Seal:
			effects = append(effects, c.server.Sealed(c.now, e.Write, c.heap.CopyIn(e.Plan.Offset, e.Data))...)
		case Mark:
			c.master.Marked(c.now, e)
		case Deliver:
			data := make([]byte, e.Location.Bytes)
			err := c.heap.CopyOut(data, e.Location.Offset, e.Location.Checksum)
			c.answers = append(c.answers, &Value{Bytes: e.Location.Bytes, Data: data})
			effects = append(effects, c.server.Delivered(c.now, e, err)...)
		case Continue:
			effects = append(effects, c.take((*Continued)(nil), func() []Effect { return c.server.Continue(c.now) })...)
		case Grant:
			effects = append(effects, c.server.Granted(c.now, e.Write, Span{Length: e.Bytes}, nil)...)
		case Revoke:
			effects = append(effects, c.server.Revoked(c.now, e.Write, nil)...)
		default:
			c.t.Fatalf("%T", e)
		}
	}
}

// ask is a client's question to the owner, or to the master.
func (c *crowd) ask(m Message) Message {
	c.t.Helper()
	switch m.(type) {
	case *Where:
		c.do(c.master.Receive(c.now, kv.Minute, testClient, 1, m))
	default:
		c.do(c.take(m, func() []Effect { return c.server.Receive(c.now, testClient, 1, m) }))
	}
	if len(c.answers) != 1 {
		c.t.Fatalf("%T has %d answers", m, len(c.answers))
	}
	answer := c.answers[0]
	c.answers = c.answers[:0]
	if r, is := answer.(*Reply); is && r.Problem.Err() != nil {
		c.t.Fatalf("%T: %v", m, r.Problem.Err())
	}
	c.now += 3 // a lease is renewed now and then
	if c.now/kv.Second != (c.now-3)/kv.Second {
		c.do(c.server.Tick(c.now))
	}
	return answer
}

func crowdKey(n int) []byte { return append([]byte{0}, fmt.Sprintf("k%07d", n)...) }

// found is how many of the keys the master names an owner of.
func (c *crowd) found(count int) (found int) {
	c.t.Helper()
	for at := 0; at < count; at += MaxKeys {
		where := &Where{}
		for n := at; n < min(count, at+MaxKeys); n++ {
			where.Hashes = append(where.Hashes, arena.HashKey(crowdKey(n)))
		}
		for _, name := range c.ask(where).(*Owners).Names {
			if name == testOwner.Name {
				found++
			}
		}
	}
	return found
}

// Many objects are claimed one by one; a new master hears of all of them and names their
// owner; they are listed in pages, and read.
func TestManyObjects(t *testing.T) { manyObjects(t, 100_000) }

func manyObjects(t *testing.T, count int) {
	began := time.Now()
	took := func(what string) {
		t.Logf("%s: %v", what, time.Since(began).Round(time.Millisecond))
		began = time.Now()
	}
	c := newCrowd(t, count)
	c.elect()
	for n := range count {
		c.ask(&Put{Name: crowdKey(n), Value: binary.BigEndian.AppendUint64(nil, uint64(n))})
	}
	took("claimed and put")
	if stats := c.objects.Stats(); stats.Ready != uint64(count) || stats.Evictions != 0 {
		t.Fatalf("%+v", stats)
	}
	if n := c.found(count); n != count {
		t.Fatalf("the master knows %d of %d keys", n, count)
	}
	took("located")

	c.elect(master.Mark{Owner: testOwner.Name, Incarnation: testOwner.Incarnation})
	took("told to another master")
	most := max(maxTold, count/(master.MaxParts*3/4)) // in one part
	if want := (count + most - 1) / most; c.parts != want || want > master.MaxParts {
		t.Errorf("%d parts, want %d", c.parts, want)
	}
	if n := c.found(count); n != count {
		t.Fatalf("the next master knows %d of %d keys", n, count)
	}

	seen, pages := make(map[string]bool, count), 0
	for list := (&List{AllTenants: true, Most: MaxKeys}); ; {
		pages++
		page := c.ask(list).(*Listing)
		for _, o := range page.Objects {
			if seen[string(o.Name)] {
				t.Fatalf("%q is listed twice", o.Name)
			}
			seen[string(o.Name)] = true
		}
		if len(page.Objects) > MaxKeys {
			t.Fatalf("a page of %d", len(page.Objects))
		}
		if list.After = page.Next; page.Next == 0 {
			break
		}
	}
	if len(seen) != count {
		t.Fatalf("%d of %d objects are listed", len(seen), count)
	}
	took(fmt.Sprintf("listed, %d pages", pages))
	for n := range count {
		if v := c.ask(&Get{Name: crowdKey(n)}).(*Value); !bytes.Equal(v.Data, binary.BigEndian.AppendUint64(nil, uint64(n))) {
			t.Fatalf("wrong bytes of %d: %x", n, v.Data)
		}
	}
	took("read")
	c.server.Scan(c.now)
	took("scanned")
}
