package doorserver

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"meridian/move/mem"
	"meridian/move/transceiver/handoff"
	"meridian/serve/door"
	"meridian/serve/door/doorpb"
)

// loan is a stretch of memory that a rank has lent.
type loan struct {
	region  uint64
	section *mem.Section
	bytes   uint64 // as they were reserved
}

// lend takes memory of a rank's process.
func (c *conn) lend(m *doorpb.Lend, f *door.Frame) (*doorpb.Reply, *door.Problem) {
	s, e := c.server, c.engine
	if p := s.reserve(c, m.GetSizeBytes()); p != nil {
		return nil, p
	}
	section, p := c.open(m, f)
	if p != nil {
		s.unreserve(e, m.GetSizeBytes())
		return nil, p
	}
	info, err := s.options.Agent.Register(section, fmt.Sprintf("%s/%d", e.id, c.rank))
	if err != nil {
		err = errors.Join(err, closeSection(section))
		s.unreserve(e, m.GetSizeBytes())
		return nil, problemOf(err)
	}
	lent := loan{region: info.ID, section: section, bytes: m.GetSizeBytes()}
	if p := s.addMemory(c, lent, handoff.Extent{Region: info.ID, Epoch: info.Epoch, Length: info.Length}, m.GetMore()); p != nil {
		s.returnMemory(e, lent)
		return nil, p
	}
	return &doorpb.Reply{With: &doorpb.Reply_Region{Region: info.ID}}, nil
}

// maxAllLentBytes is a quarter of the addresses that a process has. Mapping takes
// addresses, also where a file has no memory yet, and without any left the agent
// itself could not go on.
const maxAllLentBytes = 1 << 45

// reserve counts what a rank lends before it is mapped, as ranks lend at the same
// time.
func (s *Server) reserve(c *conn, size uint64) *door.Problem {
	if c.rank == control {
		return problem(door.CodeOrder, "control lends no memory; its ranks do")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	e := c.engine
	switch {
	case e.state == fencing:
		return problem(door.CodeFenced, "engine %s is being fenced", e.id)
	case e.ranks[c.rank].complete:
		return problem(door.CodeOrder, "rank %d of engine %s has said that nothing more follows", c.rank, e.id)
	case e.regions >= s.options.MaxRegions:
		return busy(fmt.Sprintf("engine %s has lent %d regions, which is the limit", e.id, e.regions))
	case size > s.options.MaxLentBytes:
		return problem(door.CodeSize, "%d bytes are more than this machine can have; an engine lends at most %d", size, s.options.MaxLentBytes)
	case size > s.options.MaxLentBytes-e.lentBytes:
		return busy(fmt.Sprintf("engine %s has lent %d bytes and lends %d more, of at most %d", e.id, e.lentBytes, size, s.options.MaxLentBytes))
	case size > maxAllLentBytes-s.lentBytes:
		return busy(fmt.Sprintf("all engines here have lent %d bytes and this one lends %d more, of at most %d", s.lentBytes, size, uint64(maxAllLentBytes)))
	}
	e.regions, e.lentBytes, s.lentBytes = e.regions+1, e.lentBytes+size, s.lentBytes+size
	return nil
}

func (s *Server) unreserve(e *engine, size uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e.regions, e.lentBytes, s.lentBytes = e.regions-1, e.lentBytes-size, s.lentBytes-size
}

// addMemory adds memory to a rank, which may complete the engine. If that fails
// nothing has changed.
func (s *Server) addMemory(c *conn, lent loan, extent handoff.Extent, more bool) *door.Problem {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := c.engine
	if e.state == fencing {
		return problem(door.CodeFenced, "engine %s is being fenced", e.id)
	}
	r := e.ranks[c.rank]
	before := *r
	r.lent, r.memory, r.complete = append(r.lent, lent), append(r.memory, extent), !more
	p := s.tryServe(e)
	if p != nil {
		*r = before
	}
	return p
}

// open makes a section of what is lent.
func (c *conn) open(m *doorpb.Lend, f *door.Frame) (*mem.Section, *door.Problem) {
	switch kind := m.GetKind().(type) {
	case *doorpb.Lend_Memfd:
		return openMemFD(f.File, m.GetSizeBytes())
	case *doorpb.Lend_Borrowed:
		if f.File != nil {
			return nil, problem(door.CodeMalformed, "a descriptor came with memory that needs none")
		}
		return c.borrow(kind.Borrowed.GetAddress(), m.GetSizeBytes())
	case *doorpb.Lend_CudaIpc:
		if f.File != nil {
			return nil, problem(door.CodeMalformed, "a descriptor came with memory that needs none")
		}
		return c.importVRAM(kind.CudaIpc, m.GetSizeBytes())
	case nil:
		return nil, choice(m.ProtoReflect().GetUnknown(), "Lend does not say what kind of memory it lends")
	default:
		p := problem(door.CodeUnsupported, "this agent does not take %s memory", kindName(m))
		p.Hint = "lend a memfd, borrowed memory, or cuda_ipc"
		return nil, p
	}
}

func kindName(m *doorpb.Lend) string {
	switch m.GetKind().(type) {
	case *doorpb.Lend_CudaVmmFd:
		return "cuda_vmm_fd"
	case *doorpb.Lend_DmabufFd:
		return "dmabuf_fd"
	}
	return "that kind of"
}

// openMemFD maps a memfd that cannot change its size.
func openMemFD(file *os.File, size uint64) (*mem.Section, *door.Problem) {
	if file == nil {
		return nil, problem(door.CodeMalformed, "no descriptor came with the frame")
	}
	// Only memory files have seals. Of another file nothing more is asked: what
	// it is on may answer never.
	if _, err := unix.FcntlInt(file.Fd(), unix.F_GET_SEALS, 0); err != nil {
		return nil, problem(door.CodeSeal, "the descriptor is not of a memfd: %v", err)
	}
	var stat unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &stat); err != nil {
		return nil, problem(door.CodeSeal, "the descriptor: %v", err)
	}
	if uint64(stat.Size) != size || size == 0 {
		return nil, problem(door.CodeSize, "the memfd has %d bytes, size_bytes says %d", stat.Size, size)
	}
	fd, err := unix.FcntlInt(file.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, problem(door.CodeInternal, "%v", err)
	}
	arena, err := mem.MapArena(fd, true)
	if err != nil {
		return nil, &door.Problem{Code: door.CodeSeal, Message: err.Error(), Hint: "memfd_create with MFD_ALLOW_SEALING, ftruncate, then F_ADD_SEALS F_SEAL_SHRINK|F_SEAL_GROW"}
	}
	return arena.Section, nil
}

