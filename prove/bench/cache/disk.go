package cache

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"meridian/keep/store/disk"
	"meridian/keep/store/tier"
	"meridian/prove/bench"
)

// DiskReport is what objects reach of a plain file.
type DiskReport struct {
	Total  string    `json:"total"`
	Rounds int       `json:"rounds"`
	Rows   []DiskRow `json:"rows"`
	Others float64   `json:"others"`
}

// DiskRow is objects of one size. Plain is a file in the same folder, written and read in
// pieces of 1 MiB one after the other, past the page cache: what dd does with oflag=direct.
// Ratio is the median of the rounds' ratios.
type DiskRow struct {
	Op     string       `json:"op"`
	Object string       `json:"object"`
	GBps   bench.Figure `json:"gbps"`
	Plain  bench.Figure `json:"plain"`
	Ratio  float64      `json:"ratio"`
}

const (
	piece = 1 << 20
	page  = 4096
	// writers and readers are how many put and get at a time: as the store does it.
	diskWriters = 2
	diskReaders = 4
	diskWaiting = 64 << 20
)

func runDisk(ctx context.Context, o Options) (report *DiskReport, err error) {
	dir, err := os.MkdirTemp(o.Dir, "meridian-bench-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	report = &DiskReport{Total: o.Total.Text, Rounds: o.Rounds}
	meter := bench.StartMeter(nil)
	for i, size := range o.Objects {
		var ours, plain [2][]float64
		for round := range o.Rounds + 1 {
			o.Tell(bench.Progress{Row: i + 1, Rows: len(o.Objects), What: "disk: objects of " + size.Text, Round: round, Rounds: o.Rounds, Who: "keep/store/disk and a plain file"})
			theirs, err := plainFile(filepath.Join(dir, "plain"), o.Total.Bytes)
			if err != nil {
				return nil, err
			}
			mine, err := objects(ctx, filepath.Join(dir, "objects"), int(size.Bytes), int(o.Total.Bytes/size.Bytes))
			if err != nil {
				return nil, err
			}
			for op := range ours {
				if round > 0 { // the first warms up
					ours[op], plain[op] = append(ours[op], mine[op]), append(plain[op], theirs[op])
				}
			}
		}
		for op, name := range []string{"write", "read"} {
			ratios := make([]float64, o.Rounds)
			for k := range ratios {
				ratios[k] = ours[op][k] / plain[op][k]
			}
			report.Rows = append(report.Rows, DiskRow{
				Op: name, Object: size.Text, GBps: bench.NewFigure(ours[op]), Plain: bench.NewFigure(plain[op]), Ratio: bench.NewFigure(ratios).Median,
			})
		}
	}
	report.Others = meter.Others()
	return report, nil
}

// plainFile is how fast a file is written and read.
func plainFile(path string, total uint64) (rates [2]float64, err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_DIRECT, 0o600)
	if errors.Is(err, unix.EINVAL) { // a file system that has no direct I/O: neither have objects
		f, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	}
	if err != nil {
		return rates, err
	}
	defer func() { err = errors.Join(err, f.Close(), os.Remove(path)) }()
	if err := unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, int64(total)); err != nil && !errors.Is(err, unix.EOPNOTSUPP) {
		return rates, err
	}
	buffer := alignedBytes(piece)
	fillRandom(buffer)
	for op, do := range []func([]byte, int64) (int, error){f.WriteAt, f.ReadAt} {
		began := time.Now()
		for at := uint64(0); at+piece <= total; at += piece {
			if _, err := do(buffer, int64(at)); err != nil {
				return rates, err
			}
		}
		rates[op] = float64(total/piece*piece) / 1e9 / time.Since(began).Seconds()
	}
	return rates, nil
}

// objects is how fast a folder of objects is written, until all is on its way to the
// disk, and read, with every sum.
func objects(ctx context.Context, dir string, size, count int) (rates [2]float64, err error) {
	total := uint64(size) * uint64(count)
	d, err := disk.Open(ctx, disk.Options{Dir: dir, Bytes: max(4*total, 64<<20), MaxWaiting: diskWaiting})
	if err != nil {
		return rates, err
	}
	defer func() { err = errors.Join(err, d.Close(context.WithoutCancel(ctx)), os.RemoveAll(dir)) }()
	payload := make([]byte, size)
	fillRandom(payload)
	key := func(i int) []byte { return fmt.Appendf(nil, "object %d", i) }
	began := time.Now()
	err = eachOf(count, diskWriters, func(i int) error {
		for {
			err := d.Put(tier.Object{Key: key(i), Payload: payload})
			if !errors.Is(err, tier.ErrBusy) {
				return err
			}
			if err := ctx.Err(); err != nil {
				return err
			}
			time.Sleep(100 * time.Microsecond) // as much waits as may
		}
	})
	if err == nil {
		err = d.Flush(ctx)
	}
	rates[0] = float64(total) / 1e9 / time.Since(began).Seconds()
	if err != nil {
		return rates, err
	}
	into := make([][]byte, diskReaders)
	for i := range into {
		into[i] = make([]byte, size)
	}
	began = time.Now()
	err = eachOf(count, diskReaders, func(i int) error {
		_, err := d.Get(ctx, key(i), func([]byte, int) []byte { return into[i%diskReaders] })
		return err
	})
	rates[1] = float64(total) / 1e9 / time.Since(began).Seconds()
	return rates, err
}

// eachOf calls for 0 to n-1, some at a time; i and i+workers are never under way together.
func eachOf(n, workers int, do func(i int) error) error {
	var wait sync.WaitGroup
	errs := make([]error, workers)
	for w := range workers {
		wait.Go(func() {
			for i := w; i < n && errs[w] == nil; i += workers {
				errs[w] = do(i)
			}
		})
	}
	wait.Wait()
	return errors.Join(errs...)
}

// alignedBytes is memory for direct I/O.
func alignedBytes(size int) []byte {
	b := make([]byte, size+page)
	at := int(-uintptr(unsafe.Pointer(&b[0])) & (page - 1))
	return b[at : at+size : at+size]
}

func fillRandom(b []byte) {
	dice := rand.NewChaCha8([32]byte{1})
	_, _ = dice.Read(b) // it never fails
}

func (d *DiskReport) write(w io.Writer) {
	if d == nil {
		return
	}
	fmt.Fprintf(w, "\ndisk: objects put and got, with sums, beside a plain file in the same folder; both past the page cache, nothing is synced; others used %.1f cores\n"+
		"GB/s (1e9 bytes), median [min–max] of %d rounds of %s; ×: objects beside the file, round by round\n\n", d.Others, d.Rounds, d.Total)
	fmt.Fprint(w, bench.Table("OP\tOBJECT\tMERIDIAN\tPLAIN\t×", d.Rows, func(r *DiskRow) string {
		return fmt.Sprintf("%s\t%s\t%s\t%s\t%.2f", r.Op, r.Object, r.GBps, r.Plain, r.Ratio)
	}))
}
