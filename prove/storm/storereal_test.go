//go:build real

package storm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"meridian/internal/until"
	"meridian/serve/door"
)

var (
	owners = []string{"a", "b", "c"}
	fronts = []string{"f", "g"} // keep nothing
)

// mapped is the number of the owner whose client maps its arena.
const mapped = 0

// part is a process that is killed and started again.
type part struct {
	name  string
	owner int // its number among owners, or -1
	args  []string
	env   []string

	process *exec.Cmd
	ended   chan struct{} // closed when process has

	mu     sync.Mutex // protects output
	output bytes.Buffer
}

func (p *part) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.output.Len() < 1<<20 {
		p.output.Write(b)
	}
	return len(b), nil
}

func (p *part) start(t *testing.T) {
	t.Helper()
	c := exec.Command(p.args[0], p.args[1:]...)
	c.Env, c.Stdout, c.Stderr = append(os.Environ(), p.env...), p, p
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	p.process, p.ended = c, make(chan struct{})
	go func(ended chan<- struct{}) {
		_ = c.Wait()
		close(ended)
	}(p.ended)
}

// kill ends the process as a crash would.
func (p *part) kill() {
	_ = p.process.Process.Kill()
	<-p.ended
}

// revive starts a process that ended by itself, as one does that came up while there was
// no directory.
func (p *part) revive(t *testing.T) {
	t.Helper()
	select {
	case <-p.ended:
		t.Logf("%s %s has ended by itself: %v", time.Now().Format("05.000"), p.name, p.process.ProcessState)
		p.start(t)
	default:
	}
}

// panicked reports whether the process has ever said so.
func (p *part) panicked() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return bytes.Contains(p.output.Bytes(), []byte("\ngoroutine ")) || bytes.Contains(p.output.Bytes(), []byte("panic: "))
}

func (p *part) pause(d time.Duration) {
	_ = p.process.Process.Signal(syscall.SIGSTOP)
	time.Sleep(d)
	_ = p.process.Process.Signal(syscall.SIGCONT)
}

// storeCell is agents that keep objects, agents that do not, and clients of all.
type storeCell struct {
	dir       string
	checker   *Checker
	directory *part
	agents    []*part
	clients   []*part
	evicts    bool   // owners have too little room
	evicted   uint64 // objects, by owners that were killed since
}

func (c *storeCell) door(agent string) string { return filepath.Join(c.dir, "door-"+agent+".sock") }

// startStoreCell starts one whose owners have so much memory each.
func startStoreCell(t *testing.T, size string) *storeCell {
	t.Helper()
	bin := program(t)
	dir, err := os.MkdirTemp("", "mrd") // short enough for a socket's address
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	c := &storeCell{dir: dir}
	table := filepath.Join(dir, "checker")
	if c.checker, err = OpenChecker(table); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.checker.Close() })
	env := []string{
		"MERIDIAN_STATE=" + dir, "MERIDIAN_TELEMETRY_PROMETHEUS_LISTEN=", "MERIDIAN_LOGGING_LEVEL=warn", "MERIDIAN_STORE_ENABLED=true", "MERIDIAN_STORE_WRITE_TIMEOUT_MS=5000",
	}
	c.directory = &part{name: "directory", owner: -1, args: []string{bin, "directory"}, env: env}
	c.directory.start(t)
	t.Cleanup(func() { c.directory.kill() })
	for i, name := range owners {
		c.agents = append(c.agents, &part{name: name, owner: i, args: []string{bin, "agent", "--name", name, "--store", size}, env: env})
	}
	c.agents[mapped].env = append(env[:len(env):len(env)], "MERIDIAN_STORE_DIRECT_MAP=true")
	for _, name := range fronts {
		front := append(env[:len(env):len(env)], "MERIDIAN_STORE_BYTES=0", "MERIDIAN_STORE_MASTER=false")
		c.agents = append(c.agents, &part{name: name, owner: -1, args: []string{bin, "agent", "--name", name}, env: front})
	}
	for _, i := range []int{2, 4} { // these speak TCP only, the others share memory
		c.agents[i].args = append(c.agents[i].args, "--fabrics", "tcp")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for i, agent := range c.agents {
		job := fmt.Sprintf("%s=%d %d %s %s %t", clientOf, i, len(c.agents), c.door(agent.name), table, i == mapped)
		c.clients = append(c.clients, &part{name: "client at " + agent.name, owner: -1, args: []string{self}, env: []string{job}})
	}
	for _, p := range append(c.agents, c.clients...) {
		p.start(t)
		t.Cleanup(func() { p.kill() })
	}
	t.Cleanup(func() { report(t, append(c.clients, append(c.agents, c.directory)...)...) })
	return c
}

