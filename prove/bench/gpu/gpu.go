// Package gpu measures transfers of GPU memory between two processes, beside what
// CUDA's own copies, NIXL and torch reach on the same device in the same run, and what
// they cost the kernels that compute there.
//
//	posting process                       serving process
//	side: VRAM, host memory  ── host ──►  side: VRAM, host memory
//	                         ── tcp ───►
package gpu

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"meridian/kv"
	"meridian/move/cuda"
	"meridian/move/fabric"
	"meridian/move/mem"
	"meridian/move/mem/vram"
	"meridian/prove/bench"
)

// Options says what is measured.
type Options struct {
	Blocks []bench.Size `name:"block" default:"4KiB,16KiB,64KiB" placeholder:"SIZE" help:"Block sizes; default ${default}."`
	Total  bench.Size   `default:"256MiB" placeholder:"SIZE" help:"Bytes that one round moves; default ${default}."` // and less over tcp
	Rounds int          `default:"5" placeholder:"N" help:"Rounds that each figure is the median of; default ${default}."`
	// Python needs torch and nixl; empty: nothing is measured beside.
	Python string `default:"python3" placeholder:"PYTHON" help:"A Python with torch and nixl, to be measured beside; '' for none. Default ${default}."`
	// ServeCommand starts the serving process.
	ServeCommand  []string `kong:"-"`
	bench.Setting `kong:"-"`

	// near and far stand in for the GPUs of two processes, in tests, and torchDevice for
	// torch's; the others make tests short.
	near, far    *vram.Pool
	torchDevice  string
	matmulSize   int
	matmulPeriod time.Duration
}

// Case is one row: where its bytes are on either side, and how they are cut.
type Case struct {
	// Fabric is host, tcp, or a contender: nixl, nixl tcp, torch.
	Fabric string `json:"fabric"`
	Op     string `json:"op"`
	// Local and Remote are kinds of memory, gpu or host.
	Local  string `json:"local"`
	Remote string `json:"remote"`
	// Block is the size of blocks, and Shape where they lie.
	Block string `json:"block"`
	Shape Shape  `json:"shape"`
	// Checked rows are summed at the source and again at the destination.
	Checked bool `json:"checked"`

	block, total uint64
}

func (c Case) String() string {
	return fmt.Sprintf("%s %s %s↔%s %s %s", c.Fabric, c.Op, c.Local, c.Remote, c.Block, c.Shape)
}

// Shape is how blocks lie in a cache.
type Shape string

// The shapes.
const (
	// Scattered blocks are in random order, and no two of a list have anything to do with
	// each other.
	Scattered Shape = "scattered"
	// Layered blocks are in random order within a layer, and in the same order in every
	// layer, as those of a request are; the layers are one allocation.
	Layered Shape = "layered"
	// Apart is layered, with an allocation for each layer.
	Apart Shape = "layers apart"
	// Heads are pieces that are cut out of blocks of 32 KiB, every second one.
	Heads Shape = "heads"
)

// layers is how many layers a cache has.
const layers = 32

// tcpTotal bounds a round over tcp.
const tcpTotal = 256 << 20

func (o Options) cases() (all []Case) {
	for _, b := range o.Blocks {
		for _, op := range []string{"read", "write"} {
			row := Case{Fabric: "host", Op: op, Local: onGPU, Remote: onGPU, Checked: true, Block: b.Text, block: b.Bytes, total: o.Total.Bytes}
			for _, row.Shape = range []Shape{Layered, Apart, Scattered} {
				for _, row.Checked = range []bool{true, false} {
					all = append(all, row)
				}
			}
			row.Checked, row.Remote = true, onHost
			for _, row.Shape = range []Shape{Layered, Scattered} {
				all = append(all, row)
			}
			row.Fabric, row.total = "tcp", min(tcpTotal, row.total)
			for _, kind := range []string{onGPU, onHost} {
				row.Local, row.Remote = kind, kind
				all = append(all, row)
			}
		}
	}
	for _, piece := range []uint64{256, 1024} {
		for _, checked := range []bool{true, false} {
			all = append(all, Case{Fabric: "host", Op: "read", Local: onGPU, Remote: onGPU, Shape: Heads, Checked: checked, Block: fmt.Sprint(piece, "B"), block: piece, total: o.Total.Bytes / 2})
		}
	}
	return all
}

