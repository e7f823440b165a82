package doorserver_test

import (
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"meridian/internal/until"
	"meridian/move/agent"
	"meridian/move/transceiver/handoff"
	"meridian/serve/door"
	"meridian/serve/door/doorpb"
	"meridian/serve/doorserver"
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

// lendOn lends a new memfd of that size.
func lendOn(wire *door.Conn, size int64, m *doorpb.Lend) error {
	file, err := (&memfd{Name: "lent"}).make()
	if err != nil {
		return err
	}
	defer file.Close()
	if err := file.Truncate(size); err != nil {
		return err
	}
	if _, err := unix.FcntlInt(file.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW); err != nil {
		return err
	}
	m.SizeBytes, m.Kind = uint64(size), &doorpb.Lend_Memfd{Memfd: &doorpb.MemFD{}}
	return wire.Send(doorpb.FrameType_FRAME_TYPE_LEND, m, file)
}

// lendSparse lends files of that size that have no memory yet, as one rank, and
// compares the codes of the answers.
func lendSparse(t testing.TB, n *node, size int64, codes ...string) {
	t.Helper()
	wire, _ := greet(t, n, &doorpb.Hello{Engine: "sparse", As: &doorpb.Hello_Rank{Rank: &doorpb.Rank{Ranks: 1}}})
	defer wire.Close()
	for i, want := range codes {
		if err := lendOn(wire, size, &doorpb.Lend{Request: uint64(i + 1), More: true}); err != nil {
			t.Fatal(err)
		}
		f, err := wire.Read(door.MaxFrameBytes)
		if err != nil {
			t.Fatal(err)
		}
		if got := codeOf(t, f); got != want {
			t.Errorf("loan %d of %d bytes: %q, and not %q", i+1, size, got, want)
		}
	}
}

// Files without memory take the agent's addresses; it must keep enough for itself.
func TestAddressesAreBounded(t *testing.T) {
	n := newCell(t, "tcp").start("n", func(o *doorserver.Options) { o.MaxLentBytes = 1 << 62 })
	lendSparse(t, n, 1<<44, "", "", "busy")
	until.True(t, "nothing is left", n.empty)
	lendSparse(t, n, 1<<45, "", "busy") // all of it was returned
	until.True(t, "nothing is left", n.empty)
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
		until.True(t, "nothing is left of it", n.empty)
	})
	t.Run("bytes", func(t *testing.T) {
		n := newCell(t, "tcp").start("n", func(o *doorserver.Options) { o.MaxLentBytes = 32 << 10 })
		lendSparse(t, n, 20<<10, "", "busy")
		lendSparse(t, n, 16<<10, "", "", "busy")
		lendSparse(t, n, 1<<62, "size", "size")
		until.True(t, "nothing is left", n.empty)
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
			t.Errorf("a client that says nothing hears %v, %v", &m, err)
		}
		silent.Close()
		until.True(t, "it is gone", n.empty)
	})
}

// greet dials a door and says Hello, and returns the connection and the answer.
func greet(t testing.TB, n *node, hello *doorpb.Hello) (*door.Conn, door.Frame) {
	t.Helper()
	socket, err := net.Dial("unix", n.socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { socket.Close() })
	_ = socket.SetDeadline(time.Now().Add(time.Minute))
	wire := door.NewConn(socket.(*net.UnixConn))
	hello.LowVersion, hello.HighVersion = 1, 1
	if err := wire.Send(doorpb.FrameType_FRAME_TYPE_HELLO, hello, nil); err != nil {
		t.Fatal(err)
	}
	f, err := wire.Read(door.MaxFrameBytes)
	if err != nil {
		t.Fatal(err)
	}
	return wire, f
}

func codeOf(t testing.TB, f door.Frame) string {
	t.Helper()
	var m doorpb.Reply
	if err := f.Unmarshal(&m); f.Type != doorpb.FrameType_FRAME_TYPE_REPLY || err != nil {
		t.Fatalf("%v came, %v", f.Type, err)
	}
	return m.GetProblem().GetCode()
}

// What a connection says of itself is bounded.
func TestHelloIsBounded(t *testing.T) {
	n := newCell(t, "tcp").start("n")
	as := &doorpb.Hello_Control{Control: &doorpb.Control{Role: "both"}}
	long := strings.Repeat("x", 2<<10)
	for name, hello := range map[string]*doorpb.Hello{
		"features":      {Engine: "e", As: as, Features: make([]string, 30000)},
		"one feature":   {Engine: "e", As: as, Features: []string{long}},
		"engine":        {Engine: long, As: as},
		"software":      {Engine: "e", As: as, Software: long},
		"url and model": {Engine: "e", As: &doorpb.Hello_Control{Control: &doorpb.Control{Role: "both", Url: long, Model: long}}},
	} {
		if _, f := greet(t, n, hello); codeOf(t, f) != "terms" {
			t.Errorf("%s: %s", name, codeOf(t, f))
		}
	}
	if _, f := greet(t, n, &doorpb.Hello{Engine: "e", As: as, Features: make([]string, 40000)}); codeOf(t, f) != "malformed" {
		t.Error("a Hello of 80 kB is read")
	}
	until.True(t, "nothing is left", n.empty)
}

