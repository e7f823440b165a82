package disk

import (
	"fmt"
	"path/filepath"
	"time"

	"meridian/keep/store/record"
	"meridian/keep/store/tier"
)

// item is a record that is to be written.
type item struct {
	hash    uint64
	buffer  []byte
	bytes   int  // of its payload
	dropped bool // it is a word that a key was dropped
	unkept  bool // its key was dropped meanwhile
}

const (
	// maxTogether is how many records are written at once, and maxWritten how many bytes.
	maxTogether = 256
	maxWritten  = 8 << 20
)

// Takes implements tier.Tier.
func (d *Disk) Takes(bytes uint64) error {
	if most := d.options.largest(); bytes > most {
		return fmt.Errorf("%w: %d bytes, and the disk takes up to %d", tier.ErrTooLarge, bytes, most)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.putting.Rests(d.now()) {
		d.stats.PutsDropped++
		return tier.ErrDown
	}
	return nil
}

// Put implements tier.Tier. It encodes on the caller's goroutine.
func (d *Disk) Put(o tier.Object) error {
	r := record.Record{Key: o.Key, Header: o.Header, Payload: o.Payload}
	if err := r.Check(); err != nil {
		return err
	}
	it := &item{hash: record.HashKey(o.Key), bytes: len(o.Payload)}
	size := record.Size(&r, page)
	if most := d.options.largest(); uint64(len(o.Payload)) > most {
		return fmt.Errorf("%w: %d bytes, and the disk takes up to %d", tier.ErrTooLarge, len(o.Payload), most)
	}
	if fresh, err := d.reserve(it, uint64(size)); !fresh {
		return err
	}
	it.buffer = d.buffers.get(size)
	if err := record.Encode(it.buffer, &r); err != nil {
		d.unreserve(it)
		return err
	}
	d.enqueue(it)
	return nil
}

// reserve takes room for an object that is to wait; false if it is kept already, or with
// the reason for which it cannot be.
func (d *Disk) reserve(it *item, size uint64) (fresh bool, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closing {
		return false, tier.ErrClosed
	}
	_, kept := d.index[it.hash]
	if before := d.pending[it.hash]; kept || before != nil && !before.unkept {
		return false, nil
	}
	switch {
	case d.staged+size > max(d.options.MaxWaiting, size):
		d.stats.PutsDropped++
		return false, fmt.Errorf("%w: %d bytes wait for the disk", tier.ErrBusy, d.staged)
	case !d.putting.Allows(d.now()):
		d.stats.PutsDropped++
		return false, tier.ErrDown
	}
	d.staged += size
	d.pending[it.hash] = it
	return true, nil
}

// forget ends the wait of an item. mu is held.
func (d *Disk) forget(it *item) {
	if d.pending[it.hash] == it {
		delete(d.pending, it.hash)
	}
	d.staged -= uint64(len(it.buffer))
	d.buffers.put(it.buffer)
}

func (d *Disk) unreserve(it *item) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.forget(it)
}

func (d *Disk) enqueue(it *item) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.waiting = append(d.waiting, it)
	if d.quiet == nil {
		d.quiet = make(chan struct{})
	}
	d.wake.Signal()
}

// Drop implements tier.Tier. The word is written, too, where there is room for it.
func (d *Disk) Drop(key []byte) {
	r := record.Record{Key: key, Dropped: true}
	if r.Check() != nil {
		return
	}
	hash, size := record.HashKey(key), record.Size(&r, page)
	d.mu.Lock()
	_, kept := d.index[hash]
	before := d.pending[hash]
	if kept = kept || before != nil; kept {
		delete(d.index, hash)
		if before != nil {
			before.unkept = true
		}
	}
	if !kept || d.closing || d.staged+uint64(size) > d.options.MaxWaiting {
		d.mu.Unlock()
		return
	}
	d.staged += uint64(size)
	d.mu.Unlock()
	it := &item{hash: hash, dropped: true, buffer: d.buffers.get(size)}
	if err := record.Encode(it.buffer, &r); err != nil {
		d.unreserve(it)
		return
	}
	d.enqueue(it)
}

