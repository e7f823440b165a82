package keys

// Budget bounds what runs at a time. The zero value allows nothing.
type Budget struct {
	MaxBytes uint64
	MaxCount int
	bytes    uint64
	count    int
}

// Take reserves so many bytes for one more, or says that there is too much already. What
// is larger than all there may be is refused for ever.
func (b *Budget) Take(bytes uint64) bool {
	if b.count >= b.MaxCount || bytes > b.MaxBytes-min(b.bytes, b.MaxBytes) {
		return false
	}
	b.count++
	b.bytes += bytes
	return true
}

// Give ends one with so many bytes.
func (b *Budget) Give(bytes uint64) {
	b.count--
	b.bytes -= bytes
}

// InFlight is what runs.
func (b *Budget) InFlight() (bytes uint64, count int) { return b.bytes, b.count }
