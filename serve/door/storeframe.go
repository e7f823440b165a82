package door

// Bounds of the object cache's frames, which docs/wire.md names.
const (
	// MaxStoreBytes bounds one Store.
	MaxStoreBytes = 256 << 10
	// MaxStoreInline bounds a value in a Store, and all values in a Reply.
	MaxStoreInline = 64 << 10
	// MaxStoreKeys is how many objects one Store puts, gets or removes, and
	// MaxStoreNames how many it asks about.
	MaxStoreKeys  = 256
	MaxStoreNames = 4096
	// MaxStoreListed is how many objects one Store lists.
	MaxStoreListed = 1024
	// MaxStoreRequests is how many may be under way on a connection, and
	// MaxStoreOpen how many objects open.
	MaxStoreRequests = 64
	MaxStoreOpen     = 64
)
