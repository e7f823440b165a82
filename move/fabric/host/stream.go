package host

import (
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"

	"meridian/move/fabric"
	"meridian/move/fabric/link"
	"meridian/move/mem"
	"meridian/move/mem/vram"
	"meridian/move/mrdn"
)

// stream is this agent's end of the one stream of a link: a Unix socket, what
// was lent over it, and what was borrowed. link.Lending decides what is lent and
// taken; here it is done.
type stream struct {
	fabric   *Fabric
	peer     string
	engine   engine
	lending  *link.Lending
	wire     *wire
	borrowed borrowed
	flying   atomic.Int64 // flags of this link

	mu     sync.Mutex // protects the rest
	lent   map[uint64]lentRegion
	serial uint64 // of the last loan
}

// engine is an end of a link: a link.Poster or a link.Server.
type engine interface {
	link.End
	Fence(region uint64, cause error)
}

// lentRegion is a region of ours that the peer has mapped.
type lentRegion struct {
	section *mem.Section
	serial  uint64
}

var _ link.Lender = (*stream)(nil)

// newStream makes this side's end of a stream and shows the flag page, which is
// the first that either side sends once it is welcome.
func (f *Fabric) newStream(conn *net.UnixConn, peer string, e engine) (*stream, error) {
	s := &stream{fabric: f, peer: peer, engine: e, lent: make(map[uint64]lentRegion)}
	server, serves := e.(*link.Server)
	s.lending = link.NewLending(s, e, serves)
	lender, err := credentials(conn)
	if err != nil {
		return nil, err
	}
	s.borrowed.lender, s.borrowed.gpu = int(lender.Pid), f.gpu
	if s.wire, err = newWire(conn, f.options.KeepAlive, s); err != nil {
		return nil, err
	}
	s.wire.server = server
	file, err := f.page.arena.Lend()
	if err != nil {
		return nil, err
	}
	var page frames
	page.add(mrdn.FlagPage{Copiers: uint32(f.page.copiers)}.Append(nil), file)
	s.wire.send(page)
	return s, nil
}

// frames are to be sent, with the descriptors that go with them.
type frames struct {
	bytes []byte
	gifts []attachedFD
}

func (f *frames) add(frame []byte, file *os.File) {
	f.gifts = append(f.gifts, attachedFD{len(f.bytes), file})
	f.bytes = append(f.bytes, frame...)
}

// Send queues frames.
func (s *stream) Send(b []byte) { s.wire.send(frames{bytes: b}) }

// Lend lends the regions of a part that the peer lacks, and then sends more.
func (s *stream) Lend(b *fabric.Bound, then []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out frames
	fresh := map[uint64]lentRegion{} // the peer has heard of none until all can be described
	for i := range b.List {
		name, section := &b.List[i], b.Section(i)
		if s.lent[name.Region].section == section || fresh[name.Region].section == section {
			continue
		}
		s.serial++
		fresh[name.Region] = lentRegion{section, s.serial}
		if m := vram.Of(section); m != nil {
			out.bytes = mrdn.LendGPU{
				Region: name.Region, Epoch: name.Epoch, Serial: s.serial,
				UUID: m.Device.UUID, Handle: m.Handle, Offset: m.Offset, SizeBytes: section.Size(),
			}.Append(out.bytes)
			continue
		}
		lend := mrdn.Lend{Region: name.Region, Epoch: name.Epoch, Serial: s.serial}
		file, err := describe(section, &lend)
		if err != nil {
			closeAttached(out.gifts)
			return fmt.Errorf("%w: region %d: %w", fabric.ErrUnsupported, name.Region, err)
		}
		out.add(lend.Append(nil), file)
	}
	maps.Copy(s.lent, fresh)
	out.bytes = append(out.bytes, then...)
	s.wire.send(out)
	return nil
}

// describe says where a section is, and returns what opens it.
func describe(section *mem.Section, lend *mrdn.Lend) (file *os.File, err error) {
	if section.Kind() != mem.Borrowed {
		return section.Lend()
	}
	lend.SizeBytes = section.Size()
	file, lend.Address, err = section.LendBorrowed()
	return file, err
}