// An engine under an id of the object cache, which would keep that out, is refused.
func TestEngineIsNoStore(t *testing.T) {
	n := newCell(t, "tcp").start("n")
	for _, id := range []string{handoff.StorePrefix, handoff.StorePrefix + "n", handoff.StorePrefix + "n/0123456789abcdef"} {
		for _, hello := range []*doorpb.Hello{
			{Engine: id, As: &doorpb.Hello_Control{Control: &doorpb.Control{Role: "both"}}},
			{Engine: id, As: &doorpb.Hello_Rank{Rank: &doorpb.Rank{Ranks: 1}}},
		} {
			if _, f := greet(t, n, hello); codeOf(t, f) != door.CodeTerms {
				t.Errorf("%s: %s", id, codeOf(t, f))
			}
		}
	}
	until.True(t, "nothing is left", n.empty)
}

// Clients that are no engines cannot crowd engines out, and ask for the status.
func TestClients(t *testing.T) {
	c := newCell(t, "tcp")
	n := c.start("n", func(o *doorserver.Options) { o.MaxClients = 2 })
	c.engine("e", n, decodeCut)
	status, err := door.AskStatus(soon(t), n.socket, "test")
	if err != nil || status.Agent != "n" || status.Engines != 1 || status.Serving != 1 {
		t.Errorf("%+v, %v", status, err)
	}
	until.True(t, "it has gone", func() bool { return n.Metrics().Connections == status.Connections-1 })
	as := &doorpb.Hello_Client{Client: &doorpb.Client{}}
	for range 2 {
		if _, f := greet(t, n, &doorpb.Hello{As: as}); f.Type != doorpb.FrameType_FRAME_TYPE_WELCOME {
			t.Fatalf("%v came", f.Type)
		}
	}
	if _, f := greet(t, n, &doorpb.Hello{As: as}); codeOf(t, f) != "busy" {
		t.Errorf("a third client hears %s", codeOf(t, f))
	}
	if m := n.Metrics(); m.Serving != 1 || m.Fenced != 0 {
		t.Errorf("%+v", m)
	}
}

// Ranks and clients have nothing long to say, nor has a step no end.
func TestFramesAreBounded(t *testing.T) {
	n := newCell(t, "tcp").start("n")
	for name, hello := range map[string]*doorpb.Hello{
		"rank":   {Engine: "r", As: &doorpb.Hello_Rank{Rank: &doorpb.Rank{Ranks: 1}}},
		"client": {As: &doorpb.Hello_Client{Client: &doorpb.Client{}}},
	} {
		wire, _ := greet(t, n, hello)
		_ = wire.Send(doorpb.FrameType_FRAME_TYPE_OFFER, &doorpb.Offer{Request: 1, Tokens: make([]uint32, 1<<20)}, nil) // it is hung up on meanwhile
		if f, err := wire.Read(door.MaxFrameBytes); err == nil && codeOf(t, f) != "malformed" {
			t.Errorf("a long frame of a %s: %s", name, codeOf(t, f))
		}
	}
	wire, _ := greet(t, n, &doorpb.Hello{Engine: "c", As: &doorpb.Hello_Control{Control: &doorpb.Control{Role: "both"}}})
	if err := wire.Send(doorpb.FrameType_FRAME_TYPE_ACCEPT, &doorpb.Accept{Request: 1, Ticket: make([]byte, 15<<20)}, nil); err != nil {
		t.Fatal(err)
	}
	f, err := wire.Read(door.MaxFrameBytes)
	if err != nil || codeOf(t, f) != "order" { // it was read, and does not serve yet
		t.Errorf("a long frame of control: %v", err)
	}
}

// An engine that asks and does not read is cut off, and holds up no other.
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
	_ = socket.SetWriteDeadline(time.Now().Add(time.Minute))
	for err == nil {
		err = wire.Write(asked, nil)
	}
	until.True(t, "it is cut off", func() bool { return n.Metrics().Engines == 1 })
	if _, err := good.Offer(soon(t), door.Offer{Transfer: agent.NewID(), Tokens: prompt(16), Tables: [][]uint32{{1}}}); err != nil {
		t.Errorf("another engine: %v", err)
	}
}
