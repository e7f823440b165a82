package s3

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"path"
	"slices"
	"strconv"
	"time"

	"github.com/minio/minio-go/v7"

	"meridian/keep/store/admission"
	"meridian/keep/store/record"
	"meridian/keep/store/tier"
)

// align is what the length of a record is a multiple of.
const align = 64

// item is a record that is to be put, or a key that was dropped.
type item struct {
	hash   uint64
	bytes  []byte // nil: dropped
	size   int    // of the payload
	unkept bool   // its key was dropped meanwhile
	since  time.Time
}

// Takes implements tier.Tier.
func (b *Bucket) Takes(bytes uint64) error {
	if most := b.options.largest(); bytes > most {
		return fmt.Errorf("%w: %d bytes, and the bucket takes up to %d", tier.ErrTooLarge, bytes, most)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.puts.Rests(b.now()) {
		b.stats.PutsDropped++
		return tier.ErrDown
	}
	return nil
}

// Put implements tier.Tier. It encodes on the caller's goroutine.
func (b *Bucket) Put(o tier.Object) error {
	r := record.Record{Key: o.Key, Header: o.Header, Payload: o.Payload}
	if err := r.Check(); err != nil {
		return err
	}
	it := &item{hash: record.HashKey(o.Key), size: len(o.Payload), since: time.Now()}
	size := uint64(record.Size(&r, align))
	if most := b.options.largest(); uint64(len(o.Payload)) > most {
		return fmt.Errorf("%w: %d bytes, and the bucket takes up to %d", tier.ErrTooLarge, len(o.Payload), most)
	}
	if fresh, err := b.reserve(it, size); !fresh {
		return err
	}
	encoded := make([]byte, size)
	err := record.Encode(encoded, &r)
	b.mu.Lock()
	defer b.mu.Unlock()
	if err != nil {
		b.forget(it, size)
		return err
	}
	it.bytes = encoded
	b.enqueue(it)
	return nil
}

// reserve takes room for an object that is to wait; false if it is kept already, or with
// the reason for which it cannot be.
func (b *Bucket) reserve(it *item, size uint64) (fresh bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closing {
		return false, tier.ErrClosed
	}
	_, kept := b.index[it.hash]
	if before := b.pending[it.hash]; kept || before != nil && !before.unkept {
		return false, nil
	}
	switch {
	case b.staged+size > max(b.options.MaxWaiting, size):
		b.stats.PutsDropped++
		return false, fmt.Errorf("%w: %d bytes wait for the server", tier.ErrBusy, b.staged)
	case b.puts.Down() && len(b.waiting) > 0: // one segment may try
		b.stats.PutsDropped++
		return false, tier.ErrDown
	}
	b.staged += size
	b.pending[it.hash] = it
	return true, nil
}

// forget ends the wait of an item. mu is held.
func (b *Bucket) forget(it *item, size uint64) {
	if b.pending[it.hash] == it {
		delete(b.pending, it.hash)
	}
	b.staged -= size
}

// maxDrops bounds how many words wait that a key was dropped.
const maxDrops = 1 << 14

// Drop implements tier.Tier. The word goes out with what is put next.
func (b *Bucket) Drop(key []byte) {
	hash := record.HashKey(key)
	b.mu.Lock()
	defer b.mu.Unlock()
	_, kept := b.index[hash]
	before := b.pending[hash]
	delete(b.index, hash)
	if before != nil {
		before.unkept = true
	}
	if (kept || before != nil) && !b.closing && len(b.waiting) < maxDrops {
		b.enqueue(&item{hash: hash, since: time.Now()})
	}
}

// keepPutting puts what waits, a segment at a time, until the bucket is closed.
func (b *Bucket) keepPutting() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		batch, pause := b.batch()
		if batch != nil {
			b.putSegment(batch)
			continue
		}
		timer.Reset(pause)
		select {
		case <-b.wake:
		case <-timer.C:
		case <-b.ctx.Done():
			b.giveUp()
			return
		}
	}
}

// batch is what is to be put now; nothing, if it may wait for more so long.
func (b *Bucket) batch() (batch []*item, pause time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n, size := 0, uint64(0)
	for n < len(b.waiting) && n < maxEntries && (n == 0 || size+uint64(len(b.waiting[n].bytes)) <= b.options.SegmentBytes) {
		size += uint64(len(b.waiting[n].bytes))
		n++
	}
	switch {
	case n == 0:
		b.rest()
		return nil, time.Hour
	case n == len(b.waiting) && n < maxEntries && b.flushes == 0 && !b.closing:
		if left := b.options.Linger - time.Since(b.waiting[0].since); left > 0 {
			return nil, left
		}
	}
	batch = b.waiting[:n:n]
	b.waiting = b.waiting[n:]
	return batch, 0
}

// giveUp counts what will not be put any more.
func (b *Bucket) giveUp() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stats.PutsFailed += uint64(len(b.waiting))
	b.waiting = nil
	b.rest()
}

