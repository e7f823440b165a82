package chaos_test

import (
	"fmt"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"meridian/internal/until"
	"meridian/move/fabric"
	"meridian/move/mem"
	"meridian/prove/chaos"
)

// An agent without descriptors lets no new peer in, serves those it has, and
// recovers when others let go.
func TestDescriptorsExhausted(t *testing.T) {
	t.Parallel()
	s := setStage(t)
	s.served()
	limit := s.owner.Descriptors() + 8
	s.owner.Limit(unix.RLIMIT_NOFILE, uint64(limit))
	var crowd []net.Conn
	for range 64 {
		conn, err := net.Dial("tcp", s.owner.Address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		crowd = append(crowd, conn)
	}
	until.Within(soon).Well(t, "the owner has all descriptors that it may have", func() string {
		if n := s.owner.Descriptors(); n < limit {
			return fmt.Sprintf("%d of %d", n, limit)
		}
		return ""
	})
	s.served()
	late := chaos.Start(t, chaos.Setup{Name: "late", StateDir: s.dir, ArenaBytes: arenaBytes, KeepAlive: keepAlive, Handshake: handshake})
	late.Meet(s.owner, arenaBytes)
	probe := chaos.Post{Peer: "owner", Op: fabric.Read, Length: spareBytes, Deadline: 2 * time.Second}
	s.failed(late.Transfer(probe), fabric.NotSubmitted, fabric.ErrPeerGone)
	s.served()

	for _, conn := range crowd {
		conn.Close()
	}
	probe.Deadline = soon
	for start := time.Now(); late.Transfer(probe).State != fabric.Done; {
		if time.Since(start) > 2*soon {
			t.Fatal("the owner lets no peer in any more")
		}
	}
	s.served()
}

func TestPosterHasNoDescriptors(t *testing.T) {
	t.Parallel()
	s := setStage(t)
	s.poster.Limit(unix.RLIMIT_NOFILE, uint64(s.poster.Descriptors()))
	s.failed(s.poster.Transfer(big(fabric.Read, soon)), fabric.NotSubmitted, unix.EMFILE)
	s.poster.Limit(unix.RLIMIT_NOFILE, 1024)
	s.served()
}

// Memory that is not to be had is an error that says so, and costs nothing.
func TestOutOfMemory(t *testing.T) {
	t.Parallel()
	s := setStage(t)
	s.served()
	if f := s.owner.Arena(1 << 60); f == nil || !f.Is(mem.ErrBounds) {
		t.Errorf("an arena of 2^60 bytes: %v", f)
	}
	s.owner.Limit(unix.RLIMIT_AS, s.owner.Status("VmSize")+256<<20)
	if f := s.owner.Arena(64 << 30); f == nil || !f.Is(unix.ENOMEM) {
		t.Errorf("an arena of 64 GiB: %v", f)
	}
	if f := s.owner.Arena(1 << 20); f != nil {
		t.Errorf("an arena of 1 MiB: %v", f)
	}
	s.served()
}
