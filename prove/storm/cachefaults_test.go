//go:build real

package storm

import (
	"cmp"
	"errors"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"meridian/internal/require"
	"meridian/internal/until"
)

const (
	bucketName              = "cache"
	bucketKey, bucketSecret = "meridian", "meridian-secret"
)

// bucket is an S3 server in a process of its own, behind a proxy that can be bad.
type bucket struct {
	server *part
	dir    string // of its files
	front  *httptest.Server
	slow   atomic.Bool // every answer takes 5 s
	refuse atomic.Bool // every answer is 503
}

func startBucket(t *testing.T, dir string) *bucket {
	t.Helper()
	program, err := filepath.Abs("../../.peers/versitygw/versitygw")
	if err == nil {
		_, err = os.Stat(program)
	}
	if err != nil {
		require.Skip(t, "versitygw", "no program in .peers/versitygw; run make peers")
	}
	if err := os.MkdirAll(filepath.Join(dir, bucketName), 0o700); err != nil {
		t.Fatal(err)
	}
	behind := freeAddress(t)
	b := &bucket{dir: dir, server: &part{name: "versitygw", owner: -1, args: []string{program, "--port", behind, "--access", bucketKey, "--secret", bucketSecret, "posix", dir}}}
	b.server.start(t)
	t.Cleanup(func() { b.server.kill() })
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(&url.URL{Scheme: "http", Host: behind})
			r.Out.Host = r.In.Host // it is signed
		},
		ErrorHandler: hangUp,
		ErrorLog:     nil,
	}
	b.front = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case b.refuse.Load():
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		case b.slow.Load():
			select {
			case <-time.After(5 * time.Second):
			case <-r.Context().Done():
				return
			}
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(b.front.Close)
	return b
}

func (b *bucket) address() string { return b.front.Listener.Addr().String() }

// hangUp is what a client of a server that is gone sees.
func hangUp(w http.ResponseWriter, _ *http.Request, _ error) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	_ = conn.(*net.TCPConn).SetLinger(0)
	conn.Close()
}

// fault is something that breaks while engines are asked.
type fault struct {
	name string
	// begin breaks it, end mends it; nil: nothing is to be mended.
	begin, end func(t *testing.T, c *cacheCell)
	// bites says by how much what agents count has grown because of it.
	bites func(n counts) float64
	// quiet has it begin while no client asks for anything.
	quiet bool
	// again has it begin every 3 s until it bites: what it meets may be of no use to any request.
	again bool
	// lasts is how long it stays at least; 0: 3 s.
	lasts time.Duration
}

func troubles(tier string, what ...string) func(counts) float64 {
	return func(n counts) (sum float64) {
		for _, w := range what {
			sum += n.sum("meridian_store_tier_troubles_total", `tier="`+tier+`"`, `what="`+w+`"`)
		}
		return sum
	}
}

func found(n counts) float64 {
	return n.sum("meridian_cache_tokens_total", `result="found"`)
}

func fromTier(tier string) func(counts) float64 {
	return func(n counts) float64 {
		return n.sum("meridian_store_tier_operations_total", `tier="`+tier+`"`, `operation="get"`, `result="hit"`)
	}
}

