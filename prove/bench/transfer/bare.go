package transfer

import (
	"context"
	"fmt"

	"meridian/move/fabric"
	"meridian/prove/bench"
)

// Bare is plain transfers of single blocks between this process and a child, as
// Run measures them: what stands on transfers is compared with them.
type Bare struct{ m *ours }

// BareOptions says between whom.
type BareOptions struct {
	// Fabric is tcp or host.
	Fabric string
	// Total is the most bytes that a Load names.
	Total bench.Size
	// Streams per peer; 0 means one per core, at most 8.
	Streams int
	// Dir and ServeCommand are those of Options.
	Dir          string
	ServeCommand []string
}

// OpenBare starts the serving side. The caller closes it.
func OpenBare(ctx context.Context, o BareOptions) (*Bare, error) {
	kind := fabricByName(o.Fabric)
	if kind.oneProcess {
		return nil, fmt.Errorf("%w: %s does not go from one process to another", bench.ErrOptions, o.Fabric)
	}
	if o.Streams == 0 {
		o.Streams = defaultStreams()
	}
	m, err := openOurs(ctx, Options{Streams: o.Streams, Total: o.Total, Dir: o.Dir, ServeCommand: o.ServeCommand}, kind, variant{"on", noProtection})
	return &Bare{m}, err
}

// Load makes ready for blocks that lie one behind the other on both sides:
// contents in the source, none in the destination.
func (b *Bare) Load(ctx context.Context, op fabric.Op, block uint64, count int) error {
	c := Case{Op: "write", Block: block, Total: block * uint64(count), Layout: Dense}
	if op == fabric.Read {
		c.Op = "read"
	}
	b.m.parts = count
	return b.m.load(ctx, c)
}

// Move moves one of the blocks, and returns when it is there. Several may be
// moved at a time.
func (b *Bare) Move(ctx context.Context, block int) error {
	t, err := b.m.link.Post(ctx, b.m.prepared[block], fabric.PostOptions{ID: newID()})
	if err == nil {
		err = t.Await(ctx)
	}
	if err != nil {
		return b.m.explain(err)
	}
	return nil
}

// Clear empties the destination; Verify reads it.
func (b *Bare) Clear(ctx context.Context) error  { return b.m.clear(ctx) }
func (b *Bare) Verify(ctx context.Context) error { return b.m.verify(ctx) }

// PIDs are its processes, without this one.
func (b *Bare) PIDs() []int { return b.m.PIDs() }

// Close ends the serving side.
func (b *Bare) Close(ctx context.Context) error { return b.m.Close(ctx) }
