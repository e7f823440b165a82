package prefix_test

import (
	"context"
	"testing"

	"meridian/internal/until"
	"meridian/keep/prefix"
	"meridian/keep/prefix/keys"
	"meridian/keep/store"
	"meridian/kv"
	"meridian/move/agent"
)

// stranger is an agent that says to another what it likes.
type stranger struct {
	t     *testing.T
	peers *agent.Peers
	to    kv.Member
	next  uint64
}

func newStranger(t *testing.T, from, to *node) *stranger {
	peers := agent.NewPeers(from.agent, agent.PeersOptions{MaxInFlight: 1024, Find: func(context.Context, string) (*agent.Peer, error) {
		return from.agent.LoadMetadata(to.agent.MetadataBlob())
	}})
	return &stranger{t: t, peers: peers, to: kv.Member{Name: to.name, Incarnation: to.agent.Incarnation()}, next: 1 << 40}
}

func (s *stranger) say(m keys.Message) {
	s.t.Helper()
	s.next++
	if err := s.peers.Tell(soon(s.t), s.to, keys.AppendMessage(nil, s.next, m)); err != nil {
		s.t.Fatal(err)
	}
}

// maxShapes is how many kinds of units an owner has hand-offs of.
const maxShapes = 256

// ofShape asks for one unit of a shape that no other number has.
func ofShape(number int) (*keys.FindAsk, store.Run) {
	units := keys.Chain{Tenant: "kv-x", Keys: []kv.Hash{{byte(number), byte(number >> 8)}}}
	return &keys.FindAsk{
		Shape: keys.Shape{Geometry: kv.Uniform(1, kv.Layer{KVHeads: 1, HeadDim: 16 + number}, kv.BFloat16), Tokens: 64},
		Units: units, WithinMs: 1, PatienceMs: 1000,
	}, store.Run{Tenant: units.Tenant, Keys: units.Names()}
}

// Who asks for units of ever other shapes uses nothing up: of what is not there no shape is
// remembered, and of what is, one that is idle makes room.
func TestShapesAreNotUsedUp(t *testing.T) {
	c := newCell(t, "tcp")
	a, b := c.start("a", nodeOptions{keeps: 64 << 20}), c.start("b", nodeOptions{})
	s := newStranger(t, b, a)
	for i := range maxShapes {
		ask, _ := ofShape(i)
		s.say(ask)
	}
	until.True(t, "all are refused", func() bool { return a.Metrics().GrantsRefused == maxShapes })
	if n := a.Metrics().Shapes; n != 0 {
		t.Errorf("%d kinds of units, of which there are none, are remembered", n)
	}
	const more = maxShapes + 20
	for i := range more {
		ask, run := ofShape(i)
		unit, err := ask.Shape.Unit()
		if err != nil {
			t.Fatal(err)
		}
		if err := a.store.Put(soon(t), run.Keys[0], make([]byte, max(unit.Bytes, 4096)), store.PutOptions{Tenant: run.Tenant}); err != nil {
			t.Fatal(err)
		}
		s.say(ask)
		until.True(t, "it is granted, and expires", func() bool { m := a.Metrics(); return m.Grants == uint64(i+1) && m.Granted == 0 })
	}
	if n := a.Metrics().Shapes; n != maxShapes {
		t.Errorf("%d kinds of units are remembered", n)
	}
	e := c.engine("e", reader, a)
	p := prompt(256, 1)
	e.keep(t, p)
	a.settled(t)
	if n := e.findOnly(t, p); n != 256 {
		t.Errorf("found %d tokens of what an engine keeps; %+v", n, a.Metrics())
	}
}