// report shows after a failure what processes said last.
func report(t *testing.T, parts ...*part) {
	for _, p := range parts {
		p.mu.Lock()
		lines := strings.Split(strings.TrimSpace(p.output.String()), "\n")
		p.mu.Unlock()
		if !t.Failed() {
			continue
		}
		for _, line := range lines[max(0, len(lines)-25):] {
			t.Logf("%-12s %s", p.name, line)
		}
	}
}

// strike kills a process or lets it stand still, and has it go on.
func (c *storeCell) strike(t *testing.T) {
	target := c.agents[rand.IntN(len(c.agents))]
	switch rand.IntN(12) {
	case 0, 1, 2:
		target = c.clients[rand.IntN(len(c.clients))]
	case 3:
		target = c.directory
	}
	if rand.IntN(2) == 0 {
		still := time.Duration(50+rand.IntN(900)) * time.Millisecond
		if rand.IntN(4) == 0 {
			still = time.Duration(3500+rand.IntN(3000)) * time.Millisecond // longer than a lease
		}
		t.Logf("%s %s stands still for %v", time.Now().Format("05.000"), target.name, still)
		if still > time.Second {
			// A directory whose clock has gone on ends the leases of all: they may be taken
			// for dead until they are heard again.
			for _, p := range c.agents {
				if p.owner >= 0 && (p == target || target == c.directory) {
					c.checker.Still(p.owner, true)
					defer c.checker.Still(p.owner, false)
				}
			}
		}
		target.pause(still)
		return
	}
	t.Logf("%s kill -9 %s", time.Now().Format("05.000"), target.name)
	if target.owner >= 0 { // what it has goes with it, and its counters
		c.checker.Killed(target.owner) // and what it evicts from here on
		if c.evicts {
			evicted, err := c.evictionsOf(t, target)
			if err != nil {
				t.Logf("it lives on: it did not say what it has evicted: %v", err)
				return
			}
			c.evicted += evicted
		}
	}
	target.kill()
	if target.owner >= 0 { // what it took meanwhile, too
		c.checker.Killed(target.owner)
	}
	time.Sleep(time.Duration(rand.IntN(500)) * time.Millisecond)
	target.start(t)
}

func (c *storeCell) revive(t *testing.T) {
	for _, p := range append([]*part{c.directory}, c.agents...) {
		p.revive(t)
	}
}

// evictionsOf is how many objects an owner has evicted in this life.
func (c *storeCell) evictionsOf(t *testing.T, p *part) (uint64, error) {
	ctx, cancel := context.WithTimeout(t.Context(), askPatience)
	defer cancel()
	cache, err := door.OpenStore(ctx, door.StoreOptions{Socket: c.door(p.name)})
	if err != nil {
		return 0, err
	}
	defer cache.Close()
	stats, err := cache.Stats(ctx)
	if err != nil {
		return 0, err
	}
	for _, o := range stats {
		if o.Name == p.name && o.Problem == "" {
			return o.Evictions, nil
		}
	}
	return 0, fmt.Errorf("%s is not among %+v", p.name, stats)
}

// putAndDie lets a command that puts an object be killed in the middle of it.
func (c *storeCell) putAndDie(t *testing.T, n int, file string) {
	p := &part{name: "put", args: []string{program(t), "store", "put", "--state", c.dir, bigKey(n), file}, env: c.agents[0].env}
	p.start(t)
	time.Sleep(time.Duration(rand.IntN(900)) * time.Millisecond)
	p.kill()
}

// Owners, masters, agents without objects, clients and the directory are killed, or stand
// still, while clients put, get and remove, one of them through a mapping: no value is torn
// or stale, none is lost but with its owner or by an eviction that was counted, and the
// room of dead writers comes back.
func TestRealStoreIsKilled(t *testing.T) {
	during := 25 * time.Second
	if minutes, err := strconv.ParseFloat(os.Getenv("MERIDIAN_SOAK_MINUTES"), 64); err == nil {
		during = time.Duration(minutes * float64(time.Minute))
	}
	for _, world := range []struct {
		name, size string
		evicts     bool
	}{{"with room for all", "256MiB", false}, {"with too little room", "8MiB", true}} {
		t.Run(world.name, func(t *testing.T) {
			c := startStoreCell(t, world.size)
			c.evicts = world.evicts
			c.live(t, during/2)
			evictions := c.settle(t)
			tally := &c.checker.Tallied
			if tally[Wrong].Load() > 0 {
				t.Errorf("%d wrong values", tally[Wrong].Load())
			}
			if right, puts := tally[Right].Load(), tally[Puts].Load(); right < 100 || puts < 100 {
				t.Errorf("only %d values were got, %d put", right, puts)
			}
			if lost := tally[Lost].Load(); lost > evictions {
				t.Errorf("%d objects are lost whose owners live, and %d were evicted", lost, evictions)
			}
			for _, p := range append(c.agents, c.directory) {
				if p.panicked() {
					t.Errorf("%s has panicked", p.name)
				}
			}
			if (evictions > 0) != world.evicts {
				t.Errorf("%d objects were evicted from owners of %s", evictions, world.size)
			}
		})
	}
}

