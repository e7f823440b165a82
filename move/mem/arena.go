package mem

import (
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ArenaOptions describes memory of our own.
type ArenaOptions struct {
	// Name shows up in /proc/PID/maps; it need not be unique.
	Name string
	// SizeBytes is rounded up to whole pages.
	SizeBytes uint64
	// HugePages asks for 2 MiB pages; where none are reserved NewArena fails.
	HugePages bool
	// NUMANode, where it is not negative, is the node to place pages on. It is
	// a preference, not a demand.
	NUMANode int
}

// sealed keeps a mapping valid: a file that shrinks under a mapping is a SIGBUS
// in the process that reads it.
const sealed = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL

// Arena is DRAM that another process can map: a sealed memfd.
type Arena struct {
	*Section
	fd int
}

// NewArena makes a section of zeroed DRAM. The caller closes it.
func NewArena(o ArenaOptions) (*Arena, error) {
	page := uint64(os.Getpagesize())
	flags := unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	if o.HugePages {
		page = 2 << 20
		flags |= unix.MFD_HUGETLB | unix.MFD_HUGE_2MB
	}
	if o.SizeBytes == 0 || o.SizeBytes > 1<<46 {
		return nil, fmt.Errorf("%w: an arena of %d bytes", ErrBounds, o.SizeBytes)
	}
	size := (o.SizeBytes + page - 1) / page * page
	fd, err := unix.MemfdCreate("meridian-"+o.Name, flags)
	if err != nil {
		return nil, fmt.Errorf("mem: memfd_create: %w", err)
	}
	if err := unix.Ftruncate(fd, int64(size)); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("mem: arena of %d bytes: %w", size, err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, sealed); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("mem: seal: %w", err)
	}
	a, err := mapArena(fd, size, unix.PROT_READ|unix.PROT_WRITE)
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	if o.NUMANode >= 0 {
		preferNode(a.mapped, o.NUMANode)
		a.device = uint32(o.NUMANode)
	}
	return a, nil
}

// MapArena maps an arena that another process made, given its descriptor, which
// MapArena takes over. It refuses one that could still shrink. Without writable
// the section can only be read.
func MapArena(fd int, writable bool) (*Arena, error) {
	a, err := mapForeign(fd, writable)
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	return a, nil
}

func mapForeign(fd int, writable bool) (*Arena, error) {
	seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil {
		return nil, fmt.Errorf("mem: not a memfd: %w", err)
	}
	if fixedSize := unix.F_SEAL_SHRINK | unix.F_SEAL_GROW; seals&fixedSize != fixedSize {
		return nil, fmt.Errorf("mem: the memfd must be sealed against shrinking and growing (F_SEAL_SHRINK, F_SEAL_GROW)")
	}
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return nil, fmt.Errorf("mem: stat memfd: %w", err)
	}
	if stat.Size <= 0 {
		return nil, fmt.Errorf("%w: the memfd is empty", ErrBounds)
	}
	protection := unix.PROT_READ
	if writable {
		protection |= unix.PROT_WRITE
	}
	return mapArena(fd, uint64(stat.Size), protection)
}

func mapArena(fd int, size uint64, protection int) (*Arena, error) {
	mapped, err := unix.Mmap(fd, 0, int(size), protection, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("mem: map %d bytes: %w", size, err)
	}
	base := uint64(uintptr(unsafe.Pointer(unsafe.SliceData(mapped))))
	s := newSection(DRAM, base, size, mapped, &mapping{mapped: mapped, fd: fd})
	s.readOnly = protection&unix.PROT_WRITE == 0
	return &Arena{Section: s, fd: fd}, nil
}

// FD is the descriptor to pass to another process. It stays the arena's.
func (a *Arena) FD() int { return a.fd }

// mapping is the backing of memory in this process; its bytes are reached
// through Section.mapped.
type mapping struct {
	mapped []byte
	fd     int
}

func (m *mapping) ReadAt([]byte, uint64) error  { panic("mem: mapped memory is read in place") }
func (m *mapping) WriteAt([]byte, uint64) error { panic("mem: mapped memory is written in place") }

func (m *mapping) Close() error {
	if err := unix.Munmap(m.mapped); err != nil {
		return fmt.Errorf("mem: unmap: %w", err)
	}
	return unix.Close(m.fd)
}

// preferNode is a hint: on a machine that does not know NUMA it does nothing.
func preferNode(memory []byte, node int) {
	const preferred = 1 // MPOL_PREFERRED
	mask := uint64(1) << (uint(node) & 63)
	_, _, _ = unix.Syscall6(unix.SYS_MBIND, uintptr(unsafe.Pointer(unsafe.SliceData(memory))), uintptr(len(memory)),
		preferred, uintptr(unsafe.Pointer(&mask)), 64, 0)
}
