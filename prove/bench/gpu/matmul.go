package gpu

import (
	"cmp"
	"context"
	"errors"
	"path/filepath"
	"time"

	"meridian/move/cuda"
	"meridian/move/fabric"
	"meridian/move/mem/vram"
	"meridian/prove/bench"
)

// Matmul is how fast another process multiplies matrices beside a load.
type Matmul struct {
	// Beside is the load: nothing, transfers over host or tcp, or as many bytes by
	// cuMemcpyAsync.
	Beside string `json:"beside"`
	// Gbps is what the load moved meanwhile.
	Gbps   float64 `json:"gbps"`
	Tflops float64 `json:"tflops"`
	// Loss is the part that is lost of what it computes alone.
	Loss float64 `json:"loss"`
}

const (
	matmulSize   = 8192
	matmulPeriod = 2 * time.Second
	// pacedGbps is as much as the fastest networks carry to one GPU.
	pacedGbps = 50
)

// load moves bytes until ctx ends, no more than so many gigabytes a second where that is
// not 0, and says how many it moved.
type load func(ctx context.Context, gbps float64) (bytes uint64, err error)

// matmul measures what a loop of matrix products loses beside transfers.
func (r *Report) matmul(ctx context.Context, near *side, far introduction, o Options) (err error) {
	var opened bench.Opened
	defer func() { err = errors.Join(err, opened.Close(ctx)) }()
	directory, err := opened.Drivers(drivers)
	if err != nil {
		return err
	}
	p, err := bench.StartProcess("the matmul process", []string{o.Python, filepath.Join(directory, "matmul_gpu.py")}, nil)
	if err != nil {
		return err
	}
	defer func() {
		stopping, cancel := context.WithTimeout(context.Background(), stopLimit)
		defer cancel()
		_ = p.Stop(stopping) // its figures are taken: how it ends is its own business
	}()
	opening, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := p.Ask(opening, map[string]any{"do": "open", "device": o.device(), "size": cmp.Or(o.matmulSize, matmulSize)}, nil); err != nil {
		return err
	}
	if err := r.matmuls(ctx, p, near, far, o); err != nil {
		r.Matmuls = nil // what was measured without its other half says nothing
		return err
	}
	return nil
}

// matmuls measures it alone, beside transfers at a network's pace, beside as many of
// them as go, and each time beside as many bytes by cuMemcpyAsync.
func (r *Report) matmuls(ctx context.Context, p *bench.Process, near *side, far introduction, o Options) error {
	transfers := func(name string) load {
		return func(ctx context.Context, gbps float64) (uint64, error) {
			return near.transferring(ctx, far, name, o, gbps)
		}
	}
	memcpy := func(ctx context.Context, gbps float64) (uint64, error) { return near.copying(ctx, o, gbps) }
	row := func(beside string, gbps float64, l load) (Matmul, error) {
		o.Tell(bench.Progress{Row: len(r.Matmuls) + 1, Rows: 8, What: "matmul beside " + beside, Rounds: 1, Who: "torch"})
		m, err := matmulBeside(ctx, p, l, gbps, cmp.Or(o.matmulPeriod, matmulPeriod))
		m.Beside = beside
		r.Matmuls = append(r.Matmuls, m)
		return m, err
	}
	first, err := row("nothing", 0, nil)
	if err != nil {
		return err
	}
	for _, l := range []struct {
		beside, fabric string
		gbps           float64
	}{{"host at 50 GB/s", "host", pacedGbps}, {"host", "host", 0}, {"tcp", "tcp", 0}} {
		m, err := row(l.beside, l.gbps, transfers(l.fabric))
		if err != nil {
			return err
		}
		if _, err := row("as much memcpy as "+l.beside, m.Gbps, memcpy); err != nil {
			return err
		}
	}
	last, err := row("nothing", 0, nil)
	if err != nil {
		return err
	}
	alone := (first.Tflops + last.Tflops) / 2
	for i := range r.Matmuls {
		r.Matmuls[i].Loss = bench.Rounded(1 - r.Matmuls[i].Tflops/alone)
	}
	return nil
}

// matmulBeside has the load run for as long as the process multiplies.
func matmulBeside(ctx context.Context, p *bench.Process, l load, gbps float64, period time.Duration) (m Matmul, err error) {
	loading, stop := context.WithCancel(ctx)
	defer stop()
	var bytes uint64
	ended := make(chan error, 1)
	began := time.Now()
	if l == nil {
		ended <- nil
	} else {
		go func() {
			var err error
			bytes, err = l(loading, gbps)
			ended <- err
		}()
	}
	asking, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var answer struct {
		Tflops float64 `json:"tflops"`
	}
	err = p.Ask(asking, map[string]any{"do": "rate", "seconds": period.Seconds()}, &answer)
	stop()
	err = errors.Join(err, <-ended)
	took := time.Since(began)
	return Matmul{Gbps: bench.Rounded(float64(bytes) / float64(took.Nanoseconds())), Tflops: bench.Rounded(answer.Tflops)}, err
}

// pace waits until so many bytes may have moved since began.
func pace(ctx context.Context, began time.Time, bytes uint64, gbps float64) {
	if gbps <= 0 {
		return
	}
	due := began.Add(time.Duration(float64(bytes) / gbps))
	select {
	case <-ctx.Done():
	case <-time.After(time.Until(due)):
	}
}

// transferring reads blocks of 16 KiB from the serving side's GPU, again and again.
func (s *side) transferring(ctx context.Context, far introduction, name string, o Options, gbps float64) (bytes uint64, err error) {
	always := context.WithoutCancel(ctx) // what was posted ends
	c := Case{Local: onGPU, Remote: onGPU, Shape: Layered, block: 16 << 10, total: min(peerTotal, o.Total.Bytes)}
	local, remote, err := c.lists()
	if err != nil {
		return 0, err
	}
	l, err := s.prepare(always, far, name, fabric.Read, local, remote)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, l.close(always)) }()
	for began := time.Now(); ctx.Err() == nil; pace(ctx, began, bytes, gbps) {
		if err := l.move(always); err != nil {
			return bytes, err
		}
		bytes += c.total
	}
	return bytes, nil
}

// copying copies within the posting side's GPU, again and again.
func (s *side) copying(ctx context.Context, o Options, gbps float64) (bytes uint64, err error) {
	stream, err := s.device.Stream()
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, stream.Close()) }()
	at, total := vram.Of(s.vram).At, min(peerTotal, o.Total.Bytes)
	for began := time.Now(); ctx.Err() == nil; pace(ctx, began, bytes, gbps) {
		if err := errors.Join(stream.Copy(at+cuda.Pointer(total), at, total), stream.Synchronize()); err != nil {
			return bytes, err
		}
		bytes += total
	}
	return bytes, nil
}