// live lets things happen for a while, and ends the clients.
func (c *storeCell) live(t *testing.T, during time.Duration) {
	big := filepath.Join(c.dir, "big")
	if err := os.WriteFile(big, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	await(t, "a first hundred objects", func() error {
		if n := c.checker.Tallied[Puts].Load(); n < 100 {
			return fmt.Errorf("%d were put: %v", n, c.checker)
		}
		return nil
	})
	struck := 0
	for end := time.Now().Add(during); time.Now().Before(end); struck++ {
		c.strike(t)
		c.revive(t)
		c.putAndDie(t, struck, big)
		if !c.evicts {
			c.forget(t, struck)
		}
		if struck%50 == 49 {
			t.Log(c.checker)
		}
	}
	for _, p := range c.clients {
		p.kill()
	}
	t.Logf("%d strikes: %v", struck, c.checker)
}

// forget removes what putAndDie may have put, so that it takes no room.
func (c *storeCell) forget(t *testing.T, n int) {
	ctx, cancel := context.WithTimeout(t.Context(), askPatience)
	defer cancel()
	cache, err := door.OpenStore(ctx, door.StoreOptions{Socket: c.door("f")})
	if err == nil {
		_ = cache.Remove(ctx, []byte(bigKey(n))) // else it takes its room until the end
		cache.Close()
	}
}

func bigKey(n int) string { return fmt.Sprint("big-", n) }

// settle waits until all owners serve and no writer is waited for, reads every object
// once more, and takes all of them away. Evictions are those before that.
func (c *storeCell) settle(t *testing.T) (evictions uint64) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var cache *door.Store
	await(t, "all owners, and no writer", func() (err error) {
		c.revive(t)
		if cache == nil {
			if cache, err = door.OpenStore(ctx, door.StoreOptions{Socket: c.door("f")}); err != nil {
				return err
			}
		}
		evictions, err = idle(ctx, cache)
		return err
	})
	defer cache.Close()
	for writer := range len(c.clients) * clientThreads {
		for slot := range liveEntries {
			if id := c.checker.live[writer][slot].Load(); id != 0 {
				if answered, err := c.checker.Read(ctx, doorCache{cache}, id); !answered {
					t.Errorf("the last look at object %d was not answered", id)
				} else if err != nil {
					t.Log(err) // and counted
				}
			}
		}
	}
	evictions += c.evicted
	t.Logf("at the end: %v; %d evictions", c.checker, evictions)
	await(t, "all memory is free", func() error {
		ctx, cancel := context.WithTimeout(t.Context(), askPatience)
		defer cancel()
		if _, err := cache.Evict(ctx, 0); err != nil {
			return err
		}
		stats, err := cache.Stats(ctx)
		for _, o := range stats {
			aside := uint64(0)
			if o.Name == owners[mapped] {
				aside = o.HeapTotal / 8 // for programs that map it
			}
			if o.HeapUsed > aside || o.Ready != 0 {
				err = errors.Join(err, fmt.Errorf("%+v", o))
			}
		}
		return err
	})
	return evictions
}

// idle says why the owners are not idle, or how many objects they evicted.
func idle(ctx context.Context, cache *door.Store) (evictions uint64, err error) {
	stats, err := cache.Stats(ctx)
	if err != nil {
		return 0, err
	}
	if len(stats) != len(owners) {
		return 0, fmt.Errorf("%d owners", len(stats))
	}
	for _, o := range stats {
		if o.Problem != "" || o.Writing != 0 {
			return 0, fmt.Errorf("%+v", o)
		}
		evictions += o.Evictions
	}
	return evictions, nil
}

// await waits until there is nothing to complain of.
func await(t *testing.T, what string, complaint func() error) {
	t.Helper()
	began := time.Now()
	until.Within(patience).Well(t, what, func() string {
		if err := complaint(); err != nil {
			return err.Error()
		}
		return ""
	})
	t.Logf("%s: after %v", what, time.Since(began).Round(time.Millisecond))
}
