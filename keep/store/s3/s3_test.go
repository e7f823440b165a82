package s3

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"

	"meridian/internal/until"
	"meridian/keep/store/tier"
	"meridian/keep/store/tier/tiertest"
)

func TestSuite(t *testing.T) {
	tiertest.Run(t, func(t *testing.T) tiertest.Subject {
		o := newServer(t).options()
		return tiertest.Subject{Keeps: int(o.Bytes), Open: func(t *testing.T) tier.Tier { return open(t, o) }}
	})
}

// names are the objects in a bucket.
func (s *server) names(t *testing.T) (names []string) {
	t.Helper()
	for o := range s.client(t).ListObjectsIter(t.Context(), s.bucket, minio.ListObjectsOptions{Recursive: true}) {
		if o.Err != nil {
			t.Fatal(o.Err)
		}
		names = append(names, o.Key)
	}
	return names
}

func TestObjectsArePutTogether(t *testing.T) {
	s := newServer(t)
	b := open(t, s.options())
	defer shut(t, b)
	before := b.Stats().Requests
	for n := range 50 {
		if err := b.Put(tiertest.Object(n, 1000)); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if names, requests := s.names(t), b.Stats().Requests-before; len(names) > 4 || requests > 8 {
		t.Errorf("50 objects are %d in the bucket, after %d requests: %v", len(names), requests, names)
	}
}

// Owners share a bucket: what one puts another finds, and what one removes is gone for
// the other.
func TestShared(t *testing.T) {
	s := newServer(t)
	o := s.options()
	o.Refresh = 50 * time.Millisecond
	a, b := open(t, o), open(t, o)
	defer shut(t, a)
	defer shut(t, b)
	one := tiertest.Object(1, 50_000)
	tiertest.Put(t, a, one)
	until.True(t, "the other finds it", func() bool { return b.Has([][]byte{one.Key})[0] })
	if got, err := tiertest.Get(t.Context(), b, one.Key); err != nil || !bytes.Equal(got.Payload, one.Payload) {
		t.Fatal(err)
	}
	for _, name := range s.names(t) { // an operator empties the bucket
		if err := s.client(t).RemoveObject(t.Context(), s.bucket, name, minio.RemoveObjectOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := tiertest.Get(t.Context(), b, one.Key); !errors.Is(err, tier.ErrMissing) {
		t.Errorf("get: %v", err)
	}
	if b.Has([][]byte{one.Key})[0] {
		t.Error("it is still said to be there")
	}
	if stats := b.Stats(); stats.Down || stats.Failed != 0 {
		t.Errorf("what is gone is no failure: %+v", stats)
	}
}

// A byte that changes in the bucket, or on the way, is a miss.
func TestFlippedByte(t *testing.T) {
	s := newServer(t)
	b := open(t, s.options())
	defer shut(t, b)
	one := tiertest.Object(1, 50_000)
	tiertest.Put(t, b, one)
	flip := func(r *http.Request, body []byte) []byte {
		if strings.Contains(r.URL.Path, "/segments/") && len(body) > 30_000 {
			body[30_000] ^= 1
		}
		return body
	}
	s.change.Store(&flip)
	if _, err := tiertest.Get(t.Context(), b, one.Key); !errors.Is(err, tier.ErrMissing) {
		t.Errorf("get: %v", err)
	}
	s.change.Store(nil)
	if stats := b.Stats(); stats.Broken != 1 || stats.Objects != 0 || stats.Down {
		t.Errorf("stats: %+v", stats)
	}
	tiertest.Put(t, b, one)
	if got, err := tiertest.Get(t.Context(), b, one.Key); err != nil || !bytes.Equal(got.Payload, one.Payload) {
		t.Errorf("put anew: %v", err)
	}
}

// later lets time pass for the bucket.
func (b *Bucket) later(span time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.start = b.start.Add(-span)
}

// A server that refuses, hangs for 5 s, or cuts its answers is a miss, in time; then it
// is left alone; then it is asked again.
func TestTrouble(t *testing.T) {
	for name, trouble := range map[string]func(w http.ResponseWriter, r *http.Request) bool{
		"Refuses": func(w http.ResponseWriter, _ *http.Request) bool {
			w.WriteHeader(http.StatusForbidden)
			return true
		},
		"Unavailable": func(w http.ResponseWriter, _ *http.Request) bool {
			w.WriteHeader(http.StatusServiceUnavailable)
			return true
		},
		"Slow": func(_ http.ResponseWriter, r *http.Request) bool {
			_, _ = io.Copy(io.Discard, r.Body) // so that its client's end is seen
			select {
			case <-time.After(5 * time.Second):
			case <-r.Context().Done():
			}
			return false
		},
		"Cuts": func(w http.ResponseWriter, _ *http.Request) bool {
			w.Header().Set("Content-Length", "51200")
			_, _ = w.Write(make([]byte, 1000))
			panic(http.ErrAbortHandler)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t)
			o := s.options()
			o.Timeout, o.UploadTimeout = 300*time.Millisecond, 300*time.Millisecond
			b := open(t, o)
			defer shut(t, b)
			kept := tiertest.Object(1, 50_000)
			tiertest.Put(t, b, kept)
			s.trouble.Store(&trouble)
			for n := range 5 {
				began := time.Now()
				if _, err := tiertest.Get(t.Context(), b, kept.Key); !errors.Is(err, tier.ErrMissing) {
					t.Errorf("get %d: %v", n, err)
				}
				if took := time.Since(began); took > 2*time.Second {
					t.Errorf("a get took %v", took)
				}
			}
			if _, err := tiertest.Get(t.Context(), b, kept.Key); !errors.Is(err, tier.ErrDown) {
				t.Errorf("it is not left alone: %v", err)
			}
			began := time.Now()
			for n := range 8 {
				_ = b.Put(tiertest.Object(100+n, 1000))
			}
			if took := time.Since(began); took > time.Second {
				t.Errorf("8 puts took %v", took)
			}
			if err := b.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
			stats := b.Stats()
			if !stats.Down || stats.Failed < 5 || stats.PutsFailed+stats.PutsDropped != 8 {
				t.Errorf("stats: %+v", stats)
			}
			if name == "Slow" && stats.Slow < 5 {
				t.Errorf("slow: %+v", stats)
			}
			s.trouble.Store(nil)
			b.later(6 * time.Second)
			if !b.Has([][]byte{kept.Key})[0] {
				t.Error("it would not be tried again")
			}
			if got, err := tiertest.Get(t.Context(), b, kept.Key); err != nil || !bytes.Equal(got.Payload, kept.Payload) {
				t.Errorf("when it works again: %v", err)
			}
			again := tiertest.Object(200, 1000)
			tiertest.Put(t, b, again)
			if _, err := tiertest.Get(t.Context(), b, again.Key); err != nil {
				t.Errorf("put when it works again: %v", err)
			}
		})
	}
}

// Callers that have less time than the server takes get a miss and leave: that says nothing
// about the server, which others still ask.
func TestShortDeadlinesSayNothing(t *testing.T) {
	s := newServer(t)
	o := s.options()
	o.Timeout = time.Minute
	b := open(t, o)
	defer shut(t, b)
	kept := tiertest.Object(1, 50_000)
	tiertest.Put(t, b, kept)
	slow := func(_ http.ResponseWriter, r *http.Request) bool {
		<-r.Context().Done()
		return true
	}
	s.trouble.Store(&slow)
	for n := range 8 {
		ctx, leave := context.WithTimeout(t.Context(), 20*time.Millisecond)
		if _, err := tiertest.Get(ctx, b, kept.Key); !errors.Is(err, tier.ErrMissing) {
			t.Errorf("get %d: %v", n, err)
		}
		leave()
	}
	s.trouble.Store(nil)
	if _, err := tiertest.Get(t.Context(), b, kept.Key); err != nil {
		t.Errorf("a caller with time: %v", err)
	}
	if stats := b.Stats(); stats.Down || stats.Slow != 0 || stats.Failed != 0 {
		t.Errorf("stats: %+v", stats)
	}
}

// A failure that passes is tried again, and no caller notices.
func TestRetries(t *testing.T) {
	s := newServer(t)
	b := open(t, s.options())
	defer shut(t, b)
	tiertest.Put(t, b, tiertest.Object(1, 50_000))
	left := 1
	trouble := func(w http.ResponseWriter, _ *http.Request) bool {
		if left--; left >= 0 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		return left >= 0
	}
	s.trouble.Store(&trouble)
	before := b.Stats().Requests
	if _, err := tiertest.Get(t.Context(), b, tiertest.Object(1, 50_000).Key); err != nil {
		t.Error(err)
	}
	if stats := b.Stats(); stats.Requests != before+2 || stats.Failed != 0 {
		t.Errorf("stats: %+v", stats)
	}
}

func TestBudgetIsKept(t *testing.T) {
	s := newServer(t)
	first := open(t, s.options())
	tiertest.Put(t, first, tiertest.Object(1, 1000))
	shut(t, first)
	o := s.options()
	o.RequestsPerSecond = 20
	b := open(t, o)
	defer shut(t, b)
	before, refused := b.Stats().Requests, 0
	for range 200 {
		if _, err := tiertest.Get(t.Context(), b, tiertest.Object(1, 1000).Key); errors.Is(err, tier.ErrMissing) && errors.Is(err, tier.ErrBusy) {
			refused++
		} else if err != nil {
			t.Fatal(err)
		}
	}
	took := time.Since(b.start).Seconds()
	if stats := b.Stats(); refused == 0 || stats.OverBudget < uint64(refused) || float64(stats.Requests-before) > 20*(took+1) {
		t.Errorf("%d of 200 were refused in %.1f s: %+v", refused, took, stats)
	}
}

// A server that is not there keeps no agent from starting; what is put is counted.
func TestNobodyThere(t *testing.T) {
	o := (&server{address: "127.0.0.1:1", bucket: "none"}).options()
	o.Timeout, o.UploadTimeout = 300*time.Millisecond, 300*time.Millisecond
	began := time.Now()
	b := open(t, o)
	if err := b.Put(tiertest.Object(1, 1000)); err != nil {
		t.Error(err)
	}
	if err := b.Flush(context.Background()); err != nil {
		t.Error(err)
	}
	if stats := b.Stats(); stats.PutsFailed != 1 || stats.Failed == 0 || stats.Objects != 0 {
		t.Errorf("stats: %+v", stats)
	}
	shut(t, b)
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("it took %v", took)
	}
}