// Run measures.
func Run(ctx context.Context, o Options) (_ *Report, err error) {
	if o.Rounds < 1 || len(o.Blocks) == 0 || o.Total.Bytes == 0 {
		return nil, fmt.Errorf("%w: at least one round, one block size and a total", bench.ErrOptions)
	}
	for _, b := range o.Blocks {
		if b.Bytes == 0 || o.Total.Bytes%(layers*b.Bytes) != 0 {
			return nil, fmt.Errorf("%w: a total of %s is not %d layers of blocks of %s", bench.ErrOptions, o.Total.Text, layers, b.Text)
		}
	}
	pool := o.near
	if pool == nil {
		pool = vram.NewPool(nil)
		defer func() { err = errors.Join(err, pool.Close()) }()
	}
	near, err := openSide(ctx, pool, "posting", o.Total.Bytes)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, near.CloseWithin(stopLimit)) }()
	far, leave, err := o.serving(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, leave()) }()
	r := &Report{Device: near.device.Name, options: o, date: time.Now()}
	if err := r.baselines(near, o); err != nil {
		return nil, err
	}
	cases := o.cases()
	for i, c := range cases {
		row := Row{Case: c}
		if row.Figure, err = near.measure(ctx, far, c, o, func(round int) {
			o.Tell(bench.Progress{Row: i + 1, Rows: len(cases), What: c.String(), Round: round, Rounds: o.Rounds, Who: "meridian"})
		}); err != nil {
			return nil, fmt.Errorf("%s: %w", c, err)
		}
		r.Rows = append(r.Rows, row)
	}
	if r.OneBlockUs, err = near.oneBlock(ctx, far); err != nil || o.Python == "" {
		return r, err
	}
	return r, r.beside(ctx, near, far, o)
}

// serving starts the serving process, or, in tests, its side in this one.
func (o Options) serving(ctx context.Context) (far introduction, leave func() error, err error) {
	if o.far != nil {
		s, err := openSide(ctx, o.far, "serving", o.Total.Bytes)
		if err != nil {
			return far, nil, err
		}
		return s.introduce(), func() error { return s.CloseWithin(stopLimit) }, nil
	}
	p, err := bench.StartProcess("the serving process", o.ServeCommand, nil)
	if err != nil {
		return far, nil, err
	}
	leave = func() error { return p.Stop(context.Background()) }
	if err := p.Ask(ctx, request{Total: o.Total.Bytes}, &far); err != nil {
		return far, nil, errors.Join(err, leave())
	}
	return far, leave, nil
}

// lane is a link to the serving side, and a request over it.
type lane struct {
	link     fabric.Link
	prepared *fabric.Prepared
}

func (s *side) prepare(ctx context.Context, far introduction, name string, op fabric.Op, local, remote fabric.List) (*lane, error) {
	link, err := s.fabrics[name].Connect(ctx, fabric.Peer{Name: "serving", Incarnation: far.Incarnation, Address: far.Addresses[name]})
	if err != nil {
		return nil, err
	}
	prepared, err := link.Prepare(op, local, remote)
	if err != nil {
		return nil, errors.Join(err, link.Close(ctx))
	}
	return &lane{link, prepared}, nil
}

// move posts the request, and waits until it is done.
func (l *lane) move(ctx context.Context) error {
	t, err := l.link.Post(ctx, l.prepared, fabric.PostOptions{ID: newID()})
	if err == nil {
		err = t.Await(ctx)
	}
	return err
}

func (l *lane) close(ctx context.Context) error {
	l.prepared.Release()
	return l.link.Close(ctx)
}

// measure is the figure of a row.
func (s *side) measure(ctx context.Context, far introduction, c Case, o Options, tell func(round int)) (bench.Figure, error) {
	op := fabric.Read
	if c.Op == "write" {
		op = fabric.Write
	}
	local, remote, err := c.lists()
	if err != nil {
		return bench.Figure{}, err
	}
	l, err := s.prepare(ctx, far, fabricName(c), op, local, remote)
	if err != nil {
		return bench.Figure{}, err
	}
	defer l.close(ctx)
	var scores []float64
	for round := range o.Rounds + 1 { // the first one is the warm-up
		tell(round)
		began := time.Now()
		if err := l.move(ctx); err != nil {
			return bench.Figure{}, err
		}
		if took := time.Since(began); round > 0 {
			scores = append(scores, float64(c.total)/float64(took.Nanoseconds()))
		}
	}
	return bench.NewFigure(scores), nil
}