// Who names one unit many times, with all the patience there is, makes an owner look at it
// not even once.
func TestOneUnitManyTimes(t *testing.T) {
	c := newCell(t, "tcp")
	a, b := c.start("a", nodeOptions{keeps: arenaBytes}), c.start("b", nodeOptions{})
	ask, run := ofShape(0)
	if err := a.store.Put(soon(t), run.Keys[0], make([]byte, 4096), store.PutOptions{Tenant: run.Tenant}); err != nil {
		t.Fatal(err)
	}
	for len(ask.Units.Keys) < 4096 {
		ask.Units.Keys = append(ask.Units.Keys, ask.Units.Keys[0])
	}
	ask.PatienceMs = 3600_000
	newStranger(t, b, a).say(ask)
	until.True(t, "it is not read", func() bool { return a.Metrics().Malformed == 1 })
	if m := a.Metrics(); m.Grants+m.GrantsRefused != 0 {
		t.Errorf("%+v", m)
	}
}

// An object that is not as large as a unit of the shape that was asked for is none.
func TestUnitOfAnotherSize(t *testing.T) {
	c := newCell(t, "tcp")
	a, b := c.start("a", nodeOptions{keeps: arenaBytes}), c.start("b", nodeOptions{})
	ask, run := ofShape(0)
	if err := a.store.Put(soon(t), run.Keys[0], make([]byte, 8192), store.PutOptions{Tenant: run.Tenant}); err != nil {
		t.Fatal(err)
	}
	newStranger(t, b, a).say(ask)
	until.True(t, "it is refused", func() bool { return a.Metrics().GrantsRefused == 1 })
	if m := a.Metrics(); m.Grants != 0 || m.Shapes != 0 || m.Broken != 0 {
		t.Errorf("%+v", m)
	}
	if kept, _ := a.store.Kept(); kept.Ready != 1 {
		t.Errorf("of one object %d are left", kept.Ready)
	}
}

// Words of use count as asks of who says them: who has as many as it may have is not heard,
// and takes no place of others.
func TestUsesOfOnePeerAreBounded(t *testing.T) {
	c := newCell(t, "tcp")
	a, b := c.start("a", nodeOptions{keeps: arenaBytes}), c.start("b", nodeOptions{})
	ask, run := ofShape(0)
	if err := a.store.Put(soon(t), run.Keys[0], make([]byte, 4096), store.PutOptions{Tenant: run.Tenant}); err != nil {
		t.Fatal(err)
	}
	s := newStranger(t, b, a)
	giveBack := a.Occupy(kv.Member{Name: b.name, Incarnation: b.agent.Incarnation()})
	s.say(&keys.Used{Units: ask.Units})
	s.say(ask) // which comes after it
	until.True(t, "the ask is turned away", func() bool { return a.Metrics().TurnedAway == 1 })
	until.True(t, "nothing is done for others", func() bool { asks, _ := a.Others(); return asks == 0 })
	if n := a.Metrics().UsesHeard; n != 0 {
		t.Errorf("%d uses are heard of who has as many asks as it may have", n)
	}
	giveBack()
	s.say(&keys.Used{Units: ask.Units})
	until.True(t, "it is heard", func() bool { return a.Metrics().UsesHeard == 1 })
}

// An owner that hangs, and is to hear that its units were used, takes nothing of what an agent
// answers others with, and few of its goroutines.
func TestOwnerThatHangsIsTold(t *testing.T) {
	c := newCell(t, "inproc")
	c.start("m", nodeOptions{})
	a := c.start("a", nodeOptions{keeps: arenaBytes})
	b := c.start("b", nodeOptions{keeps: arenaBytes, offload: func(o *prefix.Options) {
		find := o.Find
		o.Find = func(ctx context.Context, name string) (*agent.Peer, error) {
			if name == "a" {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return find(ctx, name)
		}
	}})
	first, second := c.engine("first", publisher, a), c.engine("second", publisher, b)
	whole := prompt(2*128, 1)
	head := whole
	head.Tokens = whole.Tokens[:128]
	first.keep(t, head)
	a.settled(t)
	for range prefix.MaxTold + 3 {
		second.keep(t, whole)
	}
	b.settled(t)
	until.True(t, "nothing is done for others, and as many words wait as may", func() bool {
		asks, told := b.Others()
		return asks == 0 && told == prefix.MaxTold
	})
}
