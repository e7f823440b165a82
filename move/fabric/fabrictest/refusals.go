package fabrictest

import (
	"context"
	"errors"
	"math"

	"meridian/kv"
	"meridian/move/fabric"
	"meridian/move/mem"
)

var refusalPlays = []testCase{
	{name: "different lengths", run: playLengths},
	{name: "overlapping destination", run: playOverlap},
	{name: "out of bounds", run: playBounds},
	{name: "unregistered region", run: playUnknownRegion},
	{name: "stale epoch", run: playStaleEpoch},
	{name: "prepared before a fence", run: playPreparedBeforeFence},
	{name: "no such operation", run: playNoSuchOp},
	{name: "regions by name", run: playRegionNames},
	{name: "who answers", run: playWhoAnswers},
	{name: "estimate", run: playEstimate},
}

// refused demands that an attempt fails by name and leaves all memory and the
// link as they were.
func (s *fixture) refused(what string, op fabric.Op, local, remote fabric.List, want error) {
	s.Helper()
	if err := s.attempt(op, local, remote); !errors.Is(err, want) {
		s.Errorf("%v, %s: %v, want %v", op, what, err, want)
	}
	s.checkAll()
}

func (s *fixture) refusedAtPrepare(what string, op fabric.Op, local, remote fabric.List, want error) {
	s.Helper()
	p, err := s.link.Prepare(op, local, remote)
	if !errors.Is(err, want) {
		s.Errorf("prepare %v, %s: %v, want %v", op, what, err, want)
	}
	if err == nil {
		p.Release()
	}
}

func (s *fixture) pair() (near, far *memory) {
	s.Helper()
	return s.memory(s.near, 8192), s.memory(s.far, 8192)
}

func playLengths(s *fixture) {
	near, far := s.pair()
	for _, op := range s.ops() {
		for _, lengths := range [][2]uint64{{10, 11}, {11, 10}, {0, 1}, {1, 0}} {
			local := pieces{{near, 0, lengths[0]}}.list(s)
			remote := pieces{{far, 0, lengths[1]}}.list(s)
			s.refusedAtPrepare("different lengths", op, local, remote, fabric.ErrLengths)
		}
	}
	s.works()
}

// As destination no byte may be named twice; as source any may.
func playOverlap(s *fixture) {
	near, far := s.pair()
	again := func(m *memory) pieces { return pieces{{m, 100, 50}, {m, 300, 50}, {m, 149, 20}} }
	dense := func(m *memory) pieces { return pieces{{m, 1000, 120}} }
	for _, op := range s.ops() {
		bad := plan{op, again(near), dense(far)}
		fine := plan{op, dense(near), again(far)}
		if op == fabric.Write {
			bad, fine = fine, bad
		}
		s.refusedAtPrepare("overlap", op, bad.near.list(s), bad.far.list(s), fabric.ErrOverlap)
		s.post(fine).must(fabric.Done)
		s.checkAll()
	}
	s.works()
}

func playBounds(s *fixture) {
	near, far := s.pair()
	size := near.region.Section.Size()
	if far.region.Section.Size() != size {
		s.Fatalf("sections of %d and %d bytes", size, far.region.Section.Size())
	}
	strided := func(m *memory) fabric.List { // only its last piece is out
		l := fabric.List{{Region: m.region.ID, Epoch: m.region.Epoch}}
		if err := l[0].Spans.AddRun(mem.Run{Length: 100, Stride: size/10 + 1, Count: 11}); err != nil {
			s.Fatal(err)
		}
		return l
	}
	inside := func(m *memory, length uint64) fabric.List { return pieces{{m, 0, length}}.list(s) }
	for _, op := range s.ops() {
		for _, offset := range []uint64{size - 99, size, size + 1, 1 << 40, math.MaxUint64 - 100} {
			out := func(m *memory) fabric.List { return pieces{{m, offset, 100}}.list(s) }
			s.refusedAtPrepare("local out of bounds", op, out(near), inside(far, 100), mem.ErrBounds)
			s.refused("remote out of bounds", op, inside(near, 100), out(far), mem.ErrBounds)
		}
		s.refusedAtPrepare("local run out of bounds", op, strided(near), inside(far, 1100), mem.ErrBounds)
		s.refused("remote run out of bounds", op, inside(near, 1100), strided(far), mem.ErrBounds)
	}
	s.works()
}

// with returns the same bytes under another name.
func with(l fabric.List, region, epoch uint64) fabric.List {
	return fabric.List{{Region: region, Epoch: epoch, Spans: l[0].Spans}}
}

func playUnknownRegion(s *fixture) {
	near, far := s.pair()
	gone, goneFar := s.pair()
	gone.deregister()
	goneFar.deregister()
	for _, op := range s.ops() {
		local, remote := pieces{{near, 5, 100}}.list(s), pieces{{far, 7, 100}}.list(s)
		for _, id := range []uint64{0, 1 << 50, gone.region.ID} {
			s.refusedAtPrepare("unknown local region", op, with(local, id, gone.region.Epoch), remote, fabric.ErrUnknownRegion)
		}
		for _, id := range []uint64{0, 1 << 50, goneFar.region.ID} {
			s.refused("unknown remote region", op, local, with(remote, id, goneFar.region.Epoch), fabric.ErrUnknownRegion)
		}
		// One good part does not excuse a bad one.
		bad := append(pieces{{far, 0, 50}}.list(s), with(pieces{{far, 60, 50}}.list(s), goneFar.region.ID, 1)...)
		s.refused("unknown remote region in the second part", op, local, bad, fabric.ErrUnknownRegion)
	}
	s.works()
}

