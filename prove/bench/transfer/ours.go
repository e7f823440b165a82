package transfer

import (
	"context"
	"fmt"
	"os"
	"time"

	"meridian/kv"
	"meridian/move/fabric"
	"meridian/prove/bench"
)

// ours is Meridian: this process posts; a child serves, or this process does.
type ours struct {
	bench.Opened
	variant
	pinned   bool
	parts    int    // transfers that a round is cut into
	dir      string // for the sockets and files of both sides
	child    *bench.Process
	far      partner
	near     *endpoint
	link     fabric.Link
	farPool  uint64 // the id of the serving side's region
	grant    kv.ID  // to it, for the current row
	current  Case
	prepared []*fabric.Prepared
}

// partner is the serving side.
type partner interface {
	do(ctx context.Context, r request) (answer, error)
}

// away is a partner in a process of its own.
type away struct{ *bench.Process }

func (a away) do(ctx context.Context, r request) (got answer, err error) {
	err = a.Ask(ctx, r, &got)
	return got, err
}

func openOurs(ctx context.Context, o Options, kind fabricKind, v variant) (_ *ours, err error) {
	m := &ours{variant: v, pinned: o.Pin && !kind.oneProcess, parts: 1}
	defer m.Unless(ctx, &err)
	if m.dir, err = m.Folder(o.Dir); err != nil {
		return m, err
	}
	if v.protect == withTLS {
		if err = issueCertificates(m.dir); err != nil {
			return m, err
		}
	}
	s := setup{
		Fabric: kind.name, Streams: o.Streams, Checksums: v.checksum == "on", Protect: v.protect,
		PoolBytes: poolBytes(o.Total.Bytes), Dir: m.dir,
	}
	open := kind.opener()
	if kind.oneProcess {
		here := newServer(open)
		m.Closes(here.close)
		m.far, m.parts = here, o.Streams
	} else {
		s.CPUProfile = o.CPUProfile
		if m.child, err = m.Start("the serving side", o.ServeCommand, nil); err != nil {
			return m, err
		}
		m.far = away{m.child}
	}
	far, err := m.far.do(ctx, request{Do: "open", Setup: &s})
	if err != nil {
		return m, err
	}
	if m.near, err = openEndpoint(ctx, posting, s, open); err != nil {
		return m, err
	}
	m.Closes(m.near.Close)
	m.Closes(func(context.Context) error {
		m.release()
		return nil
	})
	m.farPool = far.Self.Region
	m.link, err = m.near.fabric.Connect(ctx, far.Self.peer())
	return m, err
}

func (m *ours) Name() string { return m.variant.String() }

func (m *ours) load(ctx context.Context, c Case) error {
	m.release()
	m.current = c
	far, err := m.far.do(ctx, request{Do: "load", Case: &c})
	if err != nil {
		return err
	}
	m.grant = far.Grant
	if err := m.near.load(ctx, c); err != nil {
		return err
	}
	local, err := c.list(posting)
	if err != nil {
		return err
	}
	remote, err := c.list(serving)
	if err != nil {
		return err
	}
	local[0].Region, remote[0].Region = m.near.self.Region, m.farPool
	return m.prepare(local, remote)
}

// prepare cuts the lists into equal parts, at the bounds of blocks.
func (m *ours) prepare(local, remote fabric.List) error {
	c := m.current
	blocks := c.Total / c.Block
	parts := min(uint64(m.parts), blocks)
	for i := range parts {
		from, to := i*blocks/parts*c.Block, (i+1)*blocks/parts*c.Block
		near, err := local.Slice(nil, from, to-from)
		if err != nil {
			return err
		}
		far, err := remote.Slice(nil, from, to-from)
		if err != nil {
			return err
		}
		p, err := m.link.Prepare(c.op(), near, far)
		if err != nil {
			return err
		}
		m.prepared = append(m.prepared, p)
	}
	return nil
}

func (m *ours) release() {
	for _, p := range m.prepared {
		p.Release()
	}
	m.prepared = nil
}

// round ignores the runner's choice: whether Meridian is pinned is the user's.
// The pinning ends with the round, because memcpy runs in this process too.
func (m *ours) round(ctx context.Context, _ bool) (float64, error) {
	if m.pinned {
		if err := bench.PlacePair(os.Getpid(), m.child.PID(), true); err != nil {
			return 0, err
		}
		defer bench.Pin(os.Getpid(), bench.UsableCores())
	}
	start := time.Now()
	running := make([]*fabric.Transfer, len(m.prepared))
	var err error
	for i, p := range m.prepared {
		if running[i], err = m.link.Post(ctx, p, fabric.PostOptions{ID: newID(), Grant: m.grant}); err != nil {
			return 0, m.explain(err)
		}
	}
	for _, t := range running {
		if err := t.Await(ctx); err != nil {
			return 0, m.explain(err)
		}
	}
	return gbps(m.current.Total, time.Since(start)), nil
}

// explain puts the death of the serving side before what followed from it.
func (m *ours) explain(err error) error {
	if m.child == nil {
		return err
	}
	select {
	case <-m.child.Exited():
		return m.child.Gone(err)
	case <-time.After(200 * time.Millisecond):
		return err
	}
}

func gbps(bytes uint64, took time.Duration) float64 {
	return float64(bytes) / 1e9 / took.Seconds()
}

func (m *ours) clear(ctx context.Context) error {
	if m.current.destination() == posting {
		return m.near.clear(ctx)
	}
	_, err := m.far.do(ctx, request{Do: "clear"})
	return err
}

func (m *ours) verify(ctx context.Context) error {
	if _, err := m.far.do(ctx, request{Do: "check"}); err != nil {
		return fmt.Errorf("after %v: %w", m.current, err)
	}
	return m.near.check(ctx, m.current)
}

// Nothing of ours spins, so it can wait without being stopped.
func (m *ours) rest() {}
func (m *ours) wake() {}

func (m *ours) PIDs() []int {
	if m.child == nil {
		return nil
	}
	return []int{m.child.PID()}
}
