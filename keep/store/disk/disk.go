// Package disk keeps objects of the cache in files of one folder: a tier (package tier)
// that outlives its process.
//
//	Put ─ encoded ─► waiting ─┐ one goroutine takes all that wait    ┌ 00000007.segment  oldest: goes first
//	Put ─ encoded ─► waiting ─┴──── and writes it at once ──────────►├ 00000008.segment
//	                                                                 └ 00000009.segment  is appended to
//	Get ─► index: hash of the key → segment, page ─► one read, summed on the way out
//
// A segment is records (package record), each a multiple of 4 KiB, so that direct I/O
// reads and writes them where they lie. The index is in memory, 24 bytes or so for each
// object, and is made from the segments when the folder is opened: a torn tail is cut.
// What an earlier process began to write is never appended to.
//
// Nothing is synced. Whatever was written survives the end of the process; what a power
// failure has taken is found by its sums, and is a miss.
package disk

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"meridian/internal/join"
	"meridian/keep/store/admission"
	"meridian/keep/store/record"
	"meridian/keep/store/tier"
	"meridian/kv"
)

// Options configures Open. Zero values mean the defaults.
type Options struct {
	// Dir is the folder; it is made. No other process has it open.
	Dir string
	// Bytes is the most that it takes; at least 32 MiB.
	Bytes uint64
	// SegmentBytes is the size of a segment, the room that is reclaimed at a time;
	// default a 32nd of Bytes, between 16 MiB and 1 GiB. A larger object, of up to half of
	// Bytes and 1 GiB, has a segment of its own.
	SegmentBytes uint64
	// MaxWaiting bounds the bytes that were taken and are not written; default 64 MiB.
	MaxWaiting uint64
	// MaxReads bounds the reads under way; default 16.
	MaxReads int
	// Timeout is the longest that a Get takes; default 1 s.
	Timeout time.Duration
	// Buffered says that files are read and written through the page cache.
	Buffered bool
	// Progress is told while the folder is opened how many of its segments were read; nil: it is
	// not told.
	Progress func(read, of int)

	files files // tests break them
}

const maxSegment = 4 << 30

// largest is the longest payload that is taken.
func (o *Options) largest() uint64 { return record.Largest(min(maxSegment, o.Bytes/2), page) }

// Check says what is wrong with options, before anything is opened.
func (o Options) Check() error {
	_, err := o.withDefaults()
	return err
}

func (o Options) withDefaults() (Options, error) {
	o.SegmentBytes = cmp.Or(o.SegmentBytes, min(max(o.Bytes/32, 16<<20), 1<<30)) / page * page
	o.MaxWaiting, o.MaxReads, o.Timeout = cmp.Or(o.MaxWaiting, 64<<20), cmp.Or(o.MaxReads, 16), cmp.Or(o.Timeout, time.Second)
	if o.files == nil {
		o.files = real{buffered: o.Buffered}
	}
	switch {
	case o.Dir == "":
		return o, errors.New("disk: Options needs a Dir")
	case o.SegmentBytes < page || o.SegmentBytes > maxSegment || o.Bytes/2 < o.SegmentBytes:
		return o, fmt.Errorf("disk: %d bytes in segments of %d: there must be room for two, each between 4 KiB and 4 GiB", o.Bytes, o.SegmentBytes)
	case o.Timeout < 0 || o.MaxReads < 0:
		return o, errors.New("disk: a bound in Options is negative")
	}
	return o, nil
}

// place is where a record lies.
type place struct{ segment, page, pages uint32 }

// Disk is an open folder. It is a tier.Tier.
type Disk struct {
	options Options
	files   files
	lock    *os.File
	start   time.Time
	buffers buffers
	reads   chan struct{}  // a place for each read
	wait    sync.WaitGroup // the writer, and reads

	mu       sync.Mutex    // protects the rest
	wake     sync.Cond     // something waits, or the disk is closing
	quiet    chan struct{} // closed when nothing waits and nothing is written; nil: so it is
	closing  bool
	index    map[uint64]place
	segments map[uint32]*segment
	active   *segment // that is appended to; nil: a new one is begun
	next     uint32   // number of the next segment
	waiting  []*item
	pending  map[uint64]*item  // taken, and not yet written
	staged   uint64            // bytes of pending
	putting  admission.Breaker // a disk that is full can be read
	getting  admission.Breaker
	stats    tier.Stats
	slow     atomic.Uint64
}

var _ tier.Tier = (*Disk)(nil)