// A segment whose writer died before its index is removed when it has been seen so for long,
// whatever its writer's clock said, and what others keep in the bucket is left alone.
func TestSweep(t *testing.T) {
	s := newServer(t)
	put := func(name string) {
		if _, err := s.client(t).PutObject(t.Context(), s.bucket, name, strings.NewReader("x"), 1, minio.PutObjectOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	const early, late = "a/cell/segments/000000000001-0123456789abcdef", "a/cell/segments/ffffffffffff-0123456789abcdef"
	put(early)
	put(late)
	put("a/cell/segments/notes")
	put("a/cell/indexes/000000000002-0123456789abcdef") // not an index
	b := open(t, s.options())
	defer shut(t, b)
	b.refresh(t.Context())
	if names := s.names(t); !slices.Contains(names, early) || !slices.Contains(names, late) {
		t.Errorf("its index may be on its way, and it is gone: %v", names)
	}
	b.grace = 0
	put("a/cell/segments/" + b.newID())
	b.refresh(t.Context())
	if names := s.names(t); slices.Contains(names, early) || slices.Contains(names, late) || strings.Count(strings.Join(names, " "), "/segments/") != 2 {
		t.Errorf("in the bucket: %v", names)
	}
	if stats := b.Stats(); stats.Broken == 0 || stats.Objects != 0 {
		t.Errorf("stats: %+v", stats)
	}
}

// What could not be removed is tried again at the next look, and not after as long once more.
func TestSweepTriesAgain(t *testing.T) {
	s := newServer(t)
	const left = "a/cell/segments/000000000001-0123456789abcdef"
	if _, err := s.client(t).PutObject(t.Context(), s.bucket, left, strings.NewReader("x"), 1, minio.PutObjectOptions{}); err != nil {
		t.Fatal(err)
	}
	b := open(t, s.options())
	defer shut(t, b)
	b.refresh(t.Context())
	b.grace = 0
	refusals := 0
	trouble := func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodDelete {
			return false
		}
		refusals++
		w.WriteHeader(http.StatusForbidden)
		return true
	}
	s.trouble.Store(&trouble)
	b.refresh(t.Context())
	s.trouble.Store(nil)
	if names := s.names(t); refusals == 0 || !slices.Contains(names, left) {
		t.Fatalf("%d refusals: %v", refusals, names)
	}
	b.refresh(t.Context())
	if names := s.names(t); slices.Contains(names, left) {
		t.Errorf("in the bucket: %v", names)
	}
}

// What another owner has removed is not looked for, even if its writer's clock was ahead.
func TestNoGhostsOfClocks(t *testing.T) {
	s := newServer(t)
	one := open(t, s.options())
	defer shut(t, one)
	if err := errors.Join(one.Put(tiertest.Object(1, 1000)), one.Flush(t.Context())); err != nil {
		t.Fatal(err)
	}
	client, ahead := s.client(t), "ffffffffffff-0123456789abcdef"
	for _, name := range s.names(t) { // as if it was made by a clock that is ahead
		to := minio.CopyDestOptions{Bucket: s.bucket, Object: path.Join(path.Dir(name), ahead)}
		if _, err := client.CopyObject(t.Context(), to, minio.CopySrcOptions{Bucket: s.bucket, Object: name}); err != nil {
			t.Fatal(err)
		}
		if err := client.RemoveObject(t.Context(), s.bucket, name, minio.RemoveObjectOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	other := open(t, s.options())
	defer shut(t, other)
	if id := other.newID(); id[:12] != ahead[:12] {
		t.Errorf("%s goes before what is there", id)
	}
	if n := other.Stats().Objects; n != 1 {
		t.Fatalf("%d objects in %v", n, s.names(t))
	}
	if err := client.RemoveObject(t.Context(), s.bucket, other.indexName(ahead), minio.RemoveObjectOptions{}); err != nil {
		t.Fatal(err)
	}
	other.refresh(t.Context())
	if n := other.Stats().Objects; n != 0 {
		t.Errorf("%d objects that are gone", n)
	}
}

// What a clock put that was a day ahead goes first when room is needed, and what is put now
// stays: a clock that is set back makes no bucket useless.
func TestClockSetBack(t *testing.T) {
	s := newServer(t)
	o := s.options()
	before := open(t, o)
	tiertest.Put(t, before, tiertest.Object(1, 1_500_000))
	shut(t, before)
	client := s.client(t)
	made := fmt.Sprintf("%012x", time.Now().Add(24*time.Hour).UnixMilli())
	for _, name := range s.names(t) {
		to := minio.CopyDestOptions{Bucket: s.bucket, Object: path.Join(path.Dir(name), made+"-0123456789abcdef")}
		if _, err := client.CopyObject(t.Context(), to, minio.CopySrcOptions{Bucket: s.bucket, Object: name}); err != nil {
			t.Fatal(err)
		}
		if err := client.RemoveObject(t.Context(), s.bucket, name, minio.RemoveObjectOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	o.Bytes = 4 << 20
	b := open(t, o)
	defer shut(t, b)
	for n := 2; n <= 4; n++ {
		tiertest.Put(t, b, tiertest.Object(n, 1_500_000))
	}
	for n, want := range []bool{1: false, 2: false, 3: true, 4: true} {
		if n > 0 && b.Has([][]byte{tiertest.Object(n, 1_500_000).Key})[0] != want {
			t.Errorf("object %d: it is there: %v", n, !want)
		}
	}
}

func FuzzIndex(f *testing.F) {
	whole, err := appendIndex([]entry{{1, 0, 64}, {2, 64, 128}, {3, 0, 0}}, 192)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole)
	f.Add(whole[:len(whole)-1])
	f.Fuzz(func(t *testing.T, b []byte) {
		entries, size, err := parseIndex(b)
		if err != nil {
			return
		}
		again, err := appendIndex(entries, size)
		if err != nil || !bytes.Equal(again[12:13], []byte{0}) || binary.LittleEndian.Uint32(again[8:]) != binary.LittleEndian.Uint32(b[8:]) || !bytes.Equal(again[16:], b[16:]) {
			t.Fatalf("written again it is another: %v", err)
		}
	})
}
