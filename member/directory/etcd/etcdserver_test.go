package etcd_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"meridian/internal/until"
	"meridian/member/directory"
	"meridian/member/directory/directorytest"
	"meridian/member/directory/etcd"
	"meridian/member/directory/etcd/embedded"
)

// The test binary plays the other processes too, and is told so by these.
const (
	serverDirectory = "MERIDIAN_TEST_DIRECTORY_SERVER"
	ownerOfALease   = "MERIDIAN_TEST_DIRECTORY_OWNER" // its time, and the endpoint
)

const (
	// ttl is a lease that is kept although the machine stands still for a few
	// seconds.
	ttl = 10 * time.Second
	// eventually is when a test gives up. Only a failure takes so long.
	eventually = time.Minute
)

func TestMain(m *testing.M) {
	var err error
	switch dir, lease := os.Getenv(serverDirectory), os.Getenv(ownerOfALease); {
	case dir != "":
		err = serve(dir)
	case lease != "":
		ttl, endpoint, _ := strings.Cut(lease, " ")
		err = own(ttl, endpoint)
	default:
		directorytest.Main(m)
		return
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// serve is a directory server, until it is killed.
func serve(dir string) error {
	s, err := embedded.Open(context.Background(), embedded.Options{Dir: dir})
	if err != nil {
		return err
	}
	fmt.Println("ready")
	return <-s.Failed()
}

// own is the owner of a record, until it is killed; when its input ends it
// leaves as it should.
func own(ttl, endpoint string) error {
	ctx := context.Background()
	lasts, err := time.ParseDuration(ttl)
	if err != nil {
		return err
	}
	d, err := etcd.Open(ctx, etcd.Options{Endpoints: []string{endpoint}, CallTimeout: eventually})
	if err != nil {
		return err
	}
	lease, err := d.Grant(ctx, directory.LeaseOptions{TTL: lasts})
	if err != nil {
		return err
	}
	if _, err := d.Create(ctx, directory.Entry{Key: "agents/mortal", Lease: lease}); err != nil {
		return err
	}
	fmt.Println("ready")
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return err
	}
	return d.Close(ctx)
}

// process is another process that is up and running.
type process struct {
	*exec.Cmd
	in io.WriteCloser
}

func start(t *testing.T, environment, value string) *process {
	t.Helper()
	p := &process{Cmd: exec.Command(os.Args[0])}
	p.Env = append(os.Environ(), environment+"="+value)
	p.Stderr = os.Stderr
	var err error
	if p.in, err = p.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := p.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.kill)
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "ready\n" {
		t.Fatalf("the process said %q, %v", line, err)
	}
	return p
}

// kill is kill -9, and waits until there is nothing left.
func (p *process) kill() {
	_ = p.Process.Kill() // it may be gone already
	_ = p.Wait()
}

func client(t *testing.T, endpoint string) directory.Directory {
	t.Helper()
	d := open(t, endpoint)
	t.Cleanup(func() { _ = d.Close(context.Background()) }) // the server may be gone already
	return d
}

// fixture is a server process, an owner with one record, and a watcher.
type fixture struct {
	dir     string
	server  *process
	owner   directory.Directory
	lease   *directory.Lease
	watcher *directorytest.Observer
}

