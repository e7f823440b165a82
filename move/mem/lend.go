package mem

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Lend returns a descriptor by which another process can map the section with
// MapArena, to read it and not to write. The caller holds a reference during
// the call and closes the descriptor. Only memory that is a memfd can be lent.
func (s *Section) Lend() (*os.File, error) {
	m, isMemfd := s.backing.(*mapping)
	if !isMemfd {
		return nil, fmt.Errorf("mem: a section of kind %v cannot be lent", s.kind)
	}
	// Opened anew: a duplicate would share the arena's right to write.
	f, err := os.Open(fmt.Sprintf("/proc/self/fd/%d", m.fd))
	if err != nil {
		return nil, fmt.Errorf("mem: lend: %w", err)
	}
	return f, nil
}

// Share returns a descriptor by which another process can map the section with
// MapArena, to read and to write it. The caller holds a reference during the call
// and closes the descriptor. Only memory that is a memfd can be shared.
func (s *Section) Share() (*os.File, error) {
	m, isMemfd := s.backing.(*mapping)
	if !isMemfd {
		return nil, fmt.Errorf("mem: a section of kind %v cannot be shared", s.kind)
	}
	fd, err := unix.FcntlInt(uintptr(m.fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("mem: share: %w", err)
	}
	return os.NewFile(uintptr(fd), "shared"), nil
}
