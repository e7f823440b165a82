package chaos_test

import (
	"bufio"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"meridian/internal/until"
	"meridian/member/directory"
	"meridian/member/directory/directorytest"
	"meridian/member/directory/etcd"
	"meridian/member/directory/etcd/embedded"
	"meridian/move/agent"
	"meridian/move/fabric"
	"meridian/prove/chaos"
	"meridian/prove/faultproxy"
)

// startDirectory runs `meridian directory`, as a user would.
func startDirectory(t *testing.T, dir string) *chaos.Process {
	t.Helper()
	out, childOut, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer childOut.Close()
	t.Cleanup(func() { out.Close() })
	p := chaos.StartProcess(t, chaos.ProcessOptions{
		Path: chaos.Binary(t), Args: []string{"directory", "--state", dir}, Stdout: childOut,
		Environment: []string{"HOME=" + dir, "XDG_CONFIG_HOME=" + dir},
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || !strings.HasPrefix(line, "directory ready") {
		t.Fatalf("the directory said %q, %v\n%s", line, err, p.Said())
	}
	return p
}

// An outage of the directory means unknown, not dead: what runs goes on, what
// is connected posts on, records stay under their leases, and watchers resume.
func TestDirectoryAway(t *testing.T) { directoryAway(t, 3*time.Second, 12<<20) }

// directoryAway lets a transfer of so many bytes last for longer than the outage.
func directoryAway(t *testing.T, away time.Duration, bytes uint64) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "chaos") // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	server := startDirectory(t, dir)
	s := directedStage(t, dir, arenaBytes+bytes)
	watcher := watchAgents(t, dir)
	until.Within(soon).True(t, "both agents in the directory", func() bool { return len(watcher.Records()) == 2 })
	before := watcher.Records()

	// One transfer lasts from before the outage until after it.
	s.served()
	lasting := (away + 2*time.Second).Seconds()
	s.proxy.Set(faultproxy.Back, faultproxy.Fault{BytesPerSecond: int64(float64(bytes) / lasting)})
	posted := s.poster.Post(chaos.Post{Peer: "owner", Op: fabric.Read, Offset: arenaBytes, Length: bytes, Deadline: 10*away + soon})
	server.Kill()
	start := time.Now()
	until.Within(soon).True(t, "the watcher in doubt", func() bool { return !watcher.Known() })
	for time.Since(start) < away {
		// New ones begin meanwhile. Those that go the other way round need not
		// wait behind the slow one.
		fresh := chaos.Post{Peer: "owner", Op: fabric.Write, Offset: spareOffset, Length: spareBytes, Deadline: soon}
		if out := s.poster.Post(fresh); out.Err != nil {
			t.Error(out.Err)
		}
		fresh.Peer = "poster"
		s.done(s.owner.Transfer(fresh))
		time.Sleep(away / 10)
	}
	startDirectory(t, dir)
	until.Within(soon).True(t, "the watcher sure again", watcher.Known)
	s.done(s.poster.Await(posted))
	s.heal()

	time.Sleep(2 * directory.DefaultTTL / 3) // a renewal or two: a lease that would flap does so now
	for _, e := range watcher.Heard(directory.Delete) {
		t.Errorf("%s vanished from the directory", e.Record.Key)
	}
	sameAgents(t, before, watcher.Records())
	s.poster.Find("owner")
	s.poster.TakeGrants(s.owner, arenaBytes)
	s.served()
	s.poster.Leave() // while there is a directory to leave
	s.owner.Leave()
}

// directedStage is a stage whose agents publish themselves.
func directedStage(t *testing.T, dir string, size uint64) *fixture {
	t.Helper()
	proxy, err := faultproxy.Open(t.Context(), faultproxy.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { proxy.Close() })
	s := &fixture{t: t, dir: filepath.Join(dir, "cell"), proxy: proxy, fresh: 100}
	start := func(name, advertise string, seed uint64) *chaos.AgentProcess {
		return chaos.Start(t, chaos.Setup{
			Name: name, StateDir: s.dir, Directory: embedded.Endpoint(dir), Advertise: advertise,
			ArenaBytes: size, Seed: seed,
		})
	}
	s.owner = start("owner", proxy.Address(), ofOwner)
	proxy.Aim(s.owner.Address)
	s.poster = start("poster", "", ofPoster)
	s.poster.Find("owner")
	s.poster.TakeGrants(s.owner, size)
	s.owner.Find("poster")
	s.owner.TakeGrants(s.poster, size)
	return s
}

func watchAgents(t *testing.T, dir string) *directorytest.Observer {
	t.Helper()
	d, err := etcd.Open(t.Context(), etcd.Options{Endpoints: []string{embedded.Endpoint(dir)}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close(context.Background()) })
	return directorytest.Observe(t, d, agent.AgentPrefix)
}

// sameAgents demands the same incarnations under the same leases.
func sameAgents(t *testing.T, before, after []directory.Record) {
	t.Helper()
	type holding struct {
		incarnation string
		lease       directory.LeaseID
	}
	held := make(map[string]holding)
	incarnation := func(r directory.Record) string {
		var a agent.AgentRecord
		if err := json.Unmarshal(r.Value, &a); err != nil {
			t.Fatal(err)
		}
		return a.Incarnation
	}
	for _, r := range before {
		held[r.Key] = holding{incarnation(r), r.Lease}
	}
	if len(after) != len(before) {
		t.Errorf("%d agents before, %d after", len(before), len(after))
	}
	for _, r := range after {
		if now := (holding{incarnation(r), r.Lease}); now != held[r.Key] {
			t.Errorf("%s was %v, is %v", r.Key, held[r.Key], now)
		}
	}
}