// faults are what the cell lives through, one after the other. Of an owner that was killed
// what is on its disk is found again; its memory is empty.
var faults = []fault{
	{name: "nothing", begin: func(*testing.T, *cacheCell) {}, bites: fromTier("disk")},
	{name: "nothing once more", begin: func(*testing.T, *cacheCell) {}, bites: fromTier("s3")},
	{name: "an owner is killed", begin: func(t *testing.T, c *cacheCell) { c.kill(t, 0) }, bites: fromTier("disk")},
	{name: "the master is killed", begin: func(t *testing.T, c *cacheCell) { c.kill(t, c.master()) }, bites: found},
	{
		name: "S3 takes 5 s", begin: func(_ *testing.T, c *cacheCell) { c.bucket.slow.Store(true) }, end: func(_ *testing.T, c *cacheCell) { c.bucket.slow.Store(false) },
		bites: troubles("s3", "slow", "failed"), lasts: 8 * time.Second,
	},
	{
		name: "S3 refuses", begin: func(_ *testing.T, c *cacheCell) { c.bucket.refuse.Store(true) }, end: func(_ *testing.T, c *cacheCell) { c.bucket.refuse.Store(false) },
		bites: troubles("s3", "failed"),
	},
	{
		name: "the S3 server is killed", begin: func(_ *testing.T, c *cacheCell) { c.bucket.server.kill() }, end: func(t *testing.T, c *cacheCell) { c.bucket.server.start(t) },
		bites: troubles("s3", "failed"),
	},
	{
		// A segment that is begun has its room. So the owner starts again, and needs a new one.
		name: "the disk is full, and its owner is killed", begin: fillDisk, end: func(t *testing.T, c *cacheCell) { remove(t, c.ballast()) },
		bites: func(n counts) float64 {
			return n.sum("meridian_store_tier_operations_total", `tier="disk"`, `operation="put"`, `result="failed"`)
		},
	},
	{
		// Where a segment is appended to, its lost bytes are zeros, and read as broken.
		name: "the disk cannot be read", again: true, begin: cutSegments, bites: troubles("disk", "failed", "broken"),
	},
	{
		name: "bytes change in the bucket", again: true, begin: func(t *testing.T, c *cacheCell) {
			flip(t, segments(t, c.bucket.dir, bucketName, "meridian", "segments", "*"), 0)
		},
		bites: troubles("s3", "broken"),
	},
	{
		name: "bytes change on disk", again: true, begin: func(t *testing.T, c *cacheCell) { flip(t, segments(t, c.disk, "*.segment"), 0) },
		bites: troubles("disk", "broken"),
	},
	{
		// What changes after an owner has summed it and before it is copied is not noticed.
		name: "bytes change in memory", quiet: true, begin: flipMemory,
		bites: func(n counts) float64 { return n.sum("meridian_store_torn_total") },
	},
	{name: "nothing any more", begin: func(*testing.T, *cacheCell) {}, bites: func(n counts) float64 { return min(fromTier("disk")(n), fromTier("s3")(n)) }},
}

func (c *cacheCell) ballast() string { return filepath.Join(c.disk, "ballast") }

