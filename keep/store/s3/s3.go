// Package s3 keeps objects of the cache in a bucket of an S3 server: a tier (package
// tier) that several owners share, and that outlives them all.
//
//	Put ─ encoded ─► waiting ─┐ together, when there is enough of it     PREFIX/segments/ID   records, one after the other
//	Put ─ encoded ─► waiting ─┴──── or it has waited for a moment ──────► PREFIX/indexes/ID    written after it
//	Get ─► index: hash of the key → segment, offset ─► one ranged request, summed on the way out
//
// An ID begins with the time at which it was made, or a later one where the bucket has
// such: the oldest go first when room is needed, whichever agent made them. The index is in
// memory; it is made from the indexes in the bucket, when it is opened and again every now
// and then, for what others have put or removed. A segment without an index is one that its
// writer did not live to finish: it is removed when it has been seen so for long.
//
// Every request has a deadline, and is paid for out of a budget of requests and bytes. A
// server that fails or is slow is left alone for a while: that is a miss, and counted.
package s3

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"meridian/internal/join"
	"meridian/keep/store/admission"
	"meridian/keep/store/record"
	"meridian/keep/store/tier"
	"meridian/kv"
)

// Options configures Open. Zero values mean the defaults.
type Options struct {
	// Endpoint is host and port of the server; Secure says that it speaks TLS.
	Endpoint string
	Secure   bool
	Region   string
	// Bucket must exist. Objects are named Prefix/….
	Bucket, Prefix string
	// AccessKey and SecretKey; both "" take them from the environment (AWS_ACCESS_KEY_ID
	// …), from ~/.aws, or from the machine's role.
	AccessKey, SecretKey string
	// Bytes is the most that is kept under the prefix; at least two segments.
	Bytes uint64
	// SegmentBytes is how much is put at once; default 32 MiB. A larger object, of up to half
	// of Bytes and 1 GiB, is put alone.
	SegmentBytes uint64
	// Linger is the longest that an object waits for others; default 1 s.
	Linger time.Duration
	// MaxWaiting bounds the bytes that were taken and are not put; default 4 segments.
	MaxWaiting uint64
	// Timeout is the longest that a Get takes; default 2 s. UploadTimeout, for a segment;
	// default 30 s.
	Timeout, UploadTimeout time.Duration
	// Refresh is how often others' indexes are looked for; default 30 s.
	Refresh time.Duration
	// RequestsPerSecond and BytesPerSecond bound what the server is asked; 0: no bound.
	RequestsPerSecond, BytesPerSecond uint64
}

const maxSegment = 1 << 30

// largest is the longest payload that is taken.
func (o *Options) largest() uint64 { return record.Largest(min(maxSegment, o.Bytes/2), align) }

// Check says what is wrong with options, before anything is opened.
func (o Options) Check() error {
	_, err := o.withDefaults()
	return err
}

func (o Options) withDefaults() (Options, error) {
	o.SegmentBytes, o.Linger = cmp.Or(o.SegmentBytes, 32<<20), cmp.Or(o.Linger, time.Second)
	o.MaxWaiting = cmp.Or(o.MaxWaiting, 4*o.SegmentBytes)
	o.Timeout, o.UploadTimeout, o.Refresh = cmp.Or(o.Timeout, 2*time.Second), cmp.Or(o.UploadTimeout, 30*time.Second), cmp.Or(o.Refresh, 30*time.Second)
	switch {
	case o.Endpoint == "" || o.Bucket == "":
		return o, errors.New("s3: Options needs an Endpoint and a Bucket")
	case o.SegmentBytes > maxSegment || o.Bytes/2 < o.SegmentBytes:
		return o, fmt.Errorf("s3: %d bytes in segments of %d: there must be room for two, each of up to 1 GiB", o.Bytes, o.SegmentBytes)
	case min(o.Linger, o.Timeout, o.UploadTimeout, o.Refresh) < 0:
		return o, errors.New("s3: a span in Options is negative")
	}
	return o, nil
}

// segment is one that is in the bucket.
type segment struct {
	id      string
	put     kv.Instant // when this process has put it; 0: another has
	bytes   uint64
	entries []entry
}

// place is where a record lies.
type place struct {
	segment        *segment
	offset, length uint32
}

// Bucket is an open bucket. It is a tier.Tier.
type Bucket struct {
	options Options
	client  minio.Core
	start   time.Time
	wait    sync.WaitGroup
	// ctx is that of what runs here.
	ctx    context.Context
	cancel context.CancelFunc
	wake   chan struct{} // something is to be put, or the bucket is closing
	// grace is how long an index may be on its way; unindexed, since when segments are seen
	// that have none (of refresh alone).
	grace     kv.Instant
	unindexed map[string]kv.Instant

	mu       sync.Mutex    // protects the rest
	quiet    chan struct{} // closed when nothing waits and nothing is put; nil: so it is
	closing  bool
	index    map[uint64]place
	segments map[string]*segment
	waiting  []*item
	pending  map[uint64]*item // taken, and not yet put
	staged   uint64           // bytes of pending
	flushes  int              // those who wait for it to be quiet
	requests admission.Budget
	traffic  admission.Budget
	puts     admission.Breaker
	gets     admission.Breaker
	stats    tier.Stats
}

var _ tier.Tier = (*Bucket)(nil)