// Open opens a folder, makes its index and reclaims what is over its bound. Of a segment
// that cannot be read nothing is found; it is counted.
func Open(ctx context.Context, o Options) (*Disk, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	d := &Disk{
		options: o, files: o.files, start: time.Now(), reads: make(chan struct{}, o.MaxReads),
		buffers: buffers{most: int(min(o.MaxWaiting, 1<<30))},
		index:   make(map[uint64]place), segments: make(map[uint32]*segment), pending: make(map[uint64]*item),
	}
	d.wake.L = &d.mu
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("disk: %w", err)
	}
	if err := d.lockFolder(); err != nil {
		return nil, err
	}
	if err := d.rebuild(ctx); err != nil {
		d.closeFiles()
		return nil, err
	}
	d.wait.Go(d.write)
	return d, nil
}

// lockFolder keeps other processes out until this one ends.
func (d *Disk) lockFolder() error {
	path := filepath.Join(d.options.Dir, "lock")
	lock, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("disk: %w", err)
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = lock.Close()
		return fmt.Errorf("disk: %s is in use: %w; give each owner a folder of its own", path, err)
	}
	d.lock = lock
	return nil
}

const suffix = ".segment"

func segmentName(number uint32) string { return fmt.Sprintf("%08d"+suffix, number) }

func (d *Disk) now() kv.Instant { return kv.Instant(time.Since(d.start)/time.Microsecond) + 1 }

// Name implements tier.Tier.
func (d *Disk) Name() string { return "disk" }

// Has implements tier.Tier.
func (d *Disk) Has(keys [][]byte) []bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	has := make([]bool, len(keys))
	if !d.getting.Rests(d.now()) {
		for i, key := range keys {
			_, has[i] = d.index[record.HashKey(key)]
		}
	}
	return has
}

// Stats implements tier.Tier.
func (d *Disk) Stats() tier.Stats {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.stats
	s.Objects, s.Limit, s.Waiting = uint64(len(d.index)), d.options.Bytes, d.staged
	s.Slow, s.Down = s.Slow+d.slow.Load(), d.getting.Down() || d.putting.Down()
	for _, one := range d.segments {
		s.OldestSeconds = max(s.OldestSeconds, uint64(max(0, time.Since(one.last).Seconds())))
	}
	return s
}

// reclaim takes the oldest segment out, for discard; nil if there is none. mu is held,
// or Open has not returned yet.
func (d *Disk) reclaim() *segment {
	if len(d.segments) == 0 {
		return nil
	}
	s := d.segments[slices.Min(slices.Collect(maps.Keys(d.segments)))]
	delete(d.segments, s.number)
	for _, hash := range s.hashes {
		if at, is := d.index[hash]; is && at.segment == s.number {
			delete(d.index, hash)
		}
	}
	if d.active == s {
		d.active = nil
	}
	d.stats.Bytes -= uint64(s.size)
	d.stats.Reclaimed++
	return s
}

// discard gives the room of a segment back that was taken out, as soon as no reader reads
// it. The file system may take its time, so mu is not held.
func (d *Disk) discard(s *segment) {
	if err := d.files.Remove(s.path); err != nil && !errors.Is(err, os.ErrNotExist) {
		d.mu.Lock()
		d.stats.Failed++
		d.mu.Unlock()
	}
	d.release(s)
}

// release ends a read of a segment, or its time.
func (d *Disk) release(s *segment) {
	d.mu.Lock()
	s.refs--
	last := s.refs == 0
	d.mu.Unlock()
	if last && s.file != nil {
		_ = s.file.Close() // nothing is lost: it was written, or it is removed
	}
}

// Flush implements tier.Tier.
func (d *Disk) Flush(ctx context.Context) error {
	d.mu.Lock()
	quiet := d.quiet
	d.mu.Unlock()
	if quiet == nil {
		return nil
	}
	select {
	case <-quiet:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("disk: writing what waits: %w", ctx.Err())
	}
}

// Close implements tier.Tier. A disk that hangs keeps it waiting as long as ctx lasts.
func (d *Disk) Close(ctx context.Context) error {
	d.mu.Lock()
	d.closing = true
	d.wake.Broadcast()
	closed := d.segments == nil
	d.mu.Unlock()
	if err := join.Within(ctx, "disk: closing", d.wait.Wait); err != nil || closed {
		return err
	}
	d.closeFiles()
	return nil
}

// closeFiles ends what nothing uses any more.
func (d *Disk) closeFiles() {
	if d.active != nil {
		_ = d.active.file.Truncate(d.active.size) // room that was reserved goes back; else when it is opened
	}
	for _, s := range d.segments {
		d.release(s)
	}
	_ = d.lock.Close()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.segments, d.index, d.active = nil, nil, nil
}
