package disk

import (
	"context"
	"errors"
	"fmt"

	"meridian/store/record"
	"meridian/store/tier"
)

// Get implements tier.Tier. The disk is read into memory of its own, so that a caller
// whose time is over goes away at once; the read ends when it ends.
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
	type result struct {
		buffer []byte
		err    error
	}
	done := make(chan result, 1)
	go func() { // Close waits for leave
		buffer := d.buffers.get(int(at.pages) * page)
		_, err := s.file.ReadAt(buffer, int64(at.page)*page)
		<-d.reads
		done <- result{buffer, err}
		d.leave(s)
	}()
	select {
	case r := <-done:
		defer d.buffers.put(r.buffer)
		return d.judge(key, at, r.buffer, r.err, into)
	case <-ctx.Done():
		return nil, d.late(ctx)
	}
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

// judge takes an object out of what was read, if it is whole and the one that was meant.
func (d *Disk) judge(key []byte, at place, buffer []byte, failed error, into func([]byte, int) []byte) ([]byte, error) {
	if failed != nil {
		return nil, d.lose(key, at, fmt.Errorf("%w: %w", tier.ErrMissing, failed), false)
	}
	e, err := record.Parse(buffer)
	if err == nil && e.Bytes != len(buffer) {
		err = record.ErrBroken
	}
	if err != nil {
		return nil, d.lose(key, at, fmt.Errorf("%w: %w", tier.ErrMissing, err), true)
	}
	if !e.Is(key) { // another key of the same hash
		d.mu.Lock()
		defer d.mu.Unlock()
		d.getting.Ended(d.now(), true)
		d.stats.Misses++
		return nil, tier.ErrMissing
	}
	dst := into(e.Header, e.Length)
	if dst != nil {
		if err := e.CopyPayload(dst, buffer); err != nil {
			return nil, d.lose(key, at, fmt.Errorf("%w: %w", tier.ErrMissing, err), true)
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.getting.Ended(d.now(), true)
	d.stats.Hits++
	d.stats.HitBytes += uint64(e.Length)
	return dst, nil
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
