package s3

import (
	"context"
	"errors"
	"io"
	"path"
	"regexp"
	"slices"
	"sync"
	"time"

	"github.com/minio/minio-go/v7"

	"meridian/kv"
)

// keepLooking looks for what others have put and removed, every now and then.
func (b *Bucket) keepLooking() {
	ticker := time.NewTicker(b.options.Refresh)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-b.ctx.Done():
			return
		}
		ctx, cancel := context.WithTimeout(b.ctx, max(b.options.Refresh, b.options.UploadTimeout))
		b.refresh(ctx)
		cancel()
	}
}

// ids are those of segments, as newID makes them; other names in the bucket are left alone.
var ids = regexp.MustCompile(`^[0-9a-f]{12}-[0-9a-f]{16}$`)

// refresh makes the index what the bucket says. What cannot be had now is had the next
// time.
func (b *Bucket) refresh(ctx context.Context) {
	indexed, err := b.list(ctx, "indexes")
	if err != nil {
		return
	}
	b.mu.Lock()
	var fresh []string
	for id := range indexed {
		if b.segments[id] == nil {
			fresh = append(fresh, id)
		}
	}
	for id, s := range b.segments {
		if !indexed[id] && (s.put == 0 || b.now()-s.put > b.grace) { // one that was put meanwhile is not listed yet
			b.remove(s)
		}
	}
	b.mu.Unlock()
	slices.Sort(fresh)
	for some := range slices.Chunk(fresh, loadTogether) { // older ones first: words of drops come later
		loaded := make([]*segment, len(some))
		var wait sync.WaitGroup
		for i, id := range some {
			wait.Go(func() { loaded[i] = b.load(ctx, id) })
		}
		wait.Wait()
		b.mu.Lock()
		for _, s := range loaded {
			if s != nil && b.segments[s.id] == nil {
				b.add(s)
			}
		}
		b.mu.Unlock()
		b.makeRoom(ctx, 0) // also before the rest is loaded: what the bucket has may be more than this process can hold
		if ctx.Err() != nil {
			return
		}
	}
	b.sweep(ctx, indexed)
}

// loadTogether is how many indexes are asked for at a time.
const loadTogether = 8

// age is how long ago a segment was made, by its id.
func age(id string) time.Duration { return time.Since(time.UnixMilli(madeAt(id))) }

// sweep removes segments that have had no index for long: their writers did not come to it.
// How long that is, this process's own clock says: a writer's may be wrong.
func (b *Bucket) sweep(ctx context.Context, indexed map[string]bool) {
	all, err := b.list(ctx, "segments")
	if err != nil {
		return
	}
	now, unindexed := b.now(), make(map[string]kv.Instant)
	for id := range all {
		if indexed[id] {
			continue
		}
		since, known := b.unindexed[id]
		if !known {
			since = now
		}
		unindexed[id] = since // until it is not there any more: it may not be to be had that it goes
		if now-since > b.grace {
			b.discard(ctx, id)
		}
	}
	b.unindexed = unindexed
}

// list is the IDs of a kind that are in the bucket.
func (b *Bucket) list(ctx context.Context, kind string) (map[string]bool, error) {
	if err := b.afford(ctx, &b.puts, 0); err != nil {
		return nil, err
	}
	found := make(map[string]bool)
	prefix := path.Join(b.options.Prefix, kind) + "/"
	var failed error
	for o := range b.client.ListObjectsIter(ctx, b.options.Bucket, minio.ListObjectsOptions{Prefix: prefix, Recursive: true}) {
		if failed = o.Err; failed == nil && len(found) >= 2*maxSegments {
			failed = errCrowded
		}
		if failed != nil {
			break
		}
		if id := path.Base(o.Key); ids.MatchString(id) {
			found[id] = true
		}
	}
	if err := b.judged(&b.puts, failed); err != nil {
		return nil, err
	}
	return found, nil
}

var errCrowded = errors.New("s3: more segments than there may be under one prefix")

// load gets an index; nil, if that failed, took as long as no Get may, or it is none: one that
// does not come keeps none of those after it waiting.
func (b *Bucket) load(ctx context.Context, id string) *segment {
	if b.afford(ctx, &b.gets, 0) != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, b.options.Timeout)
	defer cancel()
	body, _, _, err := b.client.GetObject(ctx, b.options.Bucket, b.indexName(id), minio.GetObjectOptions{})
	var whole []byte
	if err == nil {
		whole, err = io.ReadAll(io.LimitReader(body, maxIndexing+1))
		_ = body.Close()
	}
	if b.judged(&b.gets, err) != nil {
		return nil
	}
	s := &segment{id: id}
	if s.entries, s.bytes, err = parseIndex(whole); err != nil {
		b.mu.Lock()
		b.stats.Broken++
		b.mu.Unlock()
		return nil
	}
	return s
}
