package embedded

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"meridian/member/directory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// stateDir is short enough for a socket's path, unlike a test's own.
func stateDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "meta")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func start(t *testing.T, o Options) *Server {
	t.Helper()
	s, err := Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, s) })
	return s
}

func stop(t *testing.T, s *Server) {
	t.Helper()
	if err := s.Close(context.Background()); err != nil {
		t.Error(err)
	}
	select {
	case err := <-s.Failed():
		t.Errorf("it failed by itself: %v", err)
	default:
	}
}

func dial(t *testing.T, endpoint string) *clientv3.Client {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func TestRestartKeepsEverything(t *testing.T) {
	dir := filepath.Join(stateDir(t), "made", "here")
	s := start(t, Options{Dir: dir})
	c := dial(t, s.Endpoint())
	lease, err := c.Grant(t.Context(), 60)
	if err != nil {
		t.Fatal(err)
	}
	put, err := c.Put(t.Context(), "a", "1", clientv3.WithLease(lease.ID))
	if err != nil {
		t.Fatal(err)
	}
	stop(t, s)
	s = start(t, Options{Dir: dir})
	got, err := dial(t, s.Endpoint()).Get(t.Context(), "a")
	if err != nil || len(got.Kvs) != 1 || got.Kvs[0].Lease != int64(lease.ID) || got.Kvs[0].ModRevision != put.Header.Revision {
		t.Errorf("after the restart: %+v, %v", got, err)
	}
	if got.Header.ClusterId != put.Header.ClusterId {
		t.Errorf("the same data became another directory")
	}
	left, err := c.TimeToLive(t.Context(), lease.ID)
	if err != nil || left.GrantedTTL != 60 || left.TTL <= 0 {
		t.Errorf("the lease has %+v, %v left", left, err)
	}
	stop(t, s)
	if err := os.RemoveAll(filepath.Join(dir, memberName)); err != nil {
		t.Fatal(err)
	}
	s = start(t, Options{Dir: dir})
	if got, err := dial(t, s.Endpoint()).Get(t.Context(), "a"); err != nil || got.Header.ClusterId == put.Header.ClusterId {
		t.Errorf("other data passed for the same directory: %+v, %v", got, err)
	}
}

func TestOneServerPerStateDirectory(t *testing.T) {
	dir := stateDir(t)
	s := start(t, Options{Dir: dir})
	_, err := Open(t.Context(), Options{Dir: dir, Listen: "http://127.0.0.1:0"})
	if !errors.Is(err, ErrInUse) || !strings.Contains(err.Error(), "process "+strconv.Itoa(os.Getpid())) {
		t.Errorf("a second server: %v", err)
	}
	if _, err := dial(t, s.Endpoint()).Get(t.Context(), "a"); err != nil {
		t.Errorf("it disturbed the first: %v", err)
	}
	stop(t, s)
	start(t, Options{Dir: dir})
}

func TestLoopback(t *testing.T) {
	s := start(t, Options{Dir: stateDir(t), Listen: "http://127.0.0.1:0"})
	if strings.HasSuffix(s.Endpoint(), ":0") {
		t.Errorf("the endpoint is %s", s.Endpoint())
	}
	if _, err := dial(t, s.Endpoint()).Put(t.Context(), "a", "1"); err != nil {
		t.Error(err)
	}
}

func TestBadOptionsAreRefused(t *testing.T) {
	open := stateDir(t)
	if err := os.Chmod(open, 0o750); err != nil {
		t.Fatal(err)
	}
	for name, o := range map[string]Options{
		"no directory":   {},
		"open directory": {Dir: open},
		"long path":      {Dir: filepath.Join(stateDir(t), strings.Repeat("d", 120))},
		"every address":  {Dir: stateDir(t), Listen: "http://0.0.0.0:2379"},
		"another host":   {Dir: stateDir(t), Listen: "http://192.0.2.1:2379"},
		"a host's name":  {Dir: stateDir(t), Listen: "http://localhost:2379"},
		"no port":        {Dir: stateDir(t), Listen: "http://127.0.0.1"},
		"relative path":  {Dir: stateDir(t), Listen: "unix://here"},
		"not a URL":      {Dir: stateDir(t), Listen: "http://[::1"},
	} {
		s, err := Open(t.Context(), o)
		var refused *directory.Error
		if !errors.Is(err, directory.ErrInvalid) || !errors.As(err, &refused) || refused.Hint == "" {
			t.Errorf("%s: %v", name, err)
		}
		if s != nil {
			stop(t, s)
		}
	}
}

func TestOpenGivesUp(t *testing.T) {
	dir := stateDir(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Open(ctx, Options{Dir: dir}); !errors.Is(err, context.Canceled) {
		t.Errorf("opened with an ended context: %v", err)
	}
	start(t, Options{Dir: dir}) // and nothing is held
}

// A healthy life, from the first start to a close with a watch open, is not
// worth a line to an operator.
func TestHealthIsQuiet(t *testing.T) {
	var log bytes.Buffer
	dir := stateDir(t)
	for range 2 {
		s, err := Open(t.Context(), Options{Dir: dir, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		c := dial(t, s.Endpoint())
		if _, err := c.Put(t.Context(), "a", "1"); err != nil {
			t.Fatal(err)
		}
		watch := c.Watch(t.Context(), "a", clientv3.WithCreatedNotify())
		<-watch
		began := time.Now()
		stop(t, s)
		if took := time.Since(began); took > closeGrace+time.Minute {
			t.Errorf("closing with a watch open took %v", took)
		}
	}
	for line := range strings.Lines(log.String()) {
		if !slices.ContainsFunc(slowness, func(words string) bool { return strings.Contains(line, words) }) {
			t.Errorf("it said: %s", line)
		}
	}
}

// slowness is what etcd says of a machine that stands still, and may.
var slowness = []string{"took too long", "slow fdatasync", "failed to send out heartbeat on time", "request timed out", "request stats"}

// A process that is just being started has all files of this one, and so the
// lock's, until it runs its own program.
func TestAReleasedLockIsFree(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	held, err := acquire(path)
	if err != nil {
		t.Fatal(err)
	}
	child := exec.Command("cat")
	child.ExtraFiles = []*os.File{held.file}
	in, err := child.StdinPipe()
	if err == nil {
		err = child.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = errors.Join(in.Close(), child.Wait()) }()
	if err := held.release(); err != nil {
		t.Fatal(err)
	}
	again, err := acquire(path)
	if err != nil {
		t.Fatalf("released, and held still: %v", err)
	}
	if err := again.release(); err != nil {
		t.Error(err)
	}
}

func TestLogsReachTheirLogger(t *testing.T) {
	var log bytes.Buffer
	f := newFilter(slog.New(slog.NewTextHandler(&log, nil)))
	logger := f.zap().With(zap.String("member", "directory"))
	logger.Info("progress")
	logger.Warn(advice[0])
	logger.Warn("disk is slow", zap.Duration("took", time.Second))
	logger.Error("disk is broken")
	f.closing.Store(true)
	logger.Error("mux: server closed")
	text := log.String()
	for _, want := range []string{`level=WARN msg="etcd: disk is slow" member=directory took=1s`, `level=ERROR msg="etcd: disk is broken"`} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	if strings.Count(text, "\n") != 2 {
		t.Errorf("more than two lines:\n%s", text)
	}
}

// Much more is written than the quota holds. The compactor makes room, also
// after the alarm that makes etcd refuse every write.
func TestHousekeeperMakesRoom(t *testing.T) {
	s := start(t, Options{Dir: stateDir(t), QuotaBytes: 8 << 20})
	s.keeper.stop() // it is told when, below
	c := dial(t, s.Endpoint())
	value := strings.Repeat("v", directory.MaxValueBytes)
	refused := 0
	for range 3 {
		for i := range 200 {
			if _, err := c.Put(t.Context(), "a"+strconv.Itoa(i%8), value); err != nil {
				refused++
				break
			}
		}
		if err := s.keeper.tidy(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if refused == 0 {
		t.Error("the quota was never reached: this test proves nothing")
	}
	if size := s.etcd.Server.Backend().Size(); size > 8<<20 {
		t.Errorf("%d bytes are still taken", size)
	}
	if got, err := c.Get(t.Context(), "a", clientv3.WithPrefix()); err != nil || len(got.Kvs) != 8 {
		t.Errorf("what lives was lost: %v", err)
	}
	if _, err := c.Put(t.Context(), "b", "1"); err != nil {
		t.Errorf("writes are still refused: %v", err)
	}
}

func TestHousekeeperKeepsSomeHistory(t *testing.T) {
	s := start(t, Options{Dir: stateDir(t)})
	s.keeper.stop() // it is told when, below
	c := dial(t, s.Endpoint())
	var writers sync.WaitGroup
	for range 10 {
		writers.Go(func() {
			for range keptRevisions/5 + 1 {
				if _, err := c.Put(t.Context(), "a", "1"); err != nil {
					t.Error(err)
				}
			}
		})
	}
	writers.Wait()
	last := s.etcd.Server.KV().Rev()
	if err := s.keeper.tidy(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Get(t.Context(), "a", clientv3.WithRev(last-keptRevisions)); err != nil {
		t.Errorf("what watchers resume from is gone: %v", err)
	}
	if _, err := c.Get(t.Context(), "a", clientv3.WithRev(last-keptRevisions-1)); err == nil {
		t.Error("old history was kept")
	}
}
