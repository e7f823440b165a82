package store

import (
	"context"

	"meridian/move/fabric"
	"meridian/prove/bench"
	"meridian/prove/bench/transfer"
)

// bare is a plain transfer of the same bytes, one for each object, prepared
// before the clock runs: what a store adds is compared with it.
type bare struct {
	*transfer.Bare
	current Case
}

func openBare(ctx context.Context, o Options, where string) (contender, error) {
	b, err := transfer.OpenBare(ctx, transfer.BareOptions{
		Fabric: fabricOf(where), Total: bench.Size{Bytes: o.mostBytes()}, Dir: o.Dir, ServeCommand: o.ServeCommand,
	})
	if err != nil {
		return nil, err
	}
	return &bare{Bare: b}, nil
}

func (b *bare) Name() string { return "transfer" }

func (b *bare) load(ctx context.Context, _ int, c Case) error {
	b.current = c
	op := fabric.Write
	if c.Op == get {
		op = fabric.Read
	}
	return b.Load(ctx, op, c.Object, c.Count)
}

func (b *bare) round(ctx context.Context, _ int) (Lap, error) {
	return b.current.run(ctx, func(ctx context.Context, _, object int) error { return b.Move(ctx, object) })
}

func (b *bare) verify(ctx context.Context) error {
	if err := b.Clear(ctx); err != nil {
		return err
	}
	if _, err := b.round(ctx, 0); err != nil {
		return err
	}
	return b.Verify(ctx)
}

func (b *bare) unload(context.Context) error { return nil }
