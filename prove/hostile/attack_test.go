package hostile_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"meridian/internal/until"
	"meridian/kv"
	"meridian/member/trust"
	"meridian/move/fabric"
	"meridian/move/fabric/handshake"
	"meridian/prove/chaos"
	"meridian/prove/hostile"
)

func TestMain(m *testing.M) {
	chaos.Main(m, map[string]func() error{"attacker": attack, "bystander": spin})
}

// spin is a process that works and does no harm, until its input ends.
func spin() error {
	var stop atomic.Bool
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop.Store(true)
	}()
	for !stop.Load() {
	}
	return nil
}

// order says to a process whom to attack, and how. An insider finds the cell's
// key in StateDir.
type order struct {
	Target, StateDir, Attack string
	Crowd                    int
	Grant                    hostile.Grant
}

const orders = "MERIDIAN_HOSTILE_ORDER"

// mallory is who every attacker says it is.
const mallory = "mallory"

// attack is the attacker's process, until its input ends.
func attack() error {
	var o order
	if err := json.Unmarshal([]byte(os.Getenv(orders)), &o); err != nil {
		return err
	}
	a := &hostile.Attacker{Target: o.Target, Crowd: o.Crowd, Grant: o.Grant, Self: handshake.Self{Agent: mallory}}
	if o.StateDir != "" {
		key, err := trust.OpenCellKey(o.StateDir)
		if err != nil {
			return err
		}
		a.Self.Key = &key
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	go func() {
		for tick := time.NewTicker(50 * time.Millisecond); ctx.Err() == nil; <-tick.C {
			_ = json.NewEncoder(os.Stdout).Encode(a.Tally())
		}
	}()
	return a.Run(ctx, o.Attack)
}

// tallies is what an attacker tells of itself, a line at a time.
type tallies struct {
	mu   sync.Mutex // protects what follows
	text []byte
	last hostile.Tally
}

func (l *tallies) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = append(l.text, p...)
	for {
		line, rest, whole := bytes.Cut(l.text, []byte("\n"))
		if !whole {
			return len(p), nil
		}
		l.text = rest
		if err := json.Unmarshal(line, &l.last); err != nil {
			return 0, err
		}
	}
}

func (l *tallies) now() hostile.Tally {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last
}

// attackBed is an agent, an honest peer of it, and an attacker. A bystander takes
// in peace what the attacker takes in war: an attacker has a machine of its own,
// and what it costs is what the agent does about it.
type attackBed struct {
	t         *testing.T
	dir       string
	owner     *chaos.AgentProcess
	honest    *chaos.AgentProcess
	attacker  *chaos.Process
	bystander *chaos.Process
	tallies   tallies
	before    uint64 // the owner's memory in peace
}

const arenaBytes = 8 << 20

func newAttackBed(t *testing.T) *attackBed {
	t.Helper()
	s := &attackBed{t: t, dir: t.TempDir()}
	s.owner = chaos.Start(t, chaos.Setup{Name: "owner", StateDir: s.dir, ArenaBytes: arenaBytes, Seed: 2})
	s.honest = chaos.Start(t, chaos.Setup{Name: "honest", StateDir: s.dir, ArenaBytes: arenaBytes, Seed: 1})
	s.honest.Meet(s.owner, arenaBytes)
	s.work(100 * time.Millisecond)
	s.before = s.memory()
	return s
}

// memory is what the owner holds, without its arena.
func (s *attackBed) memory() uint64 { return s.owner.Status("RssAnon") }

// work is what the honest peer achieves: reads of one MiB, one after the other.
func (s *attackBed) work(d time.Duration) chaos.Rate {
	s.t.Helper()
	rate := s.honest.Run(chaos.Post{Peer: "owner", Op: fabric.Read, Length: 1 << 20, Deadline: patience}, d)
	if rate.Err != nil {
		s.t.Errorf("the honest peer: %v", rate.Err)
	}
	return rate
}

// enemy is who attacks.
type enemy uint8

const (
	stranger enemy = iota
	insider        // knows the cell's key
	grantee        // and may read and write the owner's arena
)

// attack begins. The attacker never has more than one core.
func (s *attackBed) attack(name string, who enemy, crowd int) {
	s.t.Helper()
	o := order{Target: s.owner.Address, Attack: name, Crowd: crowd}
	if who != stranger {
		o.StateDir = s.dir
	}
	if who == grantee {
		grant := func(op fabric.Op) kv.ID {
			return s.owner.Grant(chaos.Opening{Peer: mallory, Op: op, Length: arenaBytes})
		}
		o.Grant = hostile.Grant{Read: grant(fabric.Read), Write: grant(fabric.Write), Region: s.owner.Region, Epoch: 1, Bytes: arenaBytes}
	}
	text, err := json.Marshal(o)
	if err != nil {
		s.t.Fatal(err)
	}
	s.attacker = chaos.StartProcess(s.t, chaos.ProcessOptions{
		Role: "attacker", Environment: []string{orders + "=" + string(text), "GOMAXPROCS=1"}, Stdout: &s.tallies,
	})
	s.bystander = chaos.StartProcess(s.t, chaos.ProcessOptions{Role: "bystander", Environment: []string{"GOMAXPROCS=1"}})
	s.bystander.Stop()
	s.until("the attack has begun", func(t hostile.Tally) bool { return t.Connections > 0 })
}

// fence demands that the owner's memory is quiet, while the attack goes on.
func (s *attackBed) fence() {
	s.t.Helper()
	start := time.Now()
	if err := s.owner.Fence(); err != nil {
		s.t.Fatalf("fence: %v", err)
	}
	until.Within(patience-time.Since(start)).True(s.t, "there is no reference to fenced memory", func() bool { return s.owner.References() == 0 })
}

// until waits for an attacker to get somewhere.
func (s *attackBed) until(what string, there func(hostile.Tally) bool) {
	s.t.Helper()
	until.Well(s.t, what, func() string {
		now := s.tallies.now()
		if there(now) {
			return ""
		}
		return fmt.Sprintf("%+v\n%s", now, s.attacker.Said())
	})
}

// round is a while of peace and a while of war.
type round struct {
	peace, war chaos.Rate
	most       uint64 // of the owner's memory
}

// share is what the attacker or the bystander has of one core.
const share = 0.2

// fight lets the honest peer work while the bystander has a share of a core,
// and while the attacker has it.
func (s *attackBed) fight(d time.Duration) (r round) {
	s.t.Helper()
	s.attacker.Stop()
	r.peace, _ = s.while(d, s.bystander)
	s.bystander.Stop()
	r.war, r.most = s.while(d, s.attacker)
	s.attacker.Continue()
	return r
}

// while lets the honest peer work and the rival have its share of a core, and
// follows the owner's memory.
func (s *attackBed) while(d time.Duration, rival *chaos.Process) (rate chaos.Rate, most uint64) {
	s.t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		rate = s.work(d)
	}()
	start, before := time.Now(), rival.CPU()
	for {
		if used := rival.CPU() - before; used.Seconds() < share*time.Since(start).Seconds() {
			rival.Continue()
		} else {
			rival.Stop()
		}
		most = max(most, s.memory())
		select {
		case <-done:
			return rate, most
		case <-time.After(10 * time.Millisecond):
		}
	}
}