func fillDisk(t *testing.T, c *cacheCell) {
	f, err := os.Create(c.ballast())
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for err == nil {
		_, err = f.Write(make([]byte, 1<<20))
	}
	c.kill(t, 0)
	_, _ = io.Copy(f, zeros{}) // the room that the dead one had reserved, and did not use
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { return len(b), nil }

func remove(t *testing.T, path string) {
	if err := os.Remove(path); err != nil {
		t.Error(err)
	}
}

func segments(t *testing.T, path ...string) []string {
	names, err := filepath.Glob(filepath.Join(path...))
	if err != nil || len(names) == 0 {
		t.Errorf("no segments in %s: %v", filepath.Join(path...), err)
	}
	return names
}

// flipEvery is how far apart bytes are that change: less than what one object takes.
const flipEvery = 40_001

// flip changes a bit in bytes all over files, from an offset on.
func flip(t *testing.T, names []string, from int64) {
	for _, name := range names {
		f, err := os.OpenFile(name, os.O_RDWR, 0)
		if errors.Is(err, os.ErrNotExist) {
			continue // it made room
		}
		if err != nil {
			t.Error(err)
			continue
		}
		one := make([]byte, 1)
		for at := from + 10_000 + rand.Int64N(10_000); err == nil; at += flipEvery {
			if _, err = f.ReadAt(one, at); err == nil {
				one[0] ^= 16
				_, err = f.WriteAt(one, at)
			}
		}
		if !errors.Is(err, io.EOF) {
			t.Error(err)
		}
		f.Close()
	}
}

// cutSegments takes the bytes of all records away, so that every read of one fails.
func cutSegments(t *testing.T, c *cacheCell) {
	for _, name := range segments(t, c.disk, "*.segment") {
		if err := os.Truncate(name, 0); err != nil {
			t.Error(err)
		}
	}
}

// flipMemory changes bytes of the objects of both owners, where their arenas lie.
func flipMemory(t *testing.T, c *cacheCell) {
	for _, agent := range c.agents[:2] {
		folder := filepath.Join("/proc", strconv.Itoa(agent.process.Process.Pid), "fd")
		files, err := os.ReadDir(folder)
		if err != nil {
			t.Fatal(err)
		}
		flipped := false
		for _, f := range files {
			path := filepath.Join(folder, f.Name())
			if to, err := os.Readlink(path); err == nil && strings.HasPrefix(to, "/memfd:meridian-store") {
				flip(t, []string{path}, 2<<20) // headers and the ring are before that
				flipped = true
			}
		}
		if !flipped {
			t.Errorf("the arena of %s is not among its files", agent.name)
		}
	}
}

// Engines of different splits and block sizes keep and find prefixes of one another, in
// little memory, on disk and in S3, while one thing after the other breaks: every answer is
// that of an engine alone, and comes in time; each fault bites; in the end nothing is held.
func TestRealPrefixesOutliveFaults(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	c := startCacheCell(t, seed)
	until := time.Now()
	if minutes, err := strconv.ParseFloat(os.Getenv("MERIDIAN_SOAK_MINUTES"), 64); err == nil {
		until = until.Add(time.Duration(minutes * float64(time.Minute)))
	}
	c.know(t, 120)
	lived := 0
	for round := 0; round == 0 || !t.Failed() && time.Now().Before(until); round++ {
		order := c.random.Perm(len(faults))
		for i := range faults {
			if round == 0 {
				order[i] = i
			}
			f := &faults[order[i]]
			t.Run(f.name, func(t *testing.T) {
				lived++
				c.liveThrough(t, f)
			})
		}
	}
	if t.Failed() {
		return
	}
	await(t, "nothing is held", c.unsettled)
	if lived >= len(faults) { // and not only those that were asked for
		c.assertAllWasDone(t)
	}
	await(t, "all memory is free", func() error { return c.empty(t.Context()) })
	for _, p := range append(c.agents, c.engines...) {
		if p.panicked() {
			t.Errorf("%s has panicked", p.name)
		}
	}
}

// assertAllWasDone asserts that every part of the cache was needed.
func (c *cacheCell) assertAllWasDone(t *testing.T) {
	t.Helper()
	n := c.counted()
	for what, count := range map[string]float64{
		"evictions": n.sum("meridian_store_evictions_total"), "promotions": n.sum("meridian_store_promoted_total", `result="done"`),
		"failed promotions": n.sum("meridian_store_promoted_total", `result="failed"`), "tokens found": found(n), "hits on disk": fromTier("disk")(n), "hits in S3": fromTier("s3")(n),
	} {
		if t.Logf("%10.0f %s", count, what); count == 0 {
			t.Errorf("there were no %s: the test tests too little", what)
		}
	}
	for i := range c.clients {
		s, err := c.engineStats(i)
		if t.Logf("the engine at %s: %+v", c.agents[i].name, s.Counters); err != nil || s.Counters.Found == 0 || s.Counters.Kept == 0 {
			t.Errorf("it found or kept nothing: %+v, %v", s, err)
		}
	}
}

// works is whether an engine has requests.
func (c *cacheCell) works() bool {
	for i := range c.clients {
		if s, err := c.engineStats(i); err == nil && s.Running+s.Fetching > 0 {
			return true
		}
	}
	return false
}

// liveThrough has questions asked, old ones and new ones, while something breaks, until
// that has shown.
func (c *cacheCell) liveThrough(t *testing.T, f *fault) {
	t.Helper()
	c.know(t, 45)
	if f.quiet {
		await(t, "nothing is held", c.unsettled)
	}
	began, before := time.Now(), f.bites(c.counted())
	struckAt := began
	var bitten float64
	struck := make(chan struct{})
	go func() {
		defer close(struck)
		if !f.quiet {
			until.Within(patience).True(t, "there are requests under way", c.works)
			f.begin(t, c)
		}
	}()
	if f.quiet {
		f.begin(t, c)
	}
	c.ask(t, cmp.Or(f.lasts, 3*time.Second), func() bool {
		select {
		case <-struck:
			bitten = f.bites(c.counted()) - before
			if f.again && bitten <= 0 && time.Since(struckAt) > 3*time.Second {
				struckAt = time.Now()
				f.begin(t, c)
			}
			return bitten > 0 || t.Failed()
		default:
			return false
		}
	})
	<-struck
	if f.end != nil {
		f.end(t, c)
	}
	t.Logf("%-45s %5.1f s, bit %.0f times", f.name, time.Since(began).Seconds(), bitten)
	if bitten <= 0 {
		n := c.counted()
		for _, series := range slices.Sorted(maps.Keys(n)) {
			if strings.HasPrefix(series, "meridian_cache") || strings.HasPrefix(series, "meridian_store") {
				t.Logf("%10.0f %s", n[series], series)
			}
		}
		t.Errorf("%s: it showed nowhere", f.name)
	}
}