// putSegment puts a batch, and lets it be found.
func (b *Bucket) putSegment(batch []*item) {
	s := &segment{id: b.newID()}
	var blob []byte
	for _, it := range batch {
		s.entries = append(s.entries, entry{it.hash, uint32(len(blob)), uint32(len(it.bytes))})
		blob = append(blob, it.bytes...)
	}
	s.bytes = uint64(len(blob))
	ctx, cancel := context.WithTimeout(b.ctx, b.options.UploadTimeout)
	defer cancel()
	b.makeRoom(ctx, s.bytes)
	err := b.upload(ctx, s, blob)
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, it := range batch {
		b.forget(it, uint64(len(it.bytes)))
		switch {
		case it.bytes == nil:
		case err != nil:
			b.stats.PutsFailed++
		default:
			b.stats.Puts++
			b.stats.PutBytes += uint64(it.size)
			if it.unkept {
				s.entries[i].length = 0
			}
		}
	}
	if err == nil {
		s.put = b.now()
		b.add(s)
	}
	if len(b.waiting) == 0 {
		b.rest()
	}
}

// upload puts a segment and then its index.
func (b *Bucket) upload(ctx context.Context, s *segment, blob []byte) error {
	index, err := appendIndex(s.entries, s.bytes)
	if err != nil {
		return err
	}
	if len(blob) > 0 {
		if err := b.upload1(ctx, b.segmentName(s.id), blob); err != nil {
			return err
		}
	}
	return b.upload1(ctx, b.indexName(s.id), index)
}

func (b *Bucket) upload1(ctx context.Context, name string, blob []byte) error {
	if err := b.afford(ctx, &b.puts, uint64(len(blob))); err != nil {
		return err
	}
	_, err := b.client.PutObject(ctx, b.options.Bucket, name, bytes.NewReader(blob), int64(len(blob)), "", "", minio.PutObjectOptions{
		DisableMultipart: true, ContentType: "application/octet-stream",
	})
	return b.judged(&b.puts, err)
}

// afford waits until the budget allows for a request: what is put behind has time.
func (b *Bucket) afford(ctx context.Context, breaker *admission.Breaker, bytes uint64) error {
	for {
		b.mu.Lock()
		err := b.allow(breaker, bytes)
		b.mu.Unlock()
		if err == nil || !isBusy(err) {
			return err
		}
		select {
		case <-time.After(budgetPause):
		case <-ctx.Done():
			b.mu.Lock()
			defer b.mu.Unlock()
			b.stats.OverBudget++
			return fmt.Errorf("%w: %w", err, ctx.Err())
		}
	}
}

const budgetPause = 50 * time.Millisecond

// makeRoom removes the oldest segments, until there is room for so many bytes more.
func (b *Bucket) makeRoom(ctx context.Context, bytes uint64) {
	for {
		b.mu.Lock()
		var oldest *segment
		for _, s := range b.segments {
			if oldest == nil || s.id < oldest.id {
				oldest = s
			}
		}
		if oldest == nil || b.stats.Bytes+bytes <= b.options.Bytes && len(b.segments) < maxSegments {
			b.mu.Unlock()
			return
		}
		b.remove(oldest)
		b.stats.Reclaimed++
		b.mu.Unlock()
		b.discard(ctx, oldest.id)
	}
}

// maxSegments bounds how many there are, and so what it takes to list them.
const maxSegments = 1 << 16

// discard removes a segment from the bucket, its index first: an index of nothing would
// be in every reader's way.
func (b *Bucket) discard(ctx context.Context, id string) {
	for _, name := range []string{b.indexName(id), b.segmentName(id)} {
		err := b.afford(ctx, &b.puts, 0)
		if err == nil {
			err = b.judged(&b.puts, b.client.RemoveObject(ctx, b.options.Bucket, name, minio.RemoveObjectOptions{}))
		}
		if err != nil {
			return // what is left is removed as a segment without an index
		}
	}
}

// add lets the records of a segment be found. mu is held.
func (b *Bucket) add(s *segment) {
	b.segments[s.id] = s
	b.stats.Bytes += s.bytes
	for _, e := range s.entries {
		if e.length == 0 {
			delete(b.index, e.hash)
		} else {
			b.index[e.hash] = place{s, e.offset, e.length}
		}
	}
	s.entries = slices.DeleteFunc(s.entries, func(e entry) bool { return e.length == 0 })
}

// remove forgets a segment. mu is held.
func (b *Bucket) remove(s *segment) {
	delete(b.segments, s.id)
	b.stats.Bytes -= s.bytes
	for _, e := range s.entries {
		if b.index[e.hash].segment == s {
			delete(b.index, e.hash)
		}
	}
}

// newID is a name that sorts by time, and behind every segment that is known: what a clock
// that was ahead has put would else stay, and what is put now make room for it.
func (b *Bucket) newID() string {
	made := max(0, time.Now().UnixMilli())
	b.mu.Lock()
	for id := range b.segments {
		made = max(made, min(madeAt(id)+1, lastMade))
	}
	b.mu.Unlock()
	var random [8]byte
	_, _ = rand.Read(random[:])
	return fmt.Sprintf("%012x-%s", made, hex.EncodeToString(random[:]))
}

// lastMade is the latest time that an ID has room for.
const lastMade = 1<<48 - 1

// madeAt is the time in an ID, as its writer's clock had it, in ms.
func madeAt(id string) int64 {
	made, _ := strconv.ParseInt(id[:12], 16, 64)
	return made
}

func (b *Bucket) segmentName(id string) string {
	return path.Join(b.options.Prefix, "segments", id)
}
func (b *Bucket) indexName(id string) string { return path.Join(b.options.Prefix, "indexes", id) }
