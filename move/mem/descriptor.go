package mem

import "os"

// File is what a section of kind File reads and writes, and nil for any other.
// It stays the section's; the caller holds a reference while it uses it.
func (s *Section) File() *os.File {
	if b, is := s.backing.(*fileBacking); is {
		return b.f
	}
	return nil
}