func playStaleEpoch(s *fixture) {
	near, far := s.pair()
	for _, op := range s.ops() {
		for _, off := range []uint64{1, math.MaxUint64, 1 << 32} { // ahead, behind, far away
			local, remote := pieces{{near, 5, 100}}.list(s), pieces{{far, 7, 100}}.list(s)
			stale := func(l fabric.List) fabric.List { return with(l, l[0].Region, l[0].Epoch+off) }
			s.refusedAtPrepare("stale local epoch", op, stale(local), remote, fabric.ErrStaleEpoch)
			s.refused("stale remote epoch", op, local, stale(remote), fabric.ErrStaleEpoch)
		}
		old := pieces{{far, 7, 100}}.list(s)
		far.fence()
		s.refused("epoch from before a fence", op, pieces{{near, 5, 100}}.list(s), old, fabric.ErrStaleEpoch)
	}
	s.post(plan{s.ops()[0], pieces{{near, 5, 100}}, pieces{{far, 7, 100}}}).must(fabric.Done)
	s.works()
}

// What was checked before a fence is not good after it, on either side.
func playPreparedBeforeFence(s *fixture) {
	for _, op := range s.ops() {
		for _, local := range []bool{true, false} {
			p := s.light(op)
			prepared := s.ready(p).prepared
			m := p.far[0].memory
			if local {
				m = p.near[0].memory
			}
			s.expectPost(prepared, nil)
			p.destination().scatter(p.source().gather())
			m.deregister()
			s.expectPost(prepared, fabric.ErrUnknownRegion)
			m.register() // under the same name; what was bound before a fence of it is stale all the same
			m.fence()
			s.expectPost(prepared, fabric.ErrStaleEpoch)
			s.checkAll()
		}
	}
	s.works()
}

// expectPost posts and wants that end, whether Post says it or the transfer.
func (s *fixture) expectPost(p *fabric.Prepared, want error) {
	s.Helper()
	t, err := s.link.Post(context.Background(), p, fabric.PostOptions{ID: s.id()})
	if err == nil {
		err = t.Await(s.soon())
	}
	if !errors.Is(err, want) {
		s.Errorf("%v ended with %v, want %v", p.Op, err, want)
	}
}

func playNoSuchOp(s *fixture) {
	near, far := s.pair()
	local, remote := pieces{{near, 0, 10}}.list(s), pieces{{far, 0, 10}}.list(s)
	has := s.near.fabric.Capabilities()
	if s.near.fabric.Name() == "" || len(has.Kinds) == 0 {
		s.Errorf("%q has capabilities %+v", s.near.fabric.Name(), has)
	}
	unsupported := []fabric.Op{0, 99}
	if !has.Read {
		unsupported = append(unsupported, fabric.Read)
	}
	if !has.Write {
		unsupported = append(unsupported, fabric.Write)
	}
	for _, op := range unsupported {
		s.refused("not an operation of this fabric", op, local, remote, fabric.ErrUnsupported)
	}
	s.works()
}

func playRegionNames(s *fixture) {
	near, _ := s.pair()
	if err := s.near.fabric.Register(near.region); err == nil {
		s.Error("a region was registered twice")
	}
	err := s.near.fabric.Deregister(s.soon(), 1<<50)
	if !errors.Is(err, fabric.ErrUnknownRegion) {
		s.Errorf("deregistering what never was: %v", err)
	}
	s.works()
}

func playWhoAnswers(s *fixture) {
	if got := s.link.Peer(); got.Name != s.far.self.Name || got.Incarnation != s.far.self.Incarnation {
		s.Errorf("the link's peer is %s %s, want %s %s", got.Name, got.Incarnation, s.far.self.Name, s.far.self.Incarnation)
	}
	stale := s.far.self
	stale.Incarnation = kv.ID{1, 2, 3}
	link, err := s.near.fabric.Connect(s.soon(), stale)
	if !errors.Is(err, fabric.ErrStalePeer) {
		s.Errorf("another incarnation answered: %v, want %v", err, fabric.ErrStalePeer)
	}
	if err == nil {
		_ = link.Close(s.soon())
	}
	nowhere := fabric.Peer{Name: "nowhere", Incarnation: s.id(), Address: []byte("nowhere at all")}
	if _, err := s.near.fabric.Connect(s.soon(), nowhere); err == nil {
		s.Error("connected to an address that cannot be")
	}
	s.works()
}

func playEstimate(s *fixture) {
	s.works()
	for _, op := range s.ops() {
		little, much := s.link.Estimate(op, 1<<10, 1), s.link.Estimate(op, 1<<30, 1<<10)
		if little <= 0 || much <= little {
			s.Errorf("%v: 1 KiB is estimated to take %v, 1 GiB %v", op, little, much)
		}
	}
}
