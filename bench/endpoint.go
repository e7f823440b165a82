package bench

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	"meridian/fabric"
	"meridian/mem"
	"meridian/mrdn"
)

// setup is what both sides of a measurement open.
type setup struct {
	Fabric    string `json:"fabric"`
	Streams   int    `json:"streams"`
	Checksums bool   `json:"checksums"`
	PoolBytes uint64 `json:"pool_bytes"`
	// CPUProfile is a directory, or empty.
	CPUProfile string `json:"cpu_profile"`
}

// introduction is what one side tells the other to be reached.
type introduction struct {
	Name        string  `json:"name"`
	Incarnation mrdn.ID `json:"incarnation"`
	Address     []byte  `json:"address"`
}

func (i introduction) peer() fabric.Peer {
	return fabric.Peer{Name: i.Name, Incarnation: i.Incarnation, Address: i.Address}
}

// The one region that each side registers.
const (
	poolRegion = 1
	poolEpoch  = 1
)

// endpoint is one side: a fabric with a pool of memory.
type endpoint struct {
	side   side
	fabric fabric.Fabric
	pool   *mem.Arena
	self   introduction
	notes  chan fabric.Notification
}

func openEndpoint(ctx context.Context, of side, s setup) (_ *endpoint, err error) {
	e := &endpoint{side: of, notes: make(chan fabric.Notification, 1024)}
	defer func() {
		if err != nil {
			err = errors.Join(err, e.close(ctx))
		}
	}()
	e.self.Name = fmt.Sprintf("bench-%d", of)
	e.self.Incarnation = newID()
	if e.pool, err = mem.NewArena(mem.ArenaOptions{Name: e.self.Name, SizeBytes: s.PoolBytes, NUMANode: -1}); err != nil {
		return e, err
	}
	e.fabric, err = fabricByName(s.Fabric).open(ctx, fabricOptions{
		Agent: e.self.Name, Incarnation: e.self.Incarnation, Streams: s.Streams, Checksums: s.Checksums, Events: e,
	})
	if err != nil {
		return e, err
	}
	e.self.Address = e.fabric.Address()
	return e, e.fabric.Register(fabric.Region{ID: poolRegion, Epoch: poolEpoch, Section: e.pool.Section})
}

func newID() (id mrdn.ID) {
	rand.Read(id[:])
	return id
}

// Notified keeps a notification for whoever waits for one.
func (e *endpoint) Notified(n fabric.Notification) error {
	select {
	case e.notes <- n:
		return nil
	default:
		return fabric.ErrBusy
	}
}

// LinkLost is of no use here: the transfer that runs fails, and says why.
func (e *endpoint) LinkLost(fabric.Peer, error) {}

func (e *endpoint) memory() []byte { return e.pool.Bytes(0, e.pool.Size()) }

// load writes the row's contents where they come from, and clears where they
// go to.
func (e *endpoint) load(ctx context.Context, c Case) {
	apart(ctx, "load", func() {
		if c.destination() == e.side {
			clear(e.memory())
		} else {
			fill(e.memory(), e.side)
		}
	})
}

// check reads what arrived; the side that only sends has nothing to check.
func (e *endpoint) check(ctx context.Context, c Case) (err error) {
	if c.destination() == e.side {
		apart(ctx, "check", func() { err = c.check(e.memory()) })
	}
	return err
}

// list names a row's blocks in a side's pool.
func (c Case) list(of side) (fabric.List, error) {
	l := fabric.List{{Region: poolRegion, Epoch: poolEpoch}}
	for _, offset := range c.offsets(of) {
		if err := l[0].Spans.Add(offset, c.Block); err != nil {
			return nil, err
		}
	}
	return l, nil
}

func (e *endpoint) close(ctx context.Context) error {
	var errs []error
	if e.fabric != nil {
		errs = append(errs, e.fabric.Close(ctx))
	}
	if e.pool != nil {
		errs = append(errs, e.pool.Close(ctx))
	}
	return errors.Join(errs...)
}
