package fabrictest

import (
	"context"
	"errors"

	"meridian/move/checksum"
	"meridian/move/fabric"
)

var contentPlays = []testCase{
	{name: "contents", run: playContents},
	{name: "scatter and gather", rounds: 3, run: playScatter},
	{name: "sums of what was placed", run: playSums},
	{name: "nothing to move", run: playNothing},
	{name: "100,000 descriptors", run: playManyPieces},
	{name: "prepared once, posted often", run: playPrepared},
	{name: "released while running", rounds: 4, run: playRelease},
}

// A dense megabyte and some odd bytes, with guard bytes on both ends.
func playContents(s *fixture) {
	for _, op := range s.ops() {
		for _, size := range []uint64{1, 63, 4096, 65536, 65537, 1<<20 + 13} {
			near, far := s.memory(s.near, size+100), s.memory(s.far, size+100)
			s.post(plan{op, pieces{{near, 41, size}}, pieces{{far, 17, size}}}).must(fabric.Done)
			near.check()
			far.check()
		}
	}
}

// The two sides are cut differently, over several regions.
func playScatter(s *fixture) {
	const room = heavyBytes / 3
	var near, far []*memory
	for range 3 {
		near, far = append(near, s.memory(s.near, 2*room)), append(far, s.memory(s.far, 2*room))
	}
	sizes := []uint64{10, 1000, 30_000, room}
	for range 12 {
		for _, op := range s.ops() {
			total := 1 + s.random.Uint64N(sizes[s.random.IntN(len(sizes))])
			here, there := near[:1+s.random.IntN(3)], far[:1+s.random.IntN(3)]
			shapeNear, shapeFar := s.shapeFor(total), s.shapeFor(total)
			s.post(plan{op, s.cut(total, here, shapeNear), s.cut(total, there, shapeFar)}).must(fabric.Done)
			s.checkAll()
			if s.Failed() {
				s.Fatalf("%v of %d bytes, near %+v in %d regions, far %+v in %d", op, total, shapeNear, len(here), shapeFar, len(there))
			}
		}
	}
}

// shapeFor keeps one request below 20,000 pieces; many pieces have their own
// case.
func (s *fixture) shapeFor(total uint64) shape {
	as := s.anyShape()
	as.longest = max(as.longest, total/10_000+1)
	return as
}

// The sums that are taken on the way are those of what lies there at the end, or
// there are none: of a destination that is whole, longer than what comes, or in
// pieces, and of one that is written twice.
func playSums(s *fixture) {
	for _, op := range s.ops() {
		for _, size := range []uint64{1, 4096, 65537, 1 << 20, 3<<20 + 13} {
			for _, checked := range []bool{false, true} {
				near, far := s.memory(s.near, size+9000), s.memory(s.far, size+9000)
				p := plan{op, pieces{{near, 41, size}}, pieces{{far, 17, size}}}
				into := p.destination()[0]
				sums := fabric.NewSums(into.memory.region.ID, into.offset, size, checked)
				s.summed(p, sums)
				s.checkSums(sums, into, size, s.o.Sums)
				s.summed(p, sums)
				s.checkSums(sums, into, size, false)
				longer := fabric.NewSums(into.memory.region.ID, into.offset, size+8000, checked)
				s.summed(p, longer)
				s.checkSums(longer, into, size, s.o.Sums && size%checksum.Segment == 0)
				cut := plan{op, pieces{{near, 0, 1}, {near, 1, size - 1}}, pieces{{far, 0, size}}}
				if op == fabric.Write {
					cut = plan{op, pieces{{near, 0, size}}, pieces{{far, 0, 1}, {far, 1, size - 1}}}
				}
				odd := fabric.NewSums(into.memory.region.ID, 1, size, checked)
				s.summed(cut, odd)
				s.checkSums(odd, cut.destination()[0], size, false)
			}
		}
		s.checkAll()
	}
}

// summed moves what is planned, and has the sums of its destination taken. The memory of
// earlier transfers is for the caller to check, once: there is much of it.
func (s *fixture) summed(p plan, sums *fabric.Sums) {
	o := fabric.PostOptions{ID: s.id(), Grant: s.id()}
	if p.op == fabric.Read {
		o.Sums = sums
	} else {
		s.far.guard.want(o.Grant, sums)
	}
	s.ready(p).startAs(context.Background(), o).must(fabric.Done)
	p.near[0].memory.check()
	p.far[0].memory.check()
}

func (s *fixture) checkSums(sums *fabric.Sums, into piece, bytes uint64, known bool) {
	got := sums.Of(bytes)
	if got == nil && known {
		s.Fatalf("nothing is known of %d bytes", bytes)
	}
	if want := checksum.AppendSums(nil, into.memory.image[into.offset:][:bytes]); got != nil && string(got) != string(want) {
		s.Fatalf("%d bytes have other sums", bytes)
	}
}

func playNothing(s *fixture) {
	near, far := s.memory(s.near, 4096), s.memory(s.far, 4096)
	for _, op := range s.ops() {
		for _, p := range []plan{
			{op: op},
			{op: op, near: pieces{{near, 10, 0}}, far: pieces{{far, 20, 0}}},
			{op: op, near: pieces{{near, 10, 0}, {near, 10, 5}, {near, 0, 0}}, far: pieces{{far, 20, 3}, {far, 4096, 0}, {far, 30, 2}}},
		} {
			s.post(p).must(fabric.Done)
			s.checkAll()
		}
	}
}

func playManyPieces(s *fixture) {
	total, most := uint64(6_400_000), 100_000
	if s.o.Brief {
		total, most = total/10, most/10
	}
	near, far := []*memory{s.memory(s.near, 3*total)}, []*memory{s.memory(s.far, 3*total)}
	for _, op := range s.ops() {
		p := plan{op, s.cut(total, near, shape{longest: 127}), s.cut(total, far, shape{longest: 64, even: true})}
		if len(p.near) < most*95/100 || len(p.far) != most {
			s.Fatalf("%d and %d pieces", len(p.near), len(p.far))
		}
		s.random.Shuffle(len(p.far), func(i, j int) { p.far[i], p.far[j] = p.far[j], p.far[i] })
		s.post(p).must(fabric.Done)
		s.checkAll()
	}
}

func playPrepared(s *fixture) {
	for _, op := range s.ops() {
		p := s.light(op)
		t := s.ready(p)
		for range 10 {
			p.source()[0].memory.renew()
			t.data = p.source().gather()
			t.start().must(fabric.Done)
			s.checkAll()
		}
		t.prepared.Release()
		t.prepared.Release()
		if err := t.tryStart(context.Background(), fabric.PostOptions{ID: s.id()}); !errors.Is(err, fabric.ErrReleased) {
			s.Errorf("posting what was released: %v, want %v", err, fabric.ErrReleased)
		}
		s.checkAll()
	}
}

// A request that is released while it runs keeps its memory until it ends.
func playRelease(s *fixture) {
	for _, op := range s.ops() {
		t := s.ready(s.heavy(op)).start()
		t.prepared.Release()
		t.must(fabric.Done)
		local := t.plan.near[0].memory.region.Section
		s.eventually("the references of a released request are back", func() bool { return local.References() == 0 })
	}
	s.checkAll()
}
