package s3

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/minio/minio-go/v7"

	"meridian/keep/store/record"
	"meridian/keep/store/tier"
)

// Get implements tier.Tier. Whether the server is slow is judged by the bucket's own time: a
// caller that has less takes its request away, and says nothing about the server.
func (b *Bucket) Get(ctx context.Context, key []byte, into func(header []byte, size int) []byte) ([]byte, error) {
	own, cancel := context.WithTimeout(b.ctx, b.options.Timeout)
	defer cancel()
	stop := context.AfterFunc(ctx, cancel)
	defer stop()
	hash := record.HashKey(key)
	at, err := b.find(hash)
	if err != nil {
		return nil, err
	}
	defer b.wait.Done()
	whole, err := b.download(own, b.segmentName(at.segment.id), span{int64(at.offset), int64(at.length)})
	if err = b.judged(&b.gets, err); err != nil {
		if minio.ToErrorResponse(err).Code == minio.NoSuchKey { // another owner has reclaimed it
			b.mu.Lock()
			if b.segments[at.segment.id] == at.segment {
				b.remove(at.segment)
			}
			b.mu.Unlock()
		}
		return nil, fmt.Errorf("%w: %w", tier.ErrMissing, err)
	}
	return b.take(key, at, whole, into)
}

// find is where the object of a key lies, if the server may be asked for it. What it
// returned is over with wait.Done.
func (b *Bucket) find(hash uint64) (place, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	at, is := b.index[hash]
	if b.closing {
		return at, tier.ErrClosed
	}
	if !is {
		b.stats.Misses++
		return at, tier.ErrMissing
	}
	if err := b.allow(&b.gets, uint64(at.length)); err != nil {
		b.stats.Misses++
		if isBusy(err) {
			b.stats.OverBudget++
		}
		return at, fmt.Errorf("%w: %w", tier.ErrMissing, err)
	}
	b.wait.Add(1)
	return at, nil
}

// span is some bytes of an object of the bucket.
type span struct{ offset, length int64 }

// download gets bytes of an object, exactly as many.
func (b *Bucket) download(ctx context.Context, name string, s span) ([]byte, error) {
	var o minio.GetObjectOptions
	if err := o.SetRange(s.offset, s.offset+s.length-1); err != nil {
		return nil, err
	}
	body, _, _, err := b.client.GetObject(ctx, b.options.Bucket, name, o)
	if err != nil {
		return nil, err
	}
	defer func() { _ = body.Close() }()
	whole := make([]byte, s.length)
	if _, err := io.ReadFull(body, whole); err != nil {
		return nil, errors.Join(err, ctx.Err())
	}
	return whole, nil
}

// take takes an object out of what came, if it is whole and the one that was meant.
func (b *Bucket) take(key []byte, at place, whole []byte, into func([]byte, int) []byte) ([]byte, error) {
	e, err := record.Parse(whole)
	if err == nil && record.HashKey(e.Key) != record.HashKey(key) { // whole, and from elsewhere
		err = record.ErrBroken
	}
	var dst []byte
	if err == nil && e.Is(key) {
		if dst = into(e.Header, e.Length); dst != nil {
			err = e.CopyPayload(dst, whole)
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case err != nil:
		b.stats.Broken++
		if hash := record.HashKey(key); b.index[hash] == at {
			delete(b.index, hash) // it can be put anew
		}
		return nil, fmt.Errorf("%w: %w", tier.ErrMissing, err)
	case !e.Is(key): // another key of the same hash
		b.stats.Misses++
		return nil, tier.ErrMissing
	}
	b.stats.Hits++
	b.stats.HitBytes += uint64(e.Length)
	return dst, nil
}

func isBusy(err error) bool { return errors.Is(err, tier.ErrBusy) }
