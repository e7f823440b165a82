package doorserver_test

import (
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"meridian/agent"
	"meridian/door"
	"meridian/door/doorpb"
	"meridian/doorserver"
)

func refusedWith(t testing.TB, err error, code string) {
	t.Helper()
	var p *door.Problem
	if !errors.As(err, &p) || p.Code != code {
		t.Errorf("%v, and not %s", err, code)
	}
}

func open(t testing.TB, n *node, id string, shape cut) error {
	t.Helper()
	e, err := newEngine(id, shape.publication())
	if err != nil {
		t.Fatal(err)
	}
	if e.Client, err = door.Open(soon(t), e.options(n.socket)); err == nil {
		t.Cleanup(func() { e.leave(t) })
	}
	return err
}

func TestLimits(t *testing.T) {
	small := cut{tp: 1, pp: 1, blockTokens: 16, blocks: 64, layout: "LBHNC"}
	t.Run("connections", func(t *testing.T) {
		n := newCell(t, "tcp").start("n", func(o *doorserver.Options) { o.MaxConnections = 2 })
		if err := open(t, n, "one", small); err != nil {
			t.Fatal(err)
		}
		refusedWith(t, open(t, n, "two", small), "busy")
	})
	t.Run("engines", func(t *testing.T) {
		n := newCell(t, "tcp").start("n", func(o *doorserver.Options) { o.MaxEngines = 1 })
		if err := open(t, n, "one", small); err != nil {
			t.Fatal(err)
		}
		refusedWith(t, open(t, n, "two", small), "busy")
	})
	t.Run("regions", func(t *testing.T) {
		n := newCell(t, "tcp").start("n", func(o *doorserver.Options) { o.MaxRegions = 1 })
		refusedWith(t, open(t, n, "two-ranks", prefillCut), "busy")
		until(t, "nothing is left of it", n.empty)
	})
	t.Run("outstanding", func(t *testing.T) {
		c := newCell(t, "tcp")
		e := c.engine("e", c.start("n", func(o *doorserver.Options) { o.MaxOutstanding = 2 }), small)
		offer := func() (id [16]byte, err error) {
			id = agent.NewID()
			_, err = e.Offer(soon(t), door.Offer{Transfer: id, Tokens: prompt(16), Tables: [][]uint32{{1}}})
			return id, err
		}
		first, err := offer()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := offer(); err != nil {
			t.Fatal(err)
		}
		_, err = offer()
		refusedWith(t, err, "busy")
		if err := e.Cancel(soon(t), door.Cancel{Offered: first}); err != nil {
			t.Fatal(err)
		}
		e.hears(t, door.Freed, first)
		if _, err := offer(); err != nil {
			t.Errorf("after one has ended: %v", err)
		}
	})
	t.Run("handshake", func(t *testing.T) {
		n := newCell(t, "tcp").start("n", func(o *doorserver.Options) { o.Handshake = 50 * time.Millisecond })
		silent, err := net.Dial("unix", n.socket)
		if err != nil {
			t.Fatal(err)
		}
		defer silent.Close()
		wire := door.NewConn(silent.(*net.UnixConn))
		f, err := wire.Read(door.MaxFrameBytes)
		var m doorpb.Reply
		if err != nil || f.Unmarshal(&m) != nil || m.GetProblem().GetCode() != "malformed" || !strings.Contains(m.GetProblem().GetMessage(), "no Hello") {
			t.Errorf("whoever says nothing hears %v, %v", &m, err)
		}
		silent.Close()
		until(t, "it is gone", n.empty)
	})
}

// An engine that asks and does not read is cut off, and holds up nobody.
func TestEngineThatDoesNotRead(t *testing.T) {
	c := newCell(t, "tcp")
	n := c.start("n", func(o *doorserver.Options) { o.MaxBacklogBytes = 64 << 10 })
	good := c.engine("good", n, prefillCut)
	socket, err := net.Dial("unix", n.socket)
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	wire := door.NewConn(socket.(*net.UnixConn))
	hello := &doorpb.Hello{LowVersion: 1, HighVersion: 1, Engine: "deaf", As: &doorpb.Hello_Control{Control: &doorpb.Control{Role: "both"}}}
	if err := wire.Send(doorpb.FrameType_FRAME_TYPE_HELLO, hello, nil); err != nil {
		t.Fatal(err)
	}
	asked, err := door.AppendFrame(nil, doorpb.FrameType_FRAME_TYPE_CANCEL, &doorpb.Cancel{Request: 1})
	if err != nil {
		t.Fatal(err)
	}
	_ = socket.SetWriteDeadline(time.Now().Add(20 * time.Second))
	for err == nil {
		err = wire.Write(asked, nil)
	}
	until(t, "it is cut off", func() bool { return n.Metrics().Engines == 1 })
	if _, err := good.Offer(soon(t), door.Offer{Transfer: agent.NewID(), Tokens: prompt(16), Tables: [][]uint32{{1}}}); err != nil {
		t.Errorf("another engine: %v", err)
	}
}
