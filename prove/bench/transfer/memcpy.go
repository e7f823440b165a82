package transfer

import (
	"context"
	"errors"
	"sync"
	"time"

	"meridian/prove/bench"
)

// memcpy copies the same blocks within this process, with every core: what the
// machine's memory allows.
type memcpy struct {
	bench.Opened
	pools   [2]*pool // from, to
	current Case
	from    []uint64
	to      []uint64
}

func openMemcpy(ctx context.Context, o Options) (_ contender, err error) {
	m := &memcpy{}
	defer m.Unless(ctx, &err)
	for i := range m.pools {
		if m.pools[i], err = openPool("memcpy", poolBytes(o.Total.Bytes)); err != nil {
			return nil, err
		}
		m.Closes(m.pools[i].Close)
	}
	return m, nil
}

func (m *memcpy) Name() string { return "memcpy" }

func (m *memcpy) memory(i int) []byte { return m.pools[i].Bytes(0, m.pools[i].Size()) }

func (m *memcpy) load(ctx context.Context, c Case) error {
	m.current = c
	to := c.destination()
	m.from, m.to = c.offsets(to.other()), c.offsets(to)
	return errors.Join(
		bench.Apart(ctx, "memcpy", func() error { return m.pools[0].fill(to.other()) }),
		m.clear(ctx),
	)
}

func (m *memcpy) round(ctx context.Context, _ bool) (float64, error) {
	start := time.Now()
	err := bench.Apart(ctx, "memcpy", func() error {
		var workers sync.WaitGroup
		count := len(bench.UsableCores())
		for i := range count {
			workers.Go(func() { m.copyShare(i*len(m.to)/count, (i+1)*len(m.to)/count) })
		}
		workers.Wait()
		return nil
	})
	return gbps(m.current.Total, time.Since(start)), err
}

func (m *memcpy) copyShare(first, end int) {
	from, to, block := m.memory(0), m.memory(1), m.current.Block
	for i := first; i < end; i++ {
		copy(to[m.to[i]:m.to[i]+block], from[m.from[i]:m.from[i]+block])
	}
}

func (m *memcpy) clear(ctx context.Context) error {
	return bench.Apart(ctx, "memcpy", m.pools[1].clear)
}

func (m *memcpy) verify(ctx context.Context) error {
	return bench.Apart(ctx, "memcpy", func() error { return m.current.check(m.pools[1].look) })
}

func (m *memcpy) rest()       {}
func (m *memcpy) wake()       {}
func (m *memcpy) PIDs() []int { return nil }