// fence stops what touches a region, and recalls the region.
func (s *stream) fence(region uint64, cause error) {
	s.engine.Fence(region, cause)
	s.mu.Lock()
	defer s.mu.Unlock()
	if l, was := s.lent[region]; was {
		delete(s.lent, region)
		s.Send(mrdn.Recall{Region: region, Serial: l.serial}.Append(nil))
	}
}

// Raise flies a flag on this agent's page, on which there is room for all links:
// none takes more than transfers may run on it, into however many parts its peer
// has cut them.
func (s *stream) Raise() (f link.Flag, err error) {
	if most := int64(s.fabric.options.MaxTransfers); s.flying.Add(1) > most {
		err = fmt.Errorf("%w: %d parts are lent on this link", fabric.ErrBusy, most)
	} else {
		f, err = s.fabric.page.raise()
	}
	if err != nil {
		s.flying.Add(-1)
	}
	return f, err
}

// Lower takes flags down and waits until the peer has ended its pieces.
func (s *stream) Lower(flags []link.Flag) {
	for _, f := range flags {
		s.fabric.page.lower(f)
	}
	s.flying.Add(-int64(len(flags)))
	s.borrowed.settle(flags)
}

// Take has copiers copy.
func (s *stream) Take(t *link.Taking) {
	loans, err := s.borrowed.take(t.From, t.Flag)
	if err != nil {
		t.Refuse(err)
		return
	}
	if s.fabric.gpu.take(t, &s.borrowed, loans, !s.fabric.options.NoChecksums) {
		return
	}
	j := &job{
		taking: t, borrowed: &s.borrowed, loans: loans, bytes: t.In.Walk.Left(),
		from: t.From.Walk(), to: t.In.Walk, compare: !s.fabric.options.NoChecksums, apart: slices.ContainsFunc(loans, func(l *loan) bool { return !l.section.Mapped() }),
	}
	j.unfinished = j.quanta()
	s.fabric.pool.do(j, j.unfinished, j.bytes <= pieceBytes)
}

// Flies looks at a flag on the peer's page. The caller holds loans, and with
// them the page.
func (s *stream) Flies(f link.Flag) bool { return s.borrowed.page.flies(f) }

// Lives asks the system whether the peer's end is closed: the memory of the dead
// may be another's by now.
func (s *stream) Lives() error {
	if s.wire.hungUp() {
		return fabric.ErrPeerGone
	}
	return nil
}

// Close breaks the stream.
func (s *stream) Close() {
	s.wire.close()
	s.borrowed.close()
}

// frame hears what the peer says of its memory; the rest is the link's.
func (s *stream) frame(f mrdn.LinkFrame, body []byte) error {
	s.borrowed.heard(s.fabric.options.KeepAlive)
	switch f {
	case mrdn.FlagPageFrame:
		page, err := mrdn.ParseFlagPage(body)
		if err != nil {
			return err
		}
		fd, err := s.wire.claim()
		if err != nil {
			return err
		}
		return s.borrowed.putPage(page, fd)
	case mrdn.LendFrame:
		lend, err := mrdn.ParseLend(body)
		if err != nil {
			return err
		}
		fd, err := s.wire.claim()
		if err != nil {
			return err
		}
		// What cannot be mapped is not there when a source names it.
		if err := s.borrowed.put(lend, fd); err != nil {
			s.fabric.options.Logger.Info("refused a loan", "from", s.peer, "error", err)
		}
		return nil
	case mrdn.LendGPUFrame:
		lend, err := mrdn.ParseLendGPU(body)
		if err != nil {
			return err
		}
		if err := s.borrowed.putGPU(lend); err != nil {
			s.fabric.options.Logger.Info("refused a loan", "from", s.peer, "error", err)
		}
		return nil
	case mrdn.RecallFrame:
		recall, err := mrdn.ParseRecall(body)
		if err == nil {
			s.borrowed.recall(recall)
		}
		return err
	}
	return s.lending.Frame(f, body)
}

func (s *stream) lost(err error) { s.engine.Lost(err) }
