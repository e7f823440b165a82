package gpu

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"

	"meridian/kv"
	"meridian/move/cuda"
	"meridian/move/fabric"
	"meridian/move/fabric/host"
	"meridian/move/fabric/tcp"
	"meridian/move/mem"
	"meridian/move/mem/vram"
	"meridian/prove/bench"
)

// The kinds of memory of a side.
const (
	onGPU  = "gpu"
	onHost = "host"
)

// firstLayer is the region of the first layer of a cache whose layers are allocations of
// their own.
const firstLayer = 16

func regionOf(kind string) uint64 {
	if kind == onGPU {
		return 1
	}
	return 2
}

// side is one of the two processes: memory, and fabrics that it is registered with.
type side struct {
	bench.Opened
	device      *cuda.Device
	vram        *mem.Section
	layers      []*mem.Section
	arena       *mem.Arena
	dir         string
	incarnation kv.ID
	fabrics     map[string]fabric.Fabric
}

// fabricName is the fabric of a row as a side keeps it.
func fabricName(c Case) string {
	if c.Fabric == "host" && !c.Checked {
		return "host unchecked"
	}
	return c.Fabric
}

// openSide opens the first GPU and has three times what a round moves of its memory, a
// third of it in layers, and of the host's once.
func openSide(ctx context.Context, pool *vram.Pool, name string, total uint64) (_ *side, err error) {
	s := &side{incarnation: newID(), fabrics: make(map[string]fabric.Fabric)}
	defer s.Unless(ctx, &err)
	uuid, err := pool.First()
	if err != nil {
		return nil, err
	}
	if s.device, err = pool.Device(uuid); err != nil {
		return nil, err
	}
	if s.vram, err = pool.Alloc(uuid, 2*total, 0); err != nil {
		return nil, err
	}
	s.Closes(s.vram.Close)
	for range layers {
		layer, err := pool.Alloc(uuid, total/layers, 0)
		if err != nil {
			return nil, err
		}
		s.Closes(layer.Close)
		s.layers = append(s.layers, layer)
	}
	if s.arena, err = mem.NewArena(mem.ArenaOptions{Name: "bench", SizeBytes: total, NUMANode: -1}); err != nil {
		return nil, err
	}
	s.Closes(s.arena.Close)
	if s.dir, err = s.Folder(""); err != nil {
		return nil, err
	}
	for _, which := range []string{"host", "host unchecked", "tcp"} {
		f, err := s.openFabric(ctx, which, name, pool)
		if err != nil {
			return nil, err
		}
		s.Closes(f.Close)
		s.fabrics[which] = f
		err = errors.Join(f.Register(fabric.Region{ID: regionOf(onGPU), Epoch: 1, Section: s.vram}), f.Register(fabric.Region{ID: regionOf(onHost), Epoch: 1, Section: s.arena.Section}))
		for i, layer := range s.layers {
			err = errors.Join(err, f.Register(fabric.Region{ID: firstLayer + uint64(i), Epoch: 1, Section: layer}))
		}
		if err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (s *side) openFabric(ctx context.Context, which, name string, pool *vram.Pool) (fabric.Fabric, error) {
	if which == "tcp" {
		return tcp.Open(ctx, tcp.Options{Agent: name, Incarnation: s.incarnation, Listen: "127.0.0.1:0", Streams: min(8, runtime.GOMAXPROCS(0)), Events: silent{}})
	}
	dir := s.dir + "/checked"
	if which != "host" {
		dir = s.dir + "/plain"
	}
	return host.Open(ctx, host.Options{Agent: name, Incarnation: s.incarnation, Dir: dir, GPUs: pool, NoChecksums: which != "host", Events: silent{}})
}

// introduction is what the posting side needs of the serving one.
type introduction struct {
	Incarnation kv.ID             `json:"incarnation"`
	Addresses   map[string][]byte `json:"addresses"`
}

func (s *side) introduce() introduction {
	i := introduction{Incarnation: s.incarnation, Addresses: make(map[string][]byte)}
	for name, f := range s.fabrics {
		i.Addresses[name] = f.Address()
	}
	return i
}

// request is the one line that the serving process is asked.
type request struct {
	Total uint64 `json:"total"`
}

// Serve is the serving process: it opens its side and stays until in ends.
func Serve(ctx context.Context, in io.Reader, out io.Writer) (err error) {
	pool := vram.NewPool(nil)
	defer func() { err = errors.Join(err, pool.Close()) }()
	var s *side
	err = bench.Answer(in, out, func(r request) (any, error) {
		if s != nil {
			return nil, fmt.Errorf("bench: asked twice")
		}
		var err error
		if s, err = openSide(ctx, pool, "serving", r.Total); err != nil {
			return nil, err
		}
		return s.introduce(), nil
	})
	if s != nil {
		err = errors.Join(err, s.CloseWithin(stopLimit))
	}
	return err
}

// silent hears nothing.
type silent struct{}

func (silent) Notified(fabric.Notification) (fabric.NotificationHandler, error) { return nil, nil }
func (silent) LinkLost(fabric.Peer, error)                                      {}
func (silent) Refused(string, error)                                            {}
