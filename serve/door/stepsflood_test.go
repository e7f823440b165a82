package door

import (
	"errors"
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"meridian/serve/door/doorpb"
)

// linked is the engine's end of a connection, and the agent's.
func linked(t *testing.T) (*stepsLink, net.Conn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var ends [2]net.Conn
	for i, fd := range fds {
		file := os.NewFile(uintptr(fd), "steps")
		ends[i], err = net.FileConn(file)
		file.Close()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { ends[i].Close() })
	}
	l, err := newStepsLink(NewConn(ends[0].(*net.UnixConn)), &doorpb.Welcome{})
	if err != nil {
		t.Fatal(err)
	}
	return l, ends[1]
}

// A Decision that is small on the wire and large in memory, or too large, ends the
// connection before it is read.
func TestDecisionsAreBounded(t *testing.T) {
	many := &doorpb.Decision{Step: 1}
	for range MaxMessages + 1 {
		many.Preempt = append(many.Preempt, &doorpb.Preempt{})
	}
	for name, m := range map[string]*doorpb.Decision{"messages": many, "bytes": {Step: 1, Evict: make([]uint32, MaxDecisionBytes)}} {
		t.Run(name, func(t *testing.T) {
			l, agent := linked(t)
			l.sent.Store(1)
			wire, err := AppendFrame(nil, doorpb.FrameType_FRAME_TYPE_DECISION, m)
			if err != nil {
				t.Fatal(err)
			}
			go agent.Write(wire)
			if come, err := l.take(time.Minute); !errors.Is(err, ErrFrame) || len(come) != 0 {
				t.Errorf("%d came, %v", len(come), err)
			}
		})
	}
}

// An agent that never stops talking does not keep the engine's step, and nothing of what
// it said is lost.
func TestTakeEnds(t *testing.T) {
	l, agent := linked(t)
	const all = 3*maxTaken + 5
	var wire []byte
	for n := range uint64(all) {
		wire, _ = AppendFrame(wire, doorpb.FrameType_FRAME_TYPE_DECISION, &doorpb.Decision{Step: n + 1})
	}
	l.sent.Store(all)
	go agent.Write(wire)
	heard := uint64(0)
	for heard < all {
		come, err := l.take(time.Minute)
		if err != nil || len(come) == 0 || len(come) > maxTaken {
			t.Fatalf("%d came, %v", len(come), err)
		}
		for _, d := range come {
			if heard++; d.GetStep() != heard {
				t.Fatalf("step %d came in place of %d", d.GetStep(), heard)
			}
		}
	}
}
