package hostile_test

import (
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"meridian/move/fabric"
	"meridian/move/mrdn"
	"meridian/prove/chaos"
	"meridian/prove/hostile"
)

const (
	// memoryBound is how much an agent may grow under attack.
	memoryBound = 64 << 20 * raceFactor
	strangerCap = 256
	// patience is how long what must come about may take on a busy machine.
	patience = time.Minute
	// hearing is how long a stranger is heard out.
	hearing = 5 * time.Second
	// crowd is how many connections an attacker tries to hold.
	crowd = 300
)

func TestStrangers(t *testing.T) {
	for _, name := range hostile.Strangers() {
		t.Run(name, func(t *testing.T) { runAttack(t, name, stranger) })
	}
}

func TestInsiders(t *testing.T) {
	for _, name := range hostile.Insiders() {
		t.Run(name, func(t *testing.T) { runAttack(t, name, insider) })
	}
}

// A peer that was granted something cannot keep it: not by handles that it uses
// twice, not by what it begins and never ends.
func TestGrantees(t *testing.T) {
	for _, name := range hostile.Grantees() {
		t.Run(name, func(t *testing.T) { runAttack(t, name, grantee) })
	}
}

// runAttack demands that the agent survives, stays within its bounds and serves
// the honest peer meanwhile.
func runAttack(t *testing.T, name string, who enemy) {
	t.Parallel()
	s := newAttackBed(t)
	files := s.owner.Descriptors()
	s.attack(name, who, crowd)
	r := s.fight(500 * time.Millisecond)
	if r.war.Transfers == 0 {
		t.Error("the honest peer got nothing")
	}
	if grown := r.most - min(r.most, s.before); grown > memoryBound {
		t.Errorf("the agent grew by %d MiB", grown>>20)
	}
	if held := s.owner.Descriptors() - files; who == stranger && held > strangerCap+8 {
		t.Errorf("strangers hold %d connections", held)
	}
	if who == grantee {
		s.fence()
	}
	s.attacker.Leave()
	if who != grantee {
		s.work(50 * time.Millisecond)
	}
	t.Logf("%+v; %.0f %% of the rate in peace; memory from %d to %d MiB", s.tallies.now(),
		100*r.war.BytesPerSecond()/r.peace.BytesPerSecond(), s.before>>20, r.most>>20)
}

// Ten thousand connections, as fast as one core can make them, are turned away
// at the door.
func TestTenThousandConnections(t *testing.T) {
	t.Parallel()
	s := newAttackBed(t)
	files := s.owner.Descriptors()
	s.attack("crowd", stranger, 1000)
	for start := time.Now(); s.tallies.now().Connections < 10_000; {
		s.work(200 * time.Millisecond)
		if grown := s.memory() - min(s.memory(), s.before); grown > memoryBound {
			t.Fatalf("the agent grew by %d MiB", grown>>20)
		}
		if held := s.owner.Descriptors() - files; held > strangerCap+8 {
			t.Fatalf("strangers hold %d connections", held)
		}
		if time.Since(start) > time.Minute {
			t.Fatalf("the attacker got no further than %+v", s.tallies.now())
		}
	}
	s.attacker.Leave()
	s.work(50 * time.Millisecond)
}

// At most so many strangers are heard out at a time, those who came last, and
// none for longer than that: not the silent one, nor the one that talks slowly.
func TestStrangersAreFewAndHaveFiveSeconds(t *testing.T) {
	t.Parallel()
	owner := chaos.Start(t, chaos.Setup{Name: "owner", StateDir: t.TempDir(), ArenaBytes: 1 << 20})
	first := time.Now()
	var strangers []net.Conn
	for range 2 * strangerCap {
		strangers = append(strangers, dial(t, owner))
	}
	slow := dial(t, owner)
	hello := mrdn.Hello{MinVersion: 1, MaxVersion: 1, Agent: "slow", Streams: 1}.Append(nil)
	start := time.Now()
	ended := make(chan time.Duration, 1)
	go func() {
		_, _ = io.Copy(io.Discard, slow)
		ended <- time.Since(start)
	}()
	kept := func() (n int) {
		for _, conn := range strangers {
			if !isClosed(conn, time.Now().Add(time.Millisecond)) {
				n++
			}
		}
		return n
	}
	// The one that talks slowly has a place too. Those that are turned away may not
	// know it yet, and on a slow machine some have been heard out already.
	n := kept()
	for began := time.Now(); n > strangerCap+8 && time.Since(began) < hearing/2; {
		n = kept()
	}
	if n > strangerCap+8 || n < strangerCap-8 && time.Since(first) < hearing {
		t.Errorf("%d of %d strangers were let wait, want %d", n, len(strangers), strangerCap)
	}
	for i := range hello {
		if _, err := slow.Write(hello[i : i+1]); err != nil {
			break
		}
		select {
		case took := <-ended:
			if took < hearing-500*time.Millisecond || took > patience {
				t.Errorf("the slow one was cut after %v", took)
			}
			for _, conn := range strangers {
				if !isClosed(conn, time.Now().Add(patience)) {
					t.Fatal("a silent stranger is still there")
				}
			}
			return
		case <-time.After(200 * time.Millisecond):
		}
	}
	t.Error("the slow one could say all it had to say")
}

// An honest peer that comes while the door is crowded gets in.
func TestNewcomerInACrowd(t *testing.T) {
	t.Parallel()
	s := newAttackBed(t)
	s.attack("crowd", stranger, 2*strangerCap)
	s.until("a crowd", func(t hostile.Tally) bool { return t.Connections > 2*strangerCap })
	newcomer := chaos.Start(t, chaos.Setup{Name: "newcomer", StateDir: s.dir, ArenaBytes: arenaBytes})
	newcomer.Meet(s.owner, arenaBytes)
	read := chaos.Post{Peer: "owner", Op: fabric.Read, Length: 1 << 20, Deadline: 2 * hearing}
	for start := time.Now(); newcomer.Transfer(read).State != fabric.Done; {
		if time.Since(start) > patience {
			t.Fatalf("not let in for %v", patience)
		}
	}
}

func dial(t *testing.T, owner *chaos.AgentProcess) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", owner.Address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// isClosed reports whether the other side hung up by then.
func isClosed(conn net.Conn, by time.Time) bool {
	_ = conn.SetReadDeadline(by)
	_, err := conn.Read(make([]byte, 1))
	var timeout net.Error
	return err != nil && !(errors.As(err, &timeout) && timeout.Timeout())
}
