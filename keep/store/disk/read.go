package disk

import (
	"context"
	"errors"
	"fmt"

	"meridian/keep/store/record"
	"meridian/keep/store/tier"
)

// Get implements tier.Tier. The disk is read into memory of its own, so that a caller
// whose time is over goes away at once; the read goes on until what it reads together
// has come.
func (d *Disk) Get(ctx context.Context, key []byte, into func(header []byte, size int) []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, d.options.Timeout)
	defer cancel()
	s, at, err := d.find(key)
	if err != nil {
		return nil, err
	}
	select {
	case d.reads <- struct{}{}:
	case <-ctx.Done():
		d.leave(s)
		return nil, d.late(ctx)
	}
	r := d.read(ctx, s, at)
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
		case <-ctx.Done():
			return nil, d.late(ctx)
		}
	}
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

// read reads a record, and leaves the segment when it ends: when all was read, or when
// ctx is over and what is read just then has come. Nobody need listen.
func (d *Disk) read(ctx context.Context, s *segment, at place) reading {
	size := int(at.pages) * page
	r := reading{d.buffers.get(size), make(chan readTo, (size+readTogether-1)/readTogether)}
	go func() { // Close waits for leave
		defer d.leave(s)
		defer func() { <-d.reads }()
		for bytes := 0; bytes < size && ctx.Err() == nil; {
			more := min(size-bytes, readTogether)
			_, err := s.file.ReadAt(r.buffer[bytes:bytes+more], int64(at.page)*page+int64(bytes))
			bytes += more
			r.come <- readTo{bytes, err}
			if err != nil {
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

// late is a call whose time is over: its caller's, or all that a disk is given.
func (d *Disk) late(ctx context.Context) error {
	d.slow.Add(1)
	d.mu.Lock()
	defer d.mu.Unlock()
	if errors.Is(ctx.Err(), context.DeadlineExceeded) { // who does not want it any more says nothing about the disk
		d.getting.Ended(d.now(), false)
	}
	return fmt.Errorf("%w: %w: %w", tier.ErrMissing, tier.ErrSlow, ctx.Err())
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
		if err == nil && g.entry.Bytes != size {
			err = record.ErrBroken
		}
		if err != nil {
			return nil, true, d.lose(g.key, g.at, fmt.Errorf("%w: %w", tier.ErrMissing, err), true)
		}
		if !g.entry.Is(g.key) { // another key of the same hash
			d.mu.Lock()
			defer d.mu.Unlock()
			d.getting.Ended(d.now(), true)
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
	d.getting.Ended(d.now(), true)
	d.stats.Hits++
	d.stats.HitBytes += uint64(g.entry.Length)
	return g.dst, true, nil
}

// lose lets go of an object that cannot be read, so that it can be put anew. An object
// that is broken says nothing about the disk.
func (d *Disk) lose(key []byte, at place, why error, broken bool) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.getting.Ended(d.now(), broken)
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
