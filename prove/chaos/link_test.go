package chaos_test

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"meridian/internal/require"
	"meridian/internal/until"
	"meridian/move/fabric"
	"meridian/prove/chaos"
)

const (
	posterAddress = "10.77.0.1"
	ownerAddress  = "10.77.0.2"
)

// connectHosts makes two hosts, which are network namespaces with a puppet in
// each, and a cable between them.
func connectHosts(t *testing.T) *fixture {
	t.Helper()
	ip := require.Program(t, "ip")
	mountTmpfs(t, "/run", 1<<20) // where ip keeps the names of namespaces
	s := &fixture{t: t, dir: t.TempDir(), fresh: 100}
	start := func(name, address string, seed uint64) *chaos.AgentProcess {
		p := chaos.StartIn(t, chaos.Setup{
			Name: name, StateDir: s.dir, Listen: "0.0.0.0:7411", Advertise: address + ":7411",
			ArenaBytes: arenaBytes, Seed: seed, KeepAlive: keepAlive, Handshake: handshake,
		}, syscall.CLONE_NEWNET)
		mustRun(t, ip, "netns", "attach", name, fmt.Sprint(p.PID()))
		return p
	}
	s.poster, s.owner = start("poster", posterAddress, ofPoster), start("owner", ownerAddress, ofOwner)
	mustRun(t, ip, "-n", "poster", "link", "add", "cable", "type", "veth", "peer", "name", "cable", "netns", "owner")
	for host, address := range map[string]string{"poster": posterAddress, "owner": ownerAddress} {
		mustRun(t, ip, "-n", host, "address", "add", address+"/24", "dev", "cable")
		mustRun(t, ip, "-n", host, "link", "set", "cable", "up")
	}
	s.poster.Meet(s.owner, arenaBytes)
	return s
}

func (s *fixture) cable(state string) {
	s.t.Helper()
	mustRun(s.t, require.Program(s.t, "ip"), "-n", "owner", "link", "set", "cable", state)
}

// received is how many bytes have come to the poster through the cable.
func (s *fixture) received() (bytes uint64) {
	s.t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/dev", s.poster.PID()))
	if err != nil {
		s.t.Fatal(err)
	}
	_, of, _ := strings.Cut(string(text), "cable:")
	if _, err := fmt.Sscan(of, &bytes); err != nil {
		s.t.Fatalf("%v: %s", err, text)
	}
	return bytes
}

// cutOff posts a read whose bytes cannot come, on a link that stands.
func (s *fixture) cutOff(deadline time.Duration) chaos.Outcome {
	s.t.Helper()
	s.served()
	s.cable("down")
	posted := s.poster.Post(big(fabric.Read, deadline))
	if posted.Err != nil {
		s.t.Fatal(posted.Err)
	}
	return posted
}

func TestLinkDownPastTheDeadline(t *testing.T) {
	if require.Program(t, "ip"); !inItsOwnWorld(t) {
		return
	}
	s := connectHosts(t)
	posted := s.cutOff(deadline)
	s.failed(s.poster.Await(posted), fabric.InDoubt, fabric.ErrDeadline)
	before := s.oldOrNew(s.poster)
	s.cable("up")
	s.servedEventually()
	if after := s.oldOrNew(s.poster); after.Digest != before.Digest {
		t.Error("the poster's memory changed after the deadline")
	}
}

// A cable that is out for less than three keep-alives costs the transfers that
// run nothing but time.
func TestLinkDownForAMoment(t *testing.T) {
	if require.Program(t, "ip"); !inItsOwnWorld(t) {
		return
	}
	s := connectHosts(t)
	s.served()
	runs, before := make(chan chaos.Rate, 1), s.received()
	go func() { runs <- s.poster.Run(big(fabric.Read, 2*soon), 3*keepAlive) }()
	until.Within(keepAlive).True(t, "something is on its way", func() bool { return s.received() > before+1<<20 })
	s.cable("down")
	time.Sleep(keepAlive / 2)
	s.cable("up")
	if rate := <-runs; rate.Err != nil || rate.Transfers == 0 || rate.Slowest < keepAlive/3 {
		t.Errorf("%+v", rate)
	}
	if c := s.oldOrNew(s.poster); !c.All(ofOwner) {
		t.Errorf("late and wrong: %+v", c)
	}
	s.served()
}

func TestLinkDownForGood(t *testing.T) {
	if require.Program(t, "ip"); !inItsOwnWorld(t) {
		return
	}
	s := connectHosts(t)
	s.failed(s.poster.Await(s.cutOff(0)), fabric.InDoubt, fabric.ErrPeerGone)
	// A poster that comes while the cable is out hears so within its deadline.
	if out := s.poster.Transfer(big(fabric.Write, time.Second)); out.State != fabric.NotSubmitted || out.Took > soon {
		t.Errorf("without a cable: %+v", out)
	}
	s.cable("up")
	s.served()
}
