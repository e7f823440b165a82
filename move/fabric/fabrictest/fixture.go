package fabrictest

import (
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"meridian/internal/until"
	"meridian/kv"
	"meridian/move/fabric"
	"meridian/move/mem"
)

// agent has one fabric open.
type agent struct {
	self   fabric.Peer
	fabric fabric.Fabric
	events *events
	guard  *guard
	closed bool
}

// side is an agent and the memory it lends.
type side struct {
	*agent
	section func(t testing.TB, sizeBytes uint64) *mem.Section
}

// fixture is two connected agents and their memory.
type fixture struct {
	testing.TB
	o      Options
	random *rand.Rand
	leaks  goleak.Option // what was running before

	near, far *side
	link      fabric.Link
	regions   uint64
	memories  []*memory
	requests  []*fabric.Prepared
	resumes   []func()
}

func newStage(t testing.TB, o Options, random *rand.Rand) *fixture {
	return &fixture{TB: t, o: o, random: random, leaks: goleak.IgnoreCurrent()}
}

func (s *fixture) setUp() {
	s.Helper()
	s.near = s.open("near", s.o.NearSection)
	if s.o.Loopback {
		s.far = &side{agent: s.near.agent, section: s.o.FarSection}
	} else {
		s.far = s.open("far", s.o.FarSection)
	}
	s.link = s.connect()
}

func (s *fixture) open(name string, section func(testing.TB, uint64) *mem.Section) *side {
	s.Helper()
	e, g := &events{}, &guard{}
	self := fabric.Peer{Name: name, Incarnation: s.id()}
	f := s.o.Open(s.TB, self, e, g)
	self.Address = f.Address()
	return &side{agent: &agent{self: self, fabric: f, events: e, guard: g}, section: section}
}

func (s *fixture) connect() fabric.Link {
	s.Helper()
	link, err := s.near.fabric.Connect(s.soon(), s.far.self)
	if err != nil {
		s.Fatalf("connect: %v", err)
	}
	return link
}

func (s *fixture) id() (id kv.ID) {
	binary.LittleEndian.PutUint64(id[:], s.random.Uint64())
	binary.LittleEndian.PutUint64(id[8:], s.random.Uint64())
	return id
}

// soon is a context for what must not take long.
func (s *fixture) soon() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), s.o.Patience)
	s.Cleanup(cancel)
	return ctx
}

// bounded fails when call takes longer than local work can.
func (s *fixture) bounded(what string, call func(context.Context) error) error {
	s.Helper()
	ended := make(chan error, 1)
	ctx := s.soon()
	go func() { ended <- call(ctx) }()
	select {
	case err := <-ended:
		return err
	case <-time.After(s.o.Patience + time.Second):
		s.Fatalf("%s did not return within %v", what, s.o.Patience)
		return nil
	}
}

func (s *fixture) eventually(what string, holds func() bool) {
	s.Helper()
	until.Within(s.o.Patience).True(s, what, holds)
}

// pause waits for a random while, between nothing and longer than a heavy
// transfer takes.
func (s *fixture) pause() {
	if d := time.Duration(1) << s.random.IntN(24); d > time.Microsecond {
		time.Sleep(d)
	}
}

// stall holds up what is posted from now on. The case may resume early.
func (s *fixture) stall() (resume func()) {
	s.Helper()
	if s.o.Stall == nil {
		s.Skip("this fabric offers no Stall")
	}
	resume = sync.OnceFunc(s.o.Stall(s.near.fabric, s.far.fabric))
	s.resumes = append(s.resumes, resume)
	return resume
}

func (s *fixture) needOp(op fabric.Op) {
	s.Helper()
	if !slices.Contains(s.ops(), op) {
		s.Skipf("this fabric cannot %v", op)
	}
}

func (s *fixture) needPeer() {
	s.Helper()
	if s.o.Loopback {
		s.Skip("this fabric has no peer but itself")
	}
}

func (s *fixture) needNotify() {
	s.Helper()
	if !s.near.fabric.Capabilities().Notify {
		s.Skip("this fabric cannot notify")
	}
}

func (s *fixture) needKill() {
	s.Helper()
	if s.o.Kill == nil {
		s.Skip("this fabric offers no Kill")
	}
	s.needPeer()
}

// closeSide closes a fabric in the middle of a case.
func (s *fixture) close(a *side) {
	s.Helper()
	if err := s.bounded("Close", a.fabric.Close); err != nil {
		s.Errorf("closing %s: %v", a.self.Name, err)
	}
	a.events.end()
	a.closed = true
}

// clear ends the case: everything must be given back.
func (s *fixture) clear() {
	s.Helper()
	for _, resume := range s.resumes {
		resume()
	}
	if s.link == nil {
		return // setting up failed
	}
	if s.Failed() {
		s.abandon()
		return
	}
	for _, p := range s.requests {
		p.Release()
	}
	if err := s.bounded("Link.Close", s.link.Close); err != nil {
		s.Errorf("closing the link: %v", err)
	}
	s.deregisterAll()
	for _, a := range []*side{s.near, s.far} {
		if !a.closed {
			s.close(a)
		}
		if err := s.bounded("closing again", a.fabric.Close); err != nil {
			s.Errorf("closing %s again: %v", a.self.Name, err)
		}
	}
	for _, m := range s.memories {
		s.giveBack(m)
	}
	if err := goleak.Find(s.leaks); err != nil {
		s.Errorf("goroutines were left: %v", err)
	}
	for _, a := range []*side{s.near, s.far} {
		if late := a.events.lateCalls(); late > 0 {
			s.Errorf("%s was notified %d times after Close", a.self.Name, late)
		}
	}
}

func (s *fixture) deregisterAll() {
	s.Helper()
	for _, m := range s.memories {
		if m.side.closed || !m.registered {
			continue
		}
		m.deregister()
		err := s.bounded("Deregister", func(ctx context.Context) error { return m.side.fabric.Deregister(ctx, m.region.ID) })
		if !errors.Is(err, fabric.ErrUnknownRegion) {
			s.Errorf("deregistering region %d again: %v, want %v", m.region.ID, err, fabric.ErrUnknownRegion)
		}
	}
}

func (s *fixture) giveBack(m *memory) {
	s.Helper()
	s.eventually("all references are back", func() bool { return m.region.Section.References() == 0 })
	if err := s.bounded("closing a section", m.region.Section.Close); err != nil {
		s.Errorf("closing a section: %v", err)
	}
	if err := m.backing.Close(s.soon()); err != nil {
		s.Error(err)
	}
}

// abandon ends a case that failed: as much as goes, and no more complaints.
func (s *fixture) abandon() {
	ctx, cancel := context.WithTimeout(context.Background(), s.o.Patience)
	defer cancel()
	for _, p := range s.requests {
		p.Release()
	}
	_ = s.near.fabric.Close(ctx)
	_ = s.far.fabric.Close(ctx)
}
