package s3

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"meridian/keep/store/tier"
	"meridian/keep/store/tier/tiertest"
)

// A list without end is given up, and takes no memory that grows until its time is over.
func TestEndlessList(t *testing.T) {
	var sent atomic.Int64
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		some := []byte(strings.Repeat("<Contents><Key>a/cell/indexes/x</Key></Contents>", 1000))
		_, _ = w.Write([]byte("<ListBucketResult>"))
		for {
			n, err := w.Write(some)
			if sent.Add(int64(n)); err != nil {
				return
			}
		}
	}))
	defer front.Close()
	o := (&server{address: front.Listener.Addr().String(), bucket: "endless"}).options()
	o.Timeout = time.Minute // it is the bytes that end it, however slow the machine is
	b := open(t, o)
	defer shut(t, b)
	front.CloseClientConnections()
	if n := sent.Load(); n > 16<<20 {
		t.Errorf("%d bytes of a list were taken", n)
	}
	if stats := b.Stats(); stats.Failed == 0 || stats.Slow != 0 {
		t.Errorf("stats: %+v", stats)
	}
}

// segmentsOf puts objects, each in a segment of its own.
func segmentsOf(t *testing.T, o Options, objects int, bytes int) {
	t.Helper()
	b := open(t, o)
	defer shut(t, b)
	for n := range objects {
		tiertest.Put(t, b, tiertest.Object(n, bytes))
	}
}

// An index that does not come keeps none of those after it from being found.
func TestOneIndexHangs(t *testing.T) {
	s := newServer(t)
	o := s.options()
	const objects = 2 * loadTogether
	segmentsOf(t, o, objects, 1000)
	var hanging atomic.Pointer[string]
	hang := func(_ http.ResponseWriter, r *http.Request) bool {
		if !strings.Contains(r.URL.Path, "/indexes/") || r.Method != http.MethodGet {
			return false
		}
		path := r.URL.Path
		hanging.CompareAndSwap(nil, &path)
		if *hanging.Load() == path {
			<-r.Context().Done()
		}
		return false
	}
	s.trouble.Store(&hang)
	o.Timeout = 200 * time.Millisecond
	b := open(t, o)
	defer shut(t, b)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	b.refresh(ctx)
	if stats := b.Stats(); stats.Objects != objects-1 || ctx.Err() != nil {
		t.Errorf("%d of %d objects are found: %v", stats.Objects, objects, ctx.Err())
	}
}

// What a bucket has beyond the bound is never held at once.
func TestMoreThanTheBound(t *testing.T) {
	s := newServer(t)
	o := s.options()
	segmentsOf(t, o, 4*loadTogether, 500_000)
	var most atomic.Uint64
	var small atomic.Pointer[Bucket]
	watch := func(_ http.ResponseWriter, _ *http.Request) bool {
		if b := small.Load(); b != nil {
			most.Store(max(most.Load(), b.Stats().Bytes))
		}
		return false
	}
	o.Bytes, o.SegmentBytes = 1<<20, 1<<19
	hidden := func(w http.ResponseWriter, _ *http.Request) bool {
		w.WriteHeader(http.StatusForbidden)
		return true
	}
	s.trouble.Store(&hidden)
	b := open(t, o)
	defer shut(t, b)
	small.Store(b)
	s.trouble.Store(&watch)
	b.refresh(t.Context())
	if bound := o.Bytes + loadTogether*600_000; b.Stats().Objects == 0 || most.Load() > bound {
		t.Errorf("%d bytes at once, of %d; %+v", most.Load(), bound, b.Stats())
	}
}

// An index whose records lie in one another is none: a small segment could have as many as
// an index has room for.
func TestRecordsInOneAnother(t *testing.T) {
	for name, entries := range map[string][]entry{
		"Twice": {{1, 0, 64}, {2, 0, 64}},
		"Odd":   {{1, 0, 1}, {2, 1, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			b, err := appendIndex(entries, 64)
			if err != nil {
				t.Fatal(err)
			}
			if _, _, err := parseIndex(b); !errors.Is(err, errIndex) {
				t.Error(err)
			}
		})
	}
}

// A server that answers with bytes from elsewhere is found out, and the object can be put anew.
func TestOtherRange(t *testing.T) {
	s := newServer(t)
	b := open(t, s.options())
	defer shut(t, b)
	one, other := tiertest.Object(1, 1000), tiertest.Object(2, 1000)
	if err := errors.Join(b.Put(one), b.Put(other), b.Flush(t.Context())); err != nil {
		t.Fatal(err)
	}
	var first string
	same := func(r *http.Request, body []byte) []byte {
		if !strings.Contains(r.URL.Path, "/segments/") {
			return body
		}
		first = cmp.Or(first, string(body))
		return []byte(first)
	}
	s.change.Store(&same)
	if _, err := tiertest.Get(t.Context(), b, one.Key); err != nil {
		t.Fatal(err)
	}
	if _, err := tiertest.Get(t.Context(), b, other.Key); !errors.Is(err, tier.ErrMissing) {
		t.Errorf("get: %v", err)
	}
	if stats := b.Stats(); stats.Broken != 1 || b.Has([][]byte{other.Key})[0] {
		t.Errorf("it is said to be there: %+v", stats)
	}
}

// What waits for bytes to be affordable spends no requests, and is not counted as not made.
func TestWaitingSpendsNothing(t *testing.T) {
	s := newServer(t)
	segmentsOf(t, s.options(), 1, 1000)
	o := s.options()
	o.RequestsPerSecond, o.BytesPerSecond = 10, 200_000
	b := open(t, o)
	defer shut(t, b)
	if err := b.Put(tiertest.Object(1, 190_000)); err != nil {
		t.Fatal(err)
	}
	b.mu.Lock()
	b.traffic.Spend(b.now(), 199_000) // the next second's are there when it is over
	b.mu.Unlock()
	if err := b.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if stats := b.Stats(); stats.OverBudget != 0 || stats.PutsFailed != 0 {
		t.Errorf("stats: %+v", stats)
	}
}
