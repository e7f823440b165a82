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

	"meridian/door"
)

// clientOf names the environment of a process of this program that is a client.
const clientOf = "MERIDIAN_STORM_CLIENT"

func TestMain(m *testing.M) {
	if job := os.Getenv(clientOf); job != "" {
		if err := beClient(job); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// doorCache is the object cache through the door of an agent.
type doorCache struct{ *door.Store }

func (c doorCache) judge(err error) error {
	var p *door.Problem
	if errors.As(err, &p) {
		switch p.Code {
		case door.CodeMissing:
			return ErrMissing
		case door.CodeExists, door.CodeFull, door.CodeBusy, door.CodeNotReady:
			return fmt.Errorf("%w: %w", ErrRefused, err)
		}
	}
	return err
}

// Put writes piece by piece what is too large for a message, and not always.
func (c doorCache) Put(ctx context.Context, key string, value []byte) error {
	if len(value) < 256<<10 || value[len(value)-1]%2 == 0 {
		return c.judge(c.Store.Put(ctx, []byte(key), value, door.Wish{}))
	}
	if _, err := c.Store.Open(ctx, []byte(key), uint64(len(value)), door.Wish{}); err != nil {
		return c.judge(err)
	}
	const piece = 100 << 10
	for at := 0; at < len(value); at += piece {
		if err := c.Store.Write(ctx, []byte(key), uint64(at), value[at:min(len(value), at+piece)]); err != nil {
			return err
		}
	}
	return c.judge(c.Store.Commit(ctx, []byte(key)))
}

func (c doorCache) Get(ctx context.Context, key string) ([]byte, error) {
	value, err := c.Store.Get(ctx, []byte(key))
	return value, c.judge(err)
}

func (c doorCache) Remove(ctx context.Context, key string) error {
	return c.judge(c.Store.Remove(ctx, []byte(key)))
}

func (c doorCache) Owner(ctx context.Context, key string) (string, error) {
	place, err := c.Store.Locate(ctx, []byte(key), 0)
	return place.Owner, err
}

const (
	clientThreads = 4
	askPatience   = 4 * time.Second
)

var (
	owners = []string{"a", "b", "c"}
	fronts = []string{"f", "g"} // keep nothing
)

// beClient is a client process: several writers at one door, until it is killed.
func beClient(job string) error {
	var number, count int
	var socket, table string
	if _, err := fmt.Sscan(job, &number, &count, &socket, &table); err != nil {
		return err
	}
	witness, err := OpenWitness(table)
	if err != nil {
		return err
	}
	var threads sync.WaitGroup
	for i := range clientThreads {
		threads.Go(func() {
			for {
				cache, err := door.OpenStore(context.Background(), door.StoreOptions{Socket: socket})
				if err != nil {
					time.Sleep(100 * time.Millisecond)
					continue
				}
				w := Writer{
					Witness: witness, Cache: doorCache{cache}, Number: number*clientThreads + i, Count: count * clientThreads, Owners: owners, Ask: askPatience,
				}
				w.Run(context.Background(), func(err error) { fmt.Printf("%s %v\n", time.Now().Format("05.000"), err) })
			}
		})
	}
	threads.Wait()
	return nil
}

// part is a process that is killed and started again.
type part struct {
	name  string
	owner int // its number among owners, or -1
	args  []string
	env   []string

	mu      sync.Mutex // protects the rest
	process *exec.Cmd
	output  bytes.Buffer
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
	p.process = c
}

// kill ends the process as a crash would.
func (p *part) kill() {
	_ = p.process.Process.Kill()
	_ = p.process.Wait()
}

func (p *part) pause(d time.Duration) {
	_ = p.process.Process.Signal(syscall.SIGSTOP)
	time.Sleep(d)
	_ = p.process.Process.Signal(syscall.SIGCONT)
}

// storeCell is agents that keep objects, agents that do not, and clients of all.
type storeCell struct {
	dir     string
	witness *Witness
	agents  []*part
	clients []*part
}

func (c *storeCell) door(agent string) string { return filepath.Join(c.dir, "door-"+agent+".sock") }

func startStoreCell(t *testing.T) *storeCell {
	t.Helper()
	bin := program(t)
	dir, err := os.MkdirTemp("", "mrd") // short enough for a socket's address
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	c := &storeCell{dir: dir}
	table := filepath.Join(dir, "witness")
	if c.witness, err = OpenWitness(table); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.witness.Close() })
	env := []string{
		"MERIDIAN_STATE=" + dir, "MERIDIAN_TELEMETRY_PROMETHEUS_LISTEN=", "MERIDIAN_LOGGING_LEVEL=warn", "MERIDIAN_STORE_ENABLED=true", "MERIDIAN_STORE_WRITE_TIMEOUT_MS=5000",
	}
	directory := &part{name: "directory", owner: -1, args: []string{bin, "directory"}, env: env}
	directory.start(t)
	t.Cleanup(directory.kill)
	for i, name := range owners {
		c.agents = append(c.agents, &part{name: name, owner: i, args: []string{bin, "agent", "--name", name, "--store", "96MiB"}, env: env})
	}
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
		job := fmt.Sprintf("%s=%d %d %s %s", clientOf, i, len(c.agents), c.door(agent.name), table)
		c.clients = append(c.clients, &part{name: "client at " + agent.name, owner: -1, args: []string{self}, env: []string{job}})
	}
	for _, p := range append(c.agents, c.clients...) {
		p.start(t)
		t.Cleanup(func() { p.kill() })
	}
	t.Cleanup(func() { c.report(t, directory) })
	return c
}

