package tcp

import (
	"meridian/move/checksum"
	"meridian/move/cuda"
	"meridian/move/fabric"
	"meridian/move/mem"
	"meridian/move/mem/vram"
)

// fetcher is the stage of what a stream sends. While a chunk leaves, the GPU gathers the
// one that will be next, and sums it.
type fetcher struct {
	stagingBuffer
	// ahead is whose next bytes are in the GPU's half, or will be when nothing runs any
	// more; nil for none's.
	ahead *outbound
	got   fetched // by what ran last
	err   error   // of what ran last
}

// fetched is a chunk that is ready to be sent.
type fetched struct {
	bytes []byte
	// sum is its checksum, if summed: the GPU has not summed what is not its own.
	sum    uint64
	summed bool
	after  fabric.Walk // behind it
}

// fetch waits for the next bytes of p, if some of its memory is a GPU's, and has the GPU
// go on with what is next. It holds no lock while it waits: p may be stopped then, and
// what was read late does its owner no harm.
func (s *sender) fetch(p *outbound) (fetched, error) {
	f := &s.fetcher
	if p.gpu == nil {
		s.fetchAhead(p, p.Walk)
		return fetched{}, nil
	}
	if f.ahead != p {
		f.await()
		f.ahead = nil
		of, err := s.reference(p)
		if of == nil || err != nil {
			return fetched{}, err
		}
		if err := f.open(p.gpu); err != nil {
			release(of)
			return fetched{}, err
		}
		f.bring(p.Walk, of, s.options.NoChecksums)
	}
	f.swap()
	f.ahead = nil
	if f.err != nil {
		return fetched{}, f.err
	}
	got := f.got
	s.fetchAhead(p, got.after)
	return got, nil
}

// reference references the memory of p, none if p was stopped.
func (s *sender) reference(p *outbound) ([]*mem.Section, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.stopped.Load() {
		return nil, nil
	}
	return sections(p.Bound)
}

// fetchAhead has the GPU gather the next chunk of the part whose turn is after p's: it may
// be p again, whose rest is given. What was gathered for another part is dropped, unless
// the GPU is still at it; what cannot be gathered now is when its turn has come.
func (s *sender) fetchAhead(p *outbound, rest fabric.Walk) {
	f := &s.fetcher
	if f.mover == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	next := p
	if len(s.parts) > 0 {
		next, rest = s.parts[0], s.parts[0].Walk
	}
	switch {
	case s.closed || next.stopped.Load() || rest.Left() == 0:
		return
	case next.gpu == nil || next.gpu.Device != f.memory.Device || next == f.ahead || !f.idle():
		return
	}
	of, err := sections(next.Bound)
	if err != nil {
		return
	}
	f.ahead = next
	f.run(func() { f.bring(rest, of, s.options.NoChecksums) })
}

// bring gathers the next bytes of a source into the GPU's half, and lets go of the source.
func (f *fetcher) bring(from fabric.Walk, of []*mem.Section, unsummed bool) {
	defer release(of)
	into := f.far()
	f.got = fetched{summed: !unsummed && f.reaches(of)}
	n := uint64(0)
	f.moves.Reset()
	for moves := 0; from.Left() > 0 && n < stagedBytes && moves < stagedMoves; moves++ {
		part, r := next(&from, stagedBytes-n)
		if f.err = f.add(of[part], r, into, n); f.err != nil {
			return
		}
		n += r.Length * r.Count
	}
	work := cuda.Copying
	if f.got.summed {
		work = cuda.CopySummed
	}
	f.sums, f.err = f.mover.Do(work, &f.moves, f.sums[:0], beside(&f.moves))
	f.got.bytes, f.got.after = into.bytes[:n], from
	if f.got.summed {
		f.got.sum = checksum.OfSums(f.sums)
	}
}

// add adds a run to what is gathered; what is not of this GPU is copied at once.
func (f *fetcher) add(section *mem.Section, r mem.Run, into *bufferHalf, at uint64) error {
	m := vram.Of(section)
	if m != nil && m.Device == f.memory.Device {
		return f.moves.AddRun(cuda.Move{
			From: m.At + cuda.Pointer(r.Offset), To: into.at + cuda.Pointer(at), FromStride: r.Stride, ToStride: r.Length, Length: r.Length, Count: r.Count,
		})
	}
	for i := range r.Count {
		to := into.bytes[at+i*r.Length:][:r.Length]
		if err := section.ReadAt(to, r.Offset+i*r.Stride); err != nil {
			return err
		}
	}
	return nil
}
