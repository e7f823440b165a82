package master

// serials knows which of an owner's claims were heard: of the newest ones each, of
// all that are older that they were.
type serials struct {
	newest uint64
	heard  [serialWindow / 64]uint64 // by serial, of the newest serialWindow
}

const serialWindow = 1024

// first reports whether a serial is heard for the first time. One that is too old
// to tell was heard before: its owner has given up on it.
func (s *serials) first(n uint64) bool {
	if n > s.newest {
		for at := max(s.newest+1, n-min(n, serialWindow-1)); at <= n; at++ {
			s.heard[at%serialWindow/64] &^= 1 << (at % 64)
		}
		s.newest = n
	} else if s.newest-n >= serialWindow || s.heard[n%serialWindow/64]&(1<<(n%64)) != 0 {
		return false
	}
	s.heard[n%serialWindow/64] |= 1 << (n % 64)
	return true
}
