package disk

import (
	"context"
	"fmt"
	"time"

	"meridian/keep/store/record"
	"meridian/keep/store/tier"
)

// Get implements tier.Tier. The disk is read into memory of its own, so that a caller
// whose time is over goes away at once; the read goes on until what it reads together
// has come. Whether the disk is slow is judged by the disk's own time, which begins here:
// a caller that has less says nothing about it.
func (d *Disk) Get(ctx context.Context, key []byte, into func(header []byte, size int) []byte) ([]byte, error) {
	s, at, err := d.find(key)
	if err != nil {
		return nil, err
	}
	late := make(chan struct{})
	timer := time.AfterFunc(d.options.Timeout, func() {
		d.slow.Add(1)
		d.worked(false)
		close(late)
	})
	select {
	case d.reads <- struct{}{}:
	case <-late:
		d.leave(s)
		return nil, errLate
	case <-ctx.Done(): // those that read judge the disk
		timer.Stop()
		d.left()
		d.leave(s)
		return nil, fmt.Errorf("%w: %w", tier.ErrMissing, ctx.Err())
	}
	r := d.read(ctx, s, at, timer)
	g := getting{key: key, at: at, into: into}
	for {
		select {
		case end := <-r.come:
			dst, over, err := d.judge(&g, r.buffer[:end.bytes], end.err)
			if over {
				if end.err == nil && end.bytes == len(r.buffer) { // nothing writes to it any more
					d.buffers.put(r.buffer)
				}
				return dst, err
			}
		case <-late:
			return nil, errLate
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %w", tier.ErrMissing, ctx.Err())
		}
	}
}

// errLate is a Get that took all the time that a disk is given.
var errLate = fmt.Errorf("%w: %w", tier.ErrMissing, tier.ErrSlow)

// worked notes whether the disk did what it was asked.
func (d *Disk) worked(ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.getting.Ended(d.now(), ok)
}

// readTogether is how much is read before what was read is looked at: while the disk reads
// more, what it has read is copied and summed, out of caches that are near.
const readTogether = 1 << 20

// reading is a record that comes from the disk.
type reading struct {
	buffer []byte
	come   chan readTo
}

// readTo is how far it has come.
type readTo struct {
	bytes int
	err   error
}

// left notes that a Get ended before the disk was asked for anything.
func (d *Disk) left() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.getting.Left()
}

// read reads a record, and leaves the segment when it ends: when all was read, or when
// ctx is over and what is read just then has come, whether its caller listens or not. If
// its time is not over then, it tells how the disk worked.
func (d *Disk) read(ctx context.Context, s *segment, at place, timer *time.Timer) reading {
	size := int(at.pages) * page
	r := reading{d.buffers.get(size), make(chan readTo, (size+readTogether-1)/readTogether)}
	go func() { // Close waits for leave
		defer d.leave(s)
		defer func() { <-d.reads }()
		for bytes := 0; bytes < size; {
			more := min(size-bytes, readTogether)
			_, err := s.file.ReadAt(r.buffer[bytes:bytes+more], int64(at.page)*page+int64(bytes))
			bytes += more
			over := bytes == size || err != nil || ctx.Err() != nil
			if over && timer.Stop() {
				d.worked(err == nil)
			}
			r.come <- readTo{bytes, err}
			if over {
				return
			}
		}
	}()
	return r
}

// find is where the object of a key lies. Its segment stays until leave.
func (d *Disk) find(key []byte) (*segment, place, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	at, is := d.index[record.HashKey(key)]
	switch {
	case d.closing:
		return nil, at, tier.ErrClosed
	case !is:
		d.stats.Misses++
		return nil, at, tier.ErrMissing
	case !d.getting.Allows(d.now()):
		d.stats.Misses++
		return nil, at, fmt.Errorf("%w: %w", tier.ErrMissing, tier.ErrDown)
	}
	s := d.segments[at.segment]
	s.refs++
	d.wait.Add(1)
	return s, at, nil
}

// leave ends what find began.
func (d *Disk) leave(s *segment) {
	d.release(s)
	d.wait.Done()
}

// getting is a Get whose record is read.
type getting struct {
	key    []byte
	at     place
	into   func([]byte, int) []byte
	parsed bool
	entry  record.Entry
	dst    []byte
	copied *record.Copying // nil: its bytes are not wanted
}

// judge takes an object out of what was read so far, if it is the one that was meant and
// whole. Over says that the Get is.
func (d *Disk) judge(g *getting, read []byte, failed error) (dst []byte, over bool, err error) {
	if failed != nil {
		return nil, true, d.lose(g.key, g.at, fmt.Errorf("%w: %w", tier.ErrMissing, failed), false)
	}
	size := int(g.at.pages) * page
	if !g.parsed {
		g.parsed = true
		g.entry, err = record.Parse(read)
		if err == nil && (g.entry.Bytes != size || record.HashKey(g.entry.Key) != record.HashKey(g.key)) { // whole, and from elsewhere
			err = record.ErrBroken
		}
		if err != nil {
			return nil, true, d.lose(g.key, g.at, fmt.Errorf("%w: %w", tier.ErrMissing, err), true)
		}
		if !g.entry.Is(g.key) { // another key of the same hash
			d.mu.Lock()
			defer d.mu.Unlock()
			d.stats.Misses++
			return nil, true, tier.ErrMissing
		}
		if g.dst = g.into(g.entry.Header, g.entry.Length); g.dst != nil {
			g.copied = g.entry.CopyTo(g.dst)
		}
	}
	if g.copied != nil {
		g.copied.Take(read)
		if len(read) < size {
			return nil, false, nil
		}
		if err := g.copied.End(); err != nil {
			return nil, true, d.lose(g.key, g.at, fmt.Errorf("%w: %w", tier.ErrMissing, err), true)
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stats.Hits++
	d.stats.HitBytes += uint64(g.entry.Length)
	return g.dst, true, nil
}

// lose lets go of an object that cannot be read, so that it can be put anew.
func (d *Disk) lose(key []byte, at place, why error, broken bool) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if broken {
		d.stats.Broken++
	} else {
		d.stats.Failed++
	}
	if hash := record.HashKey(key); d.index[hash] == at {
		delete(d.index, hash)
	}
	return why
}
