package node

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"meridian/internal/until"
	"meridian/keep/store"
	"meridian/keep/store/disk"
	"meridian/keep/store/s3"
	"meridian/member/directory/memdir"
	"meridian/move/cuda/cudatest"
	"meridian/see/history"
	"meridian/see/telemetry"
)

func TestStoreNeedsADirectory(t *testing.T) {
	_, err := OpenAgent(t.Context(), AgentOptions{Name: "a", StateDir: t.TempDir(), Listen: "127.0.0.1:0", NoDirectory: true, Store: &Store{}})
	if !errors.Is(err, ErrNoDirectory) {
		t.Fatalf("got %v", err)
	}
}

// lockedBuffer is a log that is read while it is written.
type lockedBuffer struct {
	mu   sync.Mutex // protects text
	text bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// The object cache is pinned once engines lend GPU memory; where it cannot be, a line of
// the log says so, and it is kept in plain memory.
func TestStoreIsPinned(t *testing.T) {
	t.Run("pinned", func(t *testing.T) { storeIsPinned(t, false) })
	t.Run("refused", func(t *testing.T) { storeIsPinned(t, true) })
}

func storeIsPinned(t *testing.T, refused bool) {
	process := cudatest.NewMachine(1, 1<<24).Process()
	process.Unregistered = refused
	t.Cleanup(func() {
		if process.Open() != 0 {
			t.Errorf("%d things of the GPU are open at the end", process.Open())
		}
	})
	said := &lockedBuffer{}
	n := open(t, AgentOptions{Name: "a", StateDir: t.TempDir(), gpus: process, Logger: slog.New(slog.NewTextHandler(said, nil))})
	directory, err := memdir.New(memdir.Options{}).Open(memdir.ClientOptions{})
	if err != nil {
		t.Fatal(err)
	}
	n.Directory = directory
	if err := n.openStore(t.Context(), AgentOptions{Store: &Store{Owner: &store.OwnerOptions{Bytes: 4 << 20}, Candidate: true}}); err != nil {
		t.Fatal(err)
	}
	if process.Open() != 0 {
		t.Error("a GPU is open of which no engine lends anything")
	}
	uuid, err := n.gpus.First()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := n.gpus.Device(uuid); err != nil {
		t.Fatal(err)
	}
	tells := func() bool { return strings.Contains(said.String(), "the object cache is not pinned") }
	until.Well(t, "it is pinned, or told of", func() string {
		if n.gpus.Counts().Pinned == 0 && !tells() {
			return "it said\n" + said.String()
		}
		return ""
	})
	if refused {
		until.True(t, "it is told of", tells)
	}
	if pinned := n.gpus.Counts().Pinned == 1; pinned == refused || tells() != refused {
		t.Errorf("refused %v, pinned %v, told %v", refused, pinned, tells())
	}
}

func TestStoreShowsItsNumbers(t *testing.T) {
	state := t.TempDir()
	n := open(t, AgentOptions{Name: "a", StateDir: state})
	if _, err := history.Get[*store.Status](t.Context(), history.AdminSocket(state, "a"), "/cache"); !errors.Is(err, history.ErrNoRecord) {
		t.Errorf("an agent without a part in the cache tells of it: %v", err)
	}
	directory, err := memdir.New(memdir.Options{}).Open(memdir.ClientOptions{})
	if err != nil {
		t.Fatal(err)
	}
	n.Directory = directory
	if err := n.openStore(t.Context(), AgentOptions{Store: &Store{Owner: &store.OwnerOptions{Bytes: 4 << 20}, Candidate: true}}); err != nil {
		t.Fatal(err)
	}
	until.True(t, "it hears of itself by the directory", func() bool { return len(n.Store.Owners()) > 0 })
	if err := n.Store.Put(t.Context(), "key", []byte("value"), store.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	status, err := history.Get[*store.Status](t.Context(), history.AdminSocket(state, "a"), "/cache")
	if err != nil {
		t.Fatal(err)
	}
	if status.Master != "a" || status.Serving() != 1 || status.Owners[0].Ready != 1 || status.Owners[0].HeapUsed == 0 {
		t.Errorf("asked how the cache stands, the agent says %+v", status)
	}
	numbers, err := telemetry.Open(t.Context(), telemetry.Options{Listen: "127.0.0.1:0", Sources: n.sources()})
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.Get("http://" + numbers.Addr() + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(response.Body)
	if err := errors.Join(err, response.Body.Close(), numbers.Close(t.Context())); err != nil {
		t.Fatal(err)
	}
	if response.StatusCode != http.StatusOK {
		t.Fatalf("status %d: %s", response.StatusCode, text)
	}
	for _, line := range []string{
		`meridian_store_objects\{state="ready"\} 1`, `meridian_store_operations_total\{end="done",op="put"\} 1`, `meridian_store_bytes_total\{direction="in"\} 5`,
		`meridian_store_heap_bytes\{what="used"\} [1-9]`, `meridian_store_owners 1`, `meridian_store_master 1`, `meridian_store_terms_total 1`,
	} {
		if !regexp.MustCompile("(?m)^" + line).Match(text) {
			t.Errorf("no line %s in\n%s", line, text)
		}
	}
}

// An S3 server beyond loopback without TLS is refused, or warned of where that is allowed.
func TestTiersBeyondLoopback(t *testing.T) {
	for endpoint, refused := range map[string]bool{
		"127.0.0.1:9000": false, "localhost:9000": false, "[::1]:9000": false, "localhost": false,
		"10.0.0.7:9000": true, "minio:9000": true, "s3.example.com": true,
	} {
		var log bytes.Buffer
		o := AgentOptions{Logger: slog.New(slog.NewTextHandler(&log, nil)), Store: &Store{S3: &s3.Options{Endpoint: endpoint, Bucket: "cache", Bytes: 1 << 30}}}
		if err := o.checkTiers(); (err != nil) != refused || refused && !strings.Contains(err.Error(), "--insecure") {
			t.Errorf("%s: %v", endpoint, err)
		}
		o.Insecure = true
		if err := o.checkTiers(); err != nil || strings.Contains(log.String(), "level=WARN") != refused {
			t.Errorf("%s, insecure: %v, log %q", endpoint, err, &log)
		}
		o.Store.S3.Secure, o.Insecure = true, false
		if err := o.checkTiers(); err != nil {
			t.Errorf("%s with TLS: %v", endpoint, err)
		}
		o.Store.S3.Bytes = 1
		if err := o.checkTiers(); err == nil {
			t.Errorf("%s: a bucket of one byte is taken", endpoint)
		}
	}
}

// An agent whose disk cannot be opened serves at once, says why, and uses the disk when it
// comes.
func TestABrokenDiskDoesNotKeepTheAgentFromStarting(t *testing.T) {
	dir := t.TempDir()
	inTheWay := filepath.Join(dir, "disk")
	if err := os.WriteFile(inTheWay, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	said := &lockedBuffer{}
	n := open(t, AgentOptions{Name: "a", StateDir: t.TempDir(), Logger: slog.New(slog.NewTextHandler(said, nil))})
	directory, err := memdir.New(memdir.Options{}).Open(memdir.ClientOptions{})
	if err != nil {
		t.Fatal(err)
	}
	n.Directory = directory
	part := &Store{Owner: &store.OwnerOptions{Bytes: 4 << 20}, Candidate: true, Disk: &disk.Options{Dir: inTheWay, Bytes: 64 << 20}}
	if err := n.openStore(t.Context(), AgentOptions{Store: part, Logger: n.logger}); err != nil {
		t.Fatal(err)
	}
	until.True(t, "it hears of itself by the directory", func() bool { return len(n.Store.Owners()) > 0 })
	if err := n.Store.Put(t.Context(), "key", []byte("value"), store.PutOptions{}); err != nil {
		t.Errorf("put beside a disk that cannot be opened: %v", err)
	}
	down := func() bool { _, tiers := n.Store.Cold(); return tiers[0].Down }
	until.True(t, "it says why", func() bool {
		return strings.Contains(said.String(), "cannot be opened") && strings.Contains(said.String(), "not a directory")
	})
	if !down() {
		t.Error("a disk that is not open is not down")
	}
	until.True(t, "its readiness says why", func() bool {
		r := n.readiness()
		return r.Ready && len(r.Tiers) == 1 && !r.Tiers[0].Up && strings.Contains(r.Tiers[0].Problem, "not a directory")
	})
	if err := os.Remove(inTheWay); err != nil {
		t.Fatal(err)
	}
	until.True(t, "the disk is used when it can be", func() bool { return !down() })
	if r := n.readiness(); !r.Tiers[0].Up || r.Tiers[0].Problem != "" {
		t.Errorf("when it is open: %+v", r)
	}
}