// write writes what waits, all that fits at a time, until the disk is closed.
func (d *Disk) write() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for {
		for len(d.waiting) == 0 {
			if d.quiet != nil {
				close(d.quiet)
				d.quiet = nil
			}
			if d.closing {
				return
			}
			d.wake.Wait()
		}
		n, size := 0, int64(0)
		for n < len(d.waiting) && n < maxTogether {
			more := int64(len(d.waiting[n].buffer))
			if n > 0 && (size+more > maxWritten || size+more > int64(d.options.SegmentBytes)) {
				break
			}
			n, size = n+1, size+more
		}
		batch := d.waiting[:n:n]
		d.waiting = d.waiting[n:]
		d.commit(batch, size)
	}
}

// commit writes a batch to a segment, and lets it be found. mu is held, but not while the
// disk works.
func (d *Disk) commit(batch []*item, size int64) {
	s, at, err := d.room(size)
	began := time.Now()
	if err == nil {
		together := make([][]byte, len(batch))
		for i, it := range batch {
			together[i] = it.buffer
		}
		d.mu.Unlock()
		err = s.file.WriteAll(together, at)
		if err != nil {
			_ = s.file.Truncate(at)
		}
		d.mu.Lock()
	}
	took := time.Since(began)
	if took > d.options.Timeout {
		d.stats.Slow++
	}
	d.putting.Ended(d.now(), err == nil && took <= d.options.Timeout)
	if err != nil {
		d.stats.Failed++
		if s != nil {
			d.giveUp(s)
		}
	}
	for _, it := range batch {
		switch {
		case err != nil && !it.dropped:
			d.stats.PutsFailed++
		case err == nil:
			d.keep(s, it)
		}
		d.forget(it)
	}
}

// giveUp appends no more to a segment whose end may be torn. mu is held, but not while
// the file system works.
func (d *Disk) giveUp(s *segment) {
	d.active = nil
	if s.size == 0 {
		delete(d.segments, s.number)
		d.mu.Unlock()
		d.discard(s)
		d.mu.Lock()
	}
}

// keep lets a record be found that was written at the end of a segment. mu is held.
func (d *Disk) keep(s *segment, it *item) {
	at := place{s.number, uint32(s.size / page), uint32(len(it.buffer) / page)}
	s.size += int64(len(it.buffer))
	s.last = time.Now()
	d.stats.Bytes += uint64(len(it.buffer))
	if it.dropped {
		return
	}
	s.hashes = append(s.hashes, it.hash)
	d.stats.Puts++
	d.stats.PutBytes += uint64(it.bytes)
	if !it.unkept {
		d.index[it.hash] = at
	}
}

// room is a segment that has room for so many bytes, and where. The oldest ones go where
// the bound wants it. mu is held, but not while the file system works.
func (d *Disk) room(size int64) (*segment, int64, error) {
	full := d.active
	if full != nil && full.size+size <= int64(d.options.SegmentBytes) {
		return full, full.size, nil
	}
	d.active = nil
	var old []*segment
	reserve := max(d.options.SegmentBytes, uint64(size)) // a large object has a segment of its own
	for d.stats.Bytes+reserve > d.options.Bytes && len(d.segments) > 0 {
		old = append(old, d.reclaim())
	}
	number := d.next
	d.next++
	d.mu.Unlock()
	if full != nil {
		_ = full.file.Truncate(full.size) // else when it is opened the next time
	}
	for _, s := range old {
		d.discard(s)
	}
	path := filepath.Join(d.options.Dir, segmentName(number))
	f, err := d.files.Create(path, int64(reserve))
	d.mu.Lock()
	if err != nil {
		return nil, 0, err
	}
	s := &segment{number: number, path: path, file: f, refs: 1, last: time.Now()}
	d.segments[number], d.active = s, s
	return s, 0, nil
}