// oneBlock is how long one block of 16 KiB takes from post to done, in microseconds.
func (s *side) oneBlock(ctx context.Context, far introduction) (float64, error) {
	list := fabric.List{{Region: regionOf(onGPU), Epoch: 1}}
	if err := list[0].Spans.Add(0, 16<<10); err != nil {
		return 0, err
	}
	l, err := s.prepare(ctx, far, "host", fabric.Read, list, list)
	if err != nil {
		return 0, err
	}
	defer l.close(ctx)
	var took []time.Duration
	for range 300 {
		began := time.Now()
		if err := l.move(ctx); err != nil {
			return 0, err
		}
		took = append(took, time.Since(began))
	}
	return bench.Percentile(took, 50), nil
}

// lists are the blocks of both sides.
func (c Case) lists() (local, remote fabric.List, err error) {
	if c.Shape == Heads {
		return c.heads()
	}
	if local, err = c.list(c.Local, 1); err == nil {
		remote, err = c.list(c.Remote, 2)
	}
	return local, remote, err
}

// list is the blocks of one side, whose order the seed tells.
func (c Case) list(kind string, seed uint64) (list fabric.List, err error) {
	layer := c.total
	if c.Shape != Scattered {
		layer /= layers
	}
	var spans mem.Spans
	for _, i := range rand.New(rand.NewPCG(seed, 1)).Perm(int(layer / c.block)) {
		run := mem.Run{Offset: uint64(i) * c.block, Length: c.block, Count: 1}
		if c.Shape == Layered {
			run.Stride, run.Count = layer, layers
		}
		err = errors.Join(err, spans.AddRun(run))
	}
	if c.Shape != Apart {
		return fabric.List{{Region: regionOf(kind), Epoch: 1, Spans: spans}}, err
	}
	for i := range layers {
		list = append(list, fabric.Part{Region: firstLayer + uint64(i), Epoch: 1, Spans: spans})
	}
	return list, err
}

func (c Case) heads() (local, remote fabric.List, err error) {
	const block = 32 << 10
	local, remote = fabric.List{{Region: regionOf(c.Local), Epoch: 1}}, fabric.List{{Region: regionOf(c.Remote), Epoch: 1}}
	for _, i := range rand.New(rand.NewPCG(1, 1)).Perm(int(c.total / (block / 2))) {
		err = errors.Join(err, remote[0].Spans.AddRun(mem.Run{Offset: uint64(i) * block, Length: c.block, Stride: 2 * c.block, Count: block / 2 / c.block}))
	}
	return local, remote, errors.Join(err, local[0].Spans.Add(0, c.total))
}

// baselines are CUDA's own copies on the posting side's device.
func (r *Report) baselines(s *side, o Options) error {
	stream, err := s.device.Stream()
	if err != nil {
		return err
	}
	defer stream.Close()
	total := o.Total.Bytes / 2
	at := vram.Of(s.vram).At
	pinned, err := s.device.Pin(min(total, 256<<20))
	if err != nil {
		return err
	}
	defer pinned.Close()
	rate := func(bytes uint64, queue func() error) (float64, error) {
		var scores []float64
		for round := range o.Rounds + 1 {
			began := time.Now()
			if err := errors.Join(queue(), stream.Synchronize()); err != nil {
				return 0, err
			}
			if took := time.Since(began); round > 0 {
				scores = append(scores, float64(bytes)/float64(took.Nanoseconds()))
			}
		}
		return bench.NewFigure(scores).Median, nil
	}
	r.Memcpy, err = rate(16*total, func() (err error) {
		for range 16 {
			err = errors.Join(err, stream.Copy(at+cuda.Pointer(total), at, total))
		}
		return err
	})
	if err != nil {
		return err
	}
	host := uint64(len(pinned.Bytes()))
	if r.ToHost, err = rate(host, func() error { return stream.Copy(pinned.At(), at, host) }); err != nil {
		return err
	}
	if r.FromHost, err = rate(host, func() error { return stream.Copy(at, pinned.At(), host) }); err != nil {
		return err
	}
	const block = 16 << 10
	blocks := rand.New(rand.NewPCG(1, 1)).Perm(int(min(total, 64<<20) / block))
	r.PerBlock, err = rate(uint64(len(blocks))*block, func() (err error) {
		for i, j := range blocks {
			err = errors.Join(err, stream.Copy(at+cuda.Pointer(total)+cuda.Pointer(i*block), at+cuda.Pointer(j*block), block))
		}
		return err
	})
	return err
}

func newID() (id kv.ID) {
	for i := range id {
		id[i] = byte(rand.Uint32())
	}
	return id
}