func setStage(t *testing.T) *fixture {
	t.Helper()
	s := &fixture{dir: stateDir(t)}
	s.server = start(t, serverDirectory, s.dir)
	s.owner = client(t, embedded.Endpoint(s.dir))
	var err error
	if s.lease, err = s.owner.Grant(t.Context(), directory.LeaseOptions{TTL: ttl}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.owner.Create(t.Context(), directory.Entry{Key: "agents/a", Value: []byte("incarnation 1"), Lease: s.lease}); err != nil {
		t.Fatal(err)
	}
	s.watcher = directorytest.Observe(t, client(t, embedded.Endpoint(s.dir)), "agents/")
	until.True(t, "seen", s.known)
	return s
}

func (s *fixture) restart(t *testing.T) { s.server = start(t, serverDirectory, s.dir) }

func (s *fixture) known() bool {
	return s.watcher.Known() && s.watcher.Sees("agents/a", "incarnation 1")
}

func TestServerKilledAndBackInTime(t *testing.T) {
	t.Parallel()
	s := setStage(t)
	id := s.lease.ID()
	for range 2 {
		s.server.kill()
		s.restart(t)
		for range 2 {
			before := s.owner.Metrics().Renewals
			until.True(t, "renewed", func() bool { return s.owner.Metrics().Renewals > before })
		}
	}
	if s.lease.ID() != id || s.lease.State() != directory.Held {
		t.Errorf("the lease went from %d to %d and is %v", id, s.lease.ID(), s.lease.State())
	}
	if heard := s.watcher.Heard(directory.Put, directory.Delete); len(heard) != 0 {
		t.Errorf("the record flapped: %+v", heard)
	}
	if _, err := s.owner.Put(t.Context(), directory.Entry{Key: "agents/b", Value: []byte("new")}); err != nil {
		t.Fatal(err)
	}
	until.True(t, "resumed", func() bool { return s.watcher.Sees("agents/b", "new") })
}

// While the server is away, watchers keep what they know. When it is back the
// living have their records as before, and the dead lose theirs.
func TestServerKilledAndAwayForLong(t *testing.T) {
	t.Parallel()
	s := setStage(t)
	network := startProxy(t, strings.TrimPrefix(embedded.Endpoint(s.dir), "unix://"))
	mortal := client(t, network.endpoint())
	lease, err := mortal.Grant(t.Context(), directory.LeaseOptions{TTL: ttl})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := mortal.Create(t.Context(), directory.Entry{Key: "agents/mortal", Lease: lease}); err != nil {
		t.Fatal(err)
	}
	until.True(t, "seen", func() bool { return s.watcher.Sees("agents/mortal", "") })
	s.server.kill()
	network.set(directorytest.Refused) // dies while no watcher can know
	until.True(t, "unknown", func() bool { return !s.watcher.Known() })
	until.True(t, "doubtful", func() bool { return s.lease.State() == directory.Doubtful && lease.State() == directory.Doubtful })
	time.Sleep(s.lease.TTL() / 2)
	if !s.watcher.Sees("agents/a", "incarnation 1") || !s.watcher.Sees("agents/mortal", "") || s.lease.State() != directory.Doubtful {
		t.Errorf("during the outage the watcher believes in %+v and the lease is %v", s.watcher.Records(), s.lease.State())
	}
	s.restart(t)
	until.True(t, "known again", s.known)
	until.True(t, "seen dead", func() bool { return !s.watcher.Sees("agents/mortal", "") })
	until.True(t, "held", func() bool { return s.lease.State() == directory.Held })
	for _, e := range s.watcher.Heard(directory.Delete) {
		if e.Record.Key == "agents/a" {
			t.Errorf("the living were buried: %+v", e)
		}
	}
}

func TestServerKilledAndItsDataLost(t *testing.T) {
	t.Parallel()
	s := setStage(t)
	id := s.lease.ID()
	s.server.kill()
	if err := os.RemoveAll(filepath.Join(s.dir, "directory")); err != nil {
		t.Fatal(err)
	}
	time.Sleep(s.lease.TTL())
	s.restart(t)
	until.True(t, "registered again", func() bool { return s.lease.ID() != id && s.lease.State() == directory.Held })
	until.True(t, "known again", s.known)
}

func TestOwnerKilledAndOwnerLeaving(t *testing.T) {
	t.Parallel()
	s := setStage(t)
	seen := func() bool { return s.watcher.Sees("agents/mortal", "") }
	gone := func() bool { return !seen() }

	owner := start(t, ownerOfALease, ttl.String()+" "+embedded.Endpoint(s.dir))
	until.True(t, "seen", seen)
	owner.kill()
	until.True(t, "seen dead", gone)

	owner = start(t, ownerOfALease, "10m "+embedded.Endpoint(s.dir)) // too long to be waited for
	until.True(t, "seen", seen)
	owner.in.Close()
	until.True(t, "seen leaving", gone)
}
