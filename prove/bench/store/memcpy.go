package store

import (
	"context"
	"errors"

	"meridian/move/mem"
)

// memcpy copies objects within this process, with a thread for each client: what
// the machine's memory allows.
type memcpy struct {
	current  Case
	from, to *mem.Arena
}

func openMemcpy(context.Context, Options, string) (contender, error) { return &memcpy{}, nil }

func (m *memcpy) Name() string { return "memcpy" }
func (m *memcpy) PIDs() []int  { return nil }

func (m *memcpy) load(ctx context.Context, _ int, c Case) error {
	err := m.unload(ctx)
	m.current = c
	for _, arena := range []**mem.Arena{&m.from, &m.to} {
		if err == nil {
			*arena, err = mem.NewArena(mem.ArenaOptions{Name: m.Name(), SizeBytes: c.bytes(), NUMANode: -1})
		}
	}
	if err != nil {
		return err
	}
	for object := range c.Count {
		fill(m.part(m.from, object), object)
	}
	clear(m.to.Bytes(0, m.to.Size()))
	return nil
}

func (m *memcpy) part(of *mem.Arena, object int) []byte {
	return of.Bytes(uint64(object)*m.current.Object, m.current.Object)
}

func (m *memcpy) round(ctx context.Context, _ int) (Lap, error) {
	return m.current.run(ctx, func(_ context.Context, _, object int) error {
		copy(m.part(m.to, object), m.part(m.from, object))
		return nil
	})
}

func (m *memcpy) verify(ctx context.Context) error {
	clear(m.to.Bytes(0, m.to.Size()))
	if _, err := m.round(ctx, 0); err != nil {
		return err
	}
	return m.current.check(func(object int) []byte { return m.part(m.to, object) })
}

func (m *memcpy) unload(ctx context.Context) (err error) {
	for _, arena := range []**mem.Arena{&m.from, &m.to} {
		if *arena != nil {
			err = errors.Join(err, (*arena).Close(ctx))
			*arena = nil
		}
	}
	return err
}

func (m *memcpy) Close(ctx context.Context) error { return m.unload(ctx) }
