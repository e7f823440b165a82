package doorserver

import (
	"context"
	"os"
	"time"

	"meridian/move/mem"
	"meridian/serve/door"
)

// Cache is the object cache that Store frames reach. An error of it that has a code
// for clients is a *door.Problem; any other is internal. Its calls end soon after
// their contexts do, and touch no memory of theirs then.
type Cache interface {
	// Put stores an object.
	Put(ctx context.Context, object Object, from Memory, w door.Wish) error
	// Get reads an object and returns its size, also with the problem that it does
	// not fit (door.CodeTooSmall).
	Get(ctx context.Context, object Object, into Memory) (sizeBytes uint64, err error)
	Remove(ctx context.Context, object Object) error
	// Open makes room for an object. What it returns is committed or aborted once. Maps
	// says that the client was given the arena, and may store to it by itself.
	Open(ctx context.Context, object Object, sizeBytes uint64, w door.Wish, maps bool) (Writer, error)
	// Locate says where an object lies, and waits for it for so long to be ready.
	Locate(ctx context.Context, object Object, wait time.Duration) (door.Place, error)
	// Has says which of a tenant's keys are there, one entry for each.
	Has(ctx context.Context, tenant string, keys [][]byte) ([]bool, error)
	List(ctx context.Context, l door.List) (door.Listing, error)
	Stats(ctx context.Context) ([]door.OwnerStats, error)
	// Evict lets objects go until so many thousandths of each heap are used at most.
	Evict(ctx context.Context, permille uint32) (objects uint64, err error)
	// Arena is the memory of this agent's own objects, where it may be mapped by
	// others. The caller closes the file.
	Arena() (Arena, error)
}

// Object names one: no key of a tenant is a key of another.
type Object struct {
	Tenant string
	Key    []byte
}

// Memory is where a value is or goes: bytes of this process, or a section of a
// client's, to which the caller holds a reference.
type Memory struct {
	Bytes   []byte
	Section *mem.Section
	Client  Client // whose section it is
}

// Client is a process at the door, as the kernel knows it.
type Client struct {
	User    uint32
	Process int
}

// Size is how many bytes it has.
func (m Memory) Size() uint64 {
	if m.Section != nil {
		return m.Section.Size()
	}
	return uint64(len(m.Bytes))
}

// Writer is an object that is being written. Its calls come one at a time.
type Writer interface {
	Place() door.Place
	Write(ctx context.Context, offset uint64, from Memory) error
	Commit(ctx context.Context) error
	// Abort gives the room back.
	Abort(ctx context.Context) error
}

// Arena is memory that others map.
type Arena struct {
	File      *os.File
	Owner     string
	Rank      uint32
	SizeBytes uint64
	Writable  bool
}
