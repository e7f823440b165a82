package agent

// maxInboxBytes bounds what notifications that the owner has not taken may hold.
const maxInboxBytes = 16 << 20

// inboxBytes knows how many bytes wait in the inbox. The owner that takes a
// notification does not tell; but they are taken in order, so the length of the
// inbox tells which are left.
type inboxBytes struct {
	sizes []int // of those that wait, oldest first, and maybe some taken before
	bytes int
}

// admits reports whether another payload fits beside the last waiting ones.
func (i *inboxBytes) admits(size, waiting int) bool {
	for len(i.sizes) > waiting {
		i.bytes -= i.sizes[0]
		i.sizes = i.sizes[1:]
	}
	return i.bytes+size <= maxInboxBytes
}

func (i *inboxBytes) add(size int) {
	i.sizes = append(i.sizes, size)
	i.bytes += size
}
