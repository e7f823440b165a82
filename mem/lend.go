package mem

import (
	"fmt"
	"os"
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
