package transfer

import (
	"bytes"
	"context"
	"crypto/rand"

	"meridian/kv"
	"meridian/move/fabric"
	"meridian/prove/bench"
)

// setup is what both sides of a measurement open.
type setup struct {
	Fabric    string `json:"fabric"`
	Streams   int    `json:"streams"`
	Checksums bool   `json:"checksums"`
	// Protect is one of Protections.
	Protect   string `json:"protect"`
	PoolBytes uint64 `json:"pool_bytes"`
	// Dir is for the sockets and files of both sides.
	Dir string `json:"dir"`
	// CPUProfile is a directory, or empty.
	CPUProfile string `json:"cpu_profile"`
}

// profileName tells the serving sides of one run apart.
func (s setup) profileName() string {
	name := "serving-" + s.Fabric
	if s.Protect != noProtection {
		name += "-" + s.Protect
	}
	if !s.Checksums {
		name += "-no-checksums"
	}
	return name
}

// introduction is what one side tells the other to be reached.
type introduction struct {
	Name        string `json:"name"`
	Incarnation kv.ID  `json:"incarnation"`
	Address     []byte `json:"address"`
	// Region is the id of its pool.
	Region uint64 `json:"region"`
}

func (i introduction) peer() fabric.Peer {
	return fabric.Peer{Name: i.Name, Incarnation: i.Incarnation, Address: i.Address}
}

// poolEpoch is the epoch of the one region that each side registers; unless an
// agent numbers it, its id is the side.
const poolEpoch = 1

// endpoint is one side: a fabric with a pool.
type endpoint struct {
	bench.Opened
	side   side
	fabric fabric.Fabric
	pool   *pool
	self   introduction
	notes  chan fabric.Notification
	shield *shield // nil when nothing is guarded
}

func openEndpoint(ctx context.Context, of side, s setup, open opener) (_ *endpoint, err error) {
	// There is room for all the notifications that are not answered: the side that takes
	// them may wait for a core that long.
	e := &endpoint{side: of, notes: make(chan fabric.Notification, 2*samples)}
	defer e.Unless(ctx, &err)
	e.self.Name, e.self.Region = agentName(of), uint64(of)
	e.self.Incarnation = newID()
	if of == serving && fabricByName(s.Fabric).onDisk {
		e.pool, err = openFilePool(s.Dir, s.PoolBytes)
	} else {
		e.pool, err = openPool(e.self.Name, s.PoolBytes)
	}
	if err != nil {
		return e, err
	}
	e.Closes(e.pool.Close)
	if s.Protect != noProtection {
		if err = e.raise(ctx, s, open); err != nil {
			return e, err
		}
		e.self.Address = e.fabric.Address()
		return e, nil
	}
	e.fabric, err = open(ctx, fabricOptions{
		Agent: e.self.Name, Incarnation: e.self.Incarnation, Streams: s.Streams, Checksums: s.Checksums, Events: e, Dir: s.Dir,
	})
	if err != nil {
		return e, err
	}
	e.Closes(e.fabric.Close)
	e.self.Address = e.fabric.Address()
	return e, e.fabric.Register(fabric.Region{ID: e.self.Region, Epoch: poolEpoch, Section: e.pool.Section})
}

func newID() (id kv.ID) {
	rand.Read(id[:])
	return id
}

// Notified keeps a notification for the caller that waits for one.
func (e *endpoint) Notified(n fabric.Notification) (fabric.NotificationHandler, error) {
	n.Payload = bytes.Clone(n.Payload)
	select {
	case e.notes <- n:
		return nil, nil
	default:
		return nil, fabric.ErrBusy
	}
}

// LinkLost is of no use here: the transfer that runs fails, and says why.
func (e *endpoint) LinkLost(fabric.Peer, error) {}

// Refused shows in what was posted.
func (e *endpoint) Refused(string, error) {}

// load writes the row's contents where they come from, and clears where they
// go to.
func (e *endpoint) load(ctx context.Context, c Case) error {
	if c.destination() == e.side {
		return e.clear(ctx)
	}
	return bench.Apart(ctx, "load", func() error { return e.pool.fill(e.side) })
}

func (e *endpoint) clear(ctx context.Context) error { return bench.Apart(ctx, "clear", e.pool.clear) }

// check reads what arrived; the side that only sends has nothing to check.
func (e *endpoint) check(ctx context.Context, c Case) error {
	if c.destination() != e.side {
		return nil
	}
	return bench.Apart(ctx, "check", func() error { return c.check(e.pool.look) })
}

// list names a row's blocks in a side's pool.
func (c Case) list(of side) (fabric.List, error) {
	l := fabric.List{{Region: uint64(of), Epoch: poolEpoch}}
	for _, offset := range c.offsets(of) {
		if err := l[0].Spans.Add(offset, c.Block); err != nil {
			return nil, err
		}
	}
	return l, nil
}