// Open makes the index of what is in a bucket, as far as its server answers in time; a
// server that does not answer is asked again later.
func Open(ctx context.Context, o Options) (*Bucket, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	b := &Bucket{
		options: o, start: time.Now(), wake: make(chan struct{}, 1), index: make(map[uint64]place), segments: make(map[string]*segment),
		pending: make(map[uint64]*item), requests: admission.NewBudget(o.RequestsPerSecond), traffic: admission.NewBudget(o.BytesPerSecond),
	}
	b.grace = kv.Instant(max(10*time.Minute, 2*o.UploadTimeout) / time.Microsecond)
	b.ctx, b.cancel = context.WithCancel(context.Background())
	transport, err := minio.DefaultTransport(o.Secure)
	if err != nil {
		return nil, fmt.Errorf("s3: %w", err)
	}
	client, err := minio.New(o.Endpoint, &minio.Options{
		Creds: keys(o), Secure: o.Secure, Region: o.Region, Transport: &counting{b, transport}, BucketLookup: minio.BucketLookupPath, MaxRetries: tries,
	})
	if err != nil {
		return nil, fmt.Errorf("s3: %w", err)
	}
	b.client = minio.Core{Client: client}
	b.wait.Go(func() { <-b.ctx.Done(); transport.CloseIdleConnections() })
	first, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	b.refresh(first)
	b.wait.Go(b.keepPutting)
	b.wait.Go(b.keepLooking)
	return b, nil
}

// tries is how often a request is made that fails in a way that passes.
const tries = 3

func keys(o Options) *credentials.Credentials {
	if o.AccessKey != "" || o.SecretKey != "" {
		return credentials.NewStaticV4(o.AccessKey, o.SecretKey, "")
	}
	return credentials.NewChainCredentials([]credentials.Provider{
		&credentials.EnvAWS{}, &credentials.FileAWSCredentials{}, &credentials.IAM{Client: &http.Client{Timeout: time.Second}},
	})
}

// counting counts every request, tries after failures too, and bounds answers whose length
// nothing has asked for: a list would be read to its end, which is up to the server.
type counting struct {
	bucket *Bucket
	inner  http.RoundTripper
}

func (c *counting) RoundTrip(r *http.Request) (*http.Response, error) {
	c.bucket.mu.Lock()
	c.bucket.stats.Requests++
	c.bucket.mu.Unlock()
	answer, err := c.inner.RoundTrip(r)
	if err == nil && r.Header.Get("Range") == "" {
		answer.Body = http.MaxBytesReader(nil, answer.Body, maxIndexing+1)
	}
	return answer, err
}

func (b *Bucket) now() kv.Instant { return kv.Instant(time.Since(b.start)/time.Microsecond) + 1 }

// allow reports whether a request that moves so many bytes may be made; why not, if not.
// mu is held.
func (b *Bucket) allow(breaker *admission.Breaker, bytes uint64) error {
	now := b.now()
	switch {
	case b.closing && breaker == &b.gets:
		return tier.ErrClosed
	case !b.requests.Has(now, 1) || !b.traffic.Has(now, bytes):
		return fmt.Errorf("%w: the budget of requests and bytes is spent", tier.ErrBusy)
	case !breaker.Allows(now):
		return tier.ErrDown
	}
	b.requests.Spend(now, 1)
	b.traffic.Spend(now, bytes)
	return nil
}

// judged says how a request went, and returns why it failed.
func (b *Bucket) judged(breaker *admission.Breaker, err error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	var said minio.ErrorResponse
	gone := errors.As(err, &said) && said.StatusCode == http.StatusNotFound && said.Code == minio.NoSuchKey
	switch {
	case errors.Is(err, context.Canceled): // the caller left: that says nothing about the server
		breaker.Left()
		return err
	case err == nil || gone:
		breaker.Ended(b.now(), true)
		return err
	}
	breaker.Ended(b.now(), false)
	b.stats.Failed++
	if errors.Is(err, context.DeadlineExceeded) {
		b.stats.Slow++
		err = fmt.Errorf("%w: %w", tier.ErrSlow, err)
	}
	return err
}

// Name implements tier.Tier.
func (b *Bucket) Name() string { return "s3" }

// Has implements tier.Tier.
func (b *Bucket) Has(keys [][]byte) []bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	has := make([]bool, len(keys))
	if !b.gets.Rests(b.now()) {
		for i, key := range keys {
			_, has[i] = b.index[record.HashKey(key)]
		}
	}
	return has
}

// Stats implements tier.Tier.
func (b *Bucket) Stats() tier.Stats {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.stats
	s.Objects, s.Limit, s.Waiting, s.Down = uint64(len(b.index)), b.options.Bytes, b.staged, b.gets.Down() || b.puts.Down()
	for id := range b.segments {
		s.OldestSeconds = max(s.OldestSeconds, uint64(max(0, age(id).Seconds())))
	}
	return s
}

// Flush implements tier.Tier.
func (b *Bucket) Flush(ctx context.Context) error {
	b.mu.Lock()
	quiet := b.quiet
	b.flushes++
	b.mu.Unlock()
	defer func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.flushes--
	}()
	if quiet == nil {
		return nil
	}
	b.poke()
	select {
	case <-quiet:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("s3: putting what waits: %w", ctx.Err())
	}
}

// enqueue lets an item wait to be put. mu is held.
func (b *Bucket) enqueue(it *item) {
	b.waiting = append(b.waiting, it)
	if b.quiet == nil {
		b.quiet = make(chan struct{})
	}
	b.poke()
}

// rest tells those who flush that nothing waits, and nothing is put. mu is held.
func (b *Bucket) rest() {
	if b.quiet != nil {
		close(b.quiet)
		b.quiet = nil
	}
}

// poke wakes the goroutine that puts.
func (b *Bucket) poke() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// Close implements tier.Tier. What could not be put when ctx ends is given up.
func (b *Bucket) Close(ctx context.Context) error {
	b.mu.Lock()
	b.closing = true
	b.mu.Unlock()
	b.poke()
	err := b.Flush(ctx)
	b.cancel()
	if waited := join.Within(context.WithoutCancel(ctx), "s3: closing", b.wait.Wait); waited != nil {
		return waited
	}
	return err
}
