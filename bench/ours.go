package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"meridian/fabric"
)

// ours is Meridian: this process posts, a child serves.
type ours struct {
	checksum string // as asked for: on or off
	pinned   bool
	child    *process
	near     *endpoint
	link     fabric.Link
	current  Case
	prepared *fabric.Prepared
}

func openOurs(ctx context.Context, o Options, fabricName, checksum string) (_ *ours, err error) {
	m := &ours{checksum: checksum, pinned: o.Pin}
	defer func() {
		if err != nil {
			err = errors.Join(err, m.close(ctx))
		}
	}()
	if m.child, err = startProcess("the serving side", o.ServeCommand, nil); err != nil {
		return m, err
	}
	s := setup{
		Fabric: fabricName, Streams: o.Streams, Checksums: checksum == "on",
		PoolBytes: poolBytes(o.Total.Bytes), CPUProfile: o.CPUProfile,
	}
	var far answer
	if err := m.child.ask(ctx, request{Do: "open", Setup: &s}, &far); err != nil {
		return m, err
	}
	if m.near, err = openEndpoint(ctx, posting, s); err != nil {
		return m, err
	}
	m.link, err = m.near.fabric.Connect(ctx, far.Self.peer())
	return m, err
}

func (m *ours) name() string {
	if m.checksum == "off" {
		return "meridian, no checksums"
	}
	return "meridian"
}

func (m *ours) load(ctx context.Context, c Case) error {
	m.release()
	m.current = c
	if err := m.child.ask(ctx, request{Do: "load", Case: &c}, nil); err != nil {
		return err
	}
	m.near.load(ctx, c)
	local, err := c.list(posting)
	if err != nil {
		return err
	}
	remote, err := c.list(serving)
	if err != nil {
		return err
	}
	m.prepared, err = m.link.Prepare(c.op(), local, remote)
	return err
}

func (m *ours) release() {
	if m.prepared != nil {
		m.prepared.Release()
		m.prepared = nil
	}
}

// round ignores the runner's choice: whether Meridian is pinned is the user's.
// The pinning ends with the round, because memcpy runs in this process too.
func (m *ours) round(ctx context.Context, _ bool) (float64, error) {
	if m.pinned {
		if err := placePair(os.Getpid(), m.child.pid(), true); err != nil {
			return 0, err
		}
		defer pin(os.Getpid(), usableCores())
	}
	start := time.Now()
	t, err := m.link.Post(ctx, m.prepared, fabric.PostOptions{ID: newID()})
	if err == nil {
		err = t.Await(ctx)
	}
	if err != nil {
		return 0, m.explain(err)
	}
	return gbps(m.current.Total, time.Since(start)), nil
}

// explain puts the death of the serving side before what followed from it.
func (m *ours) explain(err error) error {
	select {
	case <-m.child.exited:
		return m.child.gone(err)
	case <-time.After(200 * time.Millisecond):
		return err
	}
}

func gbps(bytes uint64, took time.Duration) float64 {
	return float64(bytes) / 1e9 / took.Seconds()
}

func (m *ours) clear(ctx context.Context) error {
	if m.current.destination() == serving {
		return m.child.ask(ctx, request{Do: "clear"}, nil)
	}
	apart(ctx, "clear", func() { clear(m.near.memory()) })
	return nil
}

func (m *ours) verify(ctx context.Context) error {
	if err := m.child.ask(ctx, request{Do: "check"}, nil); err != nil {
		return fmt.Errorf("after %v: %w", m.current, err)
	}
	return m.near.check(ctx, m.current)
}

// Nothing of ours spins, so it can wait without being stopped.
func (m *ours) rest()       {}
func (m *ours) wake()       {}
func (m *ours) pids() []int { return []int{m.child.pid()} }

func (m *ours) close(ctx context.Context) error {
	m.release()
	var errs []error
	if m.near != nil {
		errs = append(errs, m.near.close(ctx))
	}
	if m.child != nil {
		errs = append(errs, m.child.stop(ctx))
	}
	return errors.Join(errs...)
}