// report shows what clients complained of, and after a failure what agents said last.
func (c *storeCell) report(t *testing.T, directory *part) {
	for _, p := range append(c.clients, append(c.agents, directory)...) {
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
	if rand.IntN(4) == 0 {
		target = c.clients[rand.IntN(len(c.clients))]
	}
	if rand.IntN(2) == 0 {
		still := time.Duration(50+rand.IntN(900)) * time.Millisecond
		if rand.IntN(4) == 0 {
			still = time.Duration(3500+rand.IntN(3000)) * time.Millisecond // longer than a lease
		}
		t.Logf("%s %s stands still for %v", time.Now().Format("05.000"), target.name, still)
		if target.owner >= 0 && still > time.Second {
			c.witness.Still(target.owner, true)
			defer c.witness.Still(target.owner, false)
		}
		target.pause(still)
		return
	}
	t.Logf("%s kill -9 %s", time.Now().Format("05.000"), target.name)
	if target.owner >= 0 { // what it has goes with it
		c.witness.Killed(target.owner)
	}
	target.kill()
	time.Sleep(time.Duration(rand.IntN(500)) * time.Millisecond)
	target.start(t)
}

// putAndDie lets a command that puts an object be killed in the middle of it.
func (c *storeCell) putAndDie(t *testing.T, n int, file string) {
	p := &part{name: "put", args: []string{program(t), "store", "put", "--state", c.dir, fmt.Sprint("big-", n), file}, env: c.agents[0].env}
	p.start(t)
	time.Sleep(time.Duration(rand.IntN(900)) * time.Millisecond)
	p.kill()
}

// Owners, masters, agents without objects and clients are killed, or stand still, while
// clients put, get and remove: no value is torn or stale, none is lost but with its
// owner, and the room of dead writers comes back.
func TestRealStoreIsKilled(t *testing.T) {
	c := startStoreCell(t)
	during := 25 * time.Second
	if minutes, err := strconv.ParseFloat(os.Getenv("MERIDIAN_SOAK_MINUTES"), 64); err == nil {
		during = time.Duration(minutes * float64(time.Minute))
	}
	big := filepath.Join(c.dir, "big")
	if err := os.WriteFile(big, make([]byte, 8<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	c.await(t, "a first hundred objects", func() error {
		if n := c.witness.Tallied[Puts].Load(); n < 100 {
			return fmt.Errorf("%d were put: %v", n, c.witness)
		}
		return nil
	})
	struck := 0
	for end := time.Now().Add(during); time.Now().Before(end); struck++ {
		c.strike(t)
		c.putAndDie(t, struck, big)
		if struck%50 == 49 {
			t.Log(c.witness)
		}
	}
	for _, p := range c.clients {
		p.kill()
	}
	t.Logf("%d strikes: %v", struck, c.witness)
	c.settle(t)
	tally := &c.witness.Tallied
	if tally[Wrong].Load() > 0 {
		t.Errorf("%d wrong values", tally[Wrong].Load())
	}
	if right, puts := tally[Right].Load(), tally[Puts].Load(); right < 100 || puts < 100 {
		t.Errorf("only %d values were got, %d put", right, puts)
	}
}

// settle waits until all owners serve and no writer is waited for, reads every object
// once more, and takes all of them away.
func (c *storeCell) settle(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var cache *door.Store
	var evictions uint64
	c.await(t, "all owners, and no writer", func() (err error) {
		if cache == nil {
			if cache, err = door.OpenStore(ctx, door.StoreOptions{Socket: c.door("f")}); err != nil {
				return err
			}
		}
		evictions, err = idle(ctx, cache)
		return err
	})
	if cache == nil {
		return
	}
	defer cache.Close()
	for writer := range len(c.clients) * clientThreads {
		for slot := range liveEntries {
			if id := c.witness.live[writer][slot].Load(); id != 0 {
				if answered, err := c.witness.Read(ctx, doorCache{cache}, id); err != nil || !answered {
					t.Errorf("the last look at object %d: %v", id, err)
				}
			}
		}
	}
	t.Logf("at the end: %v; %d evictions", c.witness, evictions)
	if lost := c.witness.Tallied[Lost].Load(); lost > evictions {
		t.Errorf("%d objects are lost whose owners live, and %d were evicted", lost, evictions)
	}
	c.await(t, "all memory is free", func() error {
		ctx, cancel := context.WithTimeout(t.Context(), askPatience)
		defer cancel()
		if _, err := cache.Evict(ctx, 0); err != nil {
			return err
		}
		stats, err := cache.Stats(ctx)
		for _, o := range stats {
			if o.HeapUsed != 0 || o.Ready != 0 {
				err = errors.Join(err, fmt.Errorf("%+v", o))
			}
		}
		return err
	})
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
func (c *storeCell) await(t *testing.T, what string, complaint func() error) {
	t.Helper()
	began := time.Now()
	err := complaint()
	for ; err != nil && time.Since(began) < patience; time.Sleep(200 * time.Millisecond) {
		err = complaint()
	}
	if err != nil {
		t.Fatalf("%s: not after %v: %v", what, patience, err)
	}
	t.Logf("%s: after %v", what, time.Since(began).Round(time.Millisecond))
}