// borrow takes a stretch of the peer's own memory for as long as it is there. Whether
// the kernel lets this process reach it is tried at once.
func (c *conn) borrow(address, size uint64) (*mem.Section, *door.Problem) {
	section, p := c.reach(address, size)
	if p != nil {
		return nil, p
	}
	if err := tryEnds(section); err != nil {
		return nil, unreachable(errors.Join(err, closeSection(section)))
	}
	return section, nil
}

// unreachable says that the kernel keeps memory of a peer from this process, or that
// the peer has none there.
func unreachable(err error) *door.Problem {
	p := problem(door.CodeDenied, "the memory cannot be reached: %v", err)
	p.Hint = "the client calls prctl(PR_SET_PTRACER) with the agent's pid; `meridian doctor` tells what this machine allows"
	return p
}

// reach takes a stretch of the peer's own memory, as it says.
func (c *conn) reach(address, size uint64) (*mem.Section, *door.Problem) {
	pidfd, err := c.peer.dupPidfd()
	if err != nil {
		return nil, problem(door.CodeInternal, "%v", err)
	}
	section, err := mem.Borrow(mem.BorrowOptions{PIDFD: pidfd, PID: c.peer.pid, Address: address, SizeBytes: size, Device: c.server.newDevice()})
	if err != nil {
		return nil, problemOf(err)
	}
	return section, nil
}

// newDevice is for memory of a process: each has addresses of its own.
func (s *Server) newDevice() uint32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.nextDevice++
	return 1<<31 | s.nextDevice
}

// tryEnds reads the first and the last byte and writes them back as they were.
func tryEnds(section *mem.Section) error {
	var b [1]byte
	for _, at := range []uint64{0, section.Size() - 1} {
		if err := section.ReadAt(b[:], at); err != nil {
			return err
		}
		if err := section.WriteAt(b[:], at); err != nil {
			return err
		}
	}
	return nil
}

func closeSection(section *mem.Section) error {
	ctx, cancel := bounded(10 * time.Second)
	defer cancel()
	return section.Close(ctx)
}

// returnMemory ends a loan: when it returns nothing touches the memory any more. It
// is never given up, since memory in doubt must not be given back.
func (s *Server) returnMemory(e *engine, l loan) {
	ctx, cancel := bounded(10 * time.Second)
	defer cancel()
	if err := s.options.Agent.Deregister(ctx, l.region); err != nil {
		s.options.Logger.Warn("a region was not quiet at once", "engine", e.id, "region", l.region, "error", err)
	}
	for {
		err := closeSection(l.section)
		if err == nil {
			s.unreserve(e, l.bytes)
			return
		}
		s.options.Logger.Error("an engine's memory is still in use", "engine", e.id, "region", l.region, "error", err)
	}
}
