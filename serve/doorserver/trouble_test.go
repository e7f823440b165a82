package doorserver_test

import (
	"encoding/json"
	"errors"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"meridian/internal/require"
	"meridian/internal/until"
	"meridian/member/directory"
	"meridian/member/directory/memdir"
	"meridian/member/trust"
	"meridian/move/agent"
	"meridian/serve/door"
	"meridian/serve/door/doorpb"
	"meridian/serve/doorserver"
)

func addressOf(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }

// empty reports whether nothing is left of any engine.
func (n *node) empty() bool {
	m := n.Metrics()
	return m.Engines == 0 && m.Connections == 0 && len(n.agent.Regions()) == 0
}

func (n *node) record(t testing.TB, id string) (r directory.EngineRecord, there bool) {
	found, err := n.directory.Get(soon(t), directory.EnginePrefix+id)
	if errors.Is(err, directory.ErrNotFound) {
		return r, false
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(found.Value, &r); err != nil {
		t.Fatal(err)
	}
	return r, true
}

// An engine is killed in the middle of an accept. It is fenced at once, and the
// offer that it was taking is taken by the engine that comes in its place.
func TestEngineIsKilledWhileItTakes(t *testing.T) {
	for _, fabricName := range []string{"host", "tcp"} {
		t.Run(fabricName, func(t *testing.T) {
			c := newCell(t, fabricName)
			p, d := c.start("p"), c.start("d")
			from := c.engine("prefill", p, prefillCut)
			decode := c.process("decode", d, decodeCut)
			const tokens = 200
			id := [16]byte(agent.NewID())
			source := from.blocksFor(tokens)
			from.fill(source, tokens)
			// Half of the layers only, so that the accept stays in the middle.
			ticket, err := from.Offer(soon(t), door.Offer{Transfer: id, Tokens: prompt(tokens), Tables: [][]uint32{source}, Layers: 2})
			if err != nil {
				t.Fatal(err)
			}
			decode.do(order{Do: "accept", Ticket: ticket, Tokens: tokens})
			until.True(t, "the record is there", func() bool { _, there := d.record(t, "decode"); return there })
			before, _ := d.record(t, "decode")
			began := time.Now()
			decode.kill()
			until.True(t, "everything is fenced", func() bool { _, there := d.record(t, "decode"); return d.empty() && !there })
			if took := time.Since(began); took > 15*time.Second { // less than the lease of a hand-off
				t.Errorf("the fence took %v", took)
			}
			// At once another comes, and takes what the first could not.
			again := c.engine("decode", d, decodeCut)
			from.Progress(id, len(model.Layers), 0)
			until.True(t, "the offer is free for another", func() bool {
				_, err = again.Accept(soon(t), door.Accept{Ticket: ticket, Tokens: prompt(tokens), Tables: [][]uint32{again.blocksFor(tokens)}})
				if err != nil {
					t.Fatal(err)
				}
				e := again.heard(t, "ready or freed", func(e door.Event) bool { return e.Kind == door.Ready || e.Kind == door.Freed })
				return e.Kind == door.Ready
			})
			if wrong := again.wrong(again.blocksFor(tokens), tokens); wrong != 0 {
				t.Errorf("%d bytes are wrong", wrong)
			}
			from.hears(t, door.Freed, id)
			until.True(t, "the record is of the new one", func() bool {
				after, there := d.record(t, "decode")
				return there && after.Incarnation != before.Incarnation && after.Home == "d"
			})
		})
	}
}

// A prefill engine is killed while it is being taken from: the decode engine
// hears that it failed, and has its blocks back.
func TestEngineIsKilledWhileItGives(t *testing.T) {
	c := newCell(t, "tcp")
	p, d := c.start("p"), c.start("d")
	prefill := c.process("prefill", p, prefillCut)
	to := c.engine("decode", d, decodeCut)
	const tokens = 200
	id := [16]byte(agent.NewID())
	ticket := prefill.do(order{Do: "offer", ID: id[:], Tokens: tokens, Layers: 2}).Ticket
	if _, err := to.Accept(soon(t), door.Accept{Ticket: ticket, Tokens: prompt(tokens), Tables: [][]uint32{to.blocksFor(tokens)}}); err != nil {
		t.Fatal(err)
	}
	until.True(t, "some of it has moved", func() bool { return d.agent.Metrics().Done > 0 })
	prefill.kill()
	if e := to.hears(t, door.Failed, id); e.Problem == nil || e.Problem.Code != "withdrawn" {
		t.Errorf("%+v", e.Problem)
	}
	to.hears(t, door.Freed, id)
	until.True(t, "nothing is left of it", p.empty)
}

// The connections of a dead engine may live on in a child. The process is what
// counts.
func TestProcessEndsAndItsConnectionsDoNot(t *testing.T) {
	c := newCell(t, "tcp")
	n := c.start("n")
	dead := c.process("e", n, prefillCut, func(o *puppetOptions) { o.LeavesAChild = true })
	defer func() { _ = syscall.Kill(dead.child, syscall.SIGKILL) }()
	dead.kill()
	if err := syscall.Kill(dead.child, 0); err != nil {
		t.Fatalf("the child is gone too: %v", err)
	}
	until.True(t, "nothing is left of it", n.empty)
}

// Memory of another process that is no memfd.
func TestBorrowedMemory(t *testing.T) {
	c := newCell(t, "host")
	p, d := c.start("p"), c.start("d")
	prefill := c.process("prefill", p, prefillCut, func(o *puppetOptions) { o.Borrowed = true })
	decode := c.process("decode", d, decodeCut, func(o *puppetOptions) { o.Borrowed = true })
	const tokens = 200
	id := [16]byte(agent.NewID())
	ticket := prefill.do(order{Do: "offer", ID: id[:], Tokens: tokens, Layers: len(model.Layers)}).Ticket
	decode.do(order{Do: "accept", Ticket: ticket, Tokens: tokens})
	until.True(t, "it is ready", func() bool { return d.transceiver.Metrics().Ready == 1 })
	if wrong := decode.do(order{Do: "wrong", Tokens: tokens}).Wrong; wrong != 0 {
		t.Errorf("%d bytes are wrong", wrong)
	}
	decode.kill()
	until.True(t, "nothing is left of it", d.empty)
}

// An agent stops and another takes its place. The engine's client hears that all
// is freed, and registers again by itself.
func TestAgentRestarts(t *testing.T) {
	c := newCell(t, "tcp")
	p, d := c.start("p"), c.start("d")
	from, to := c.engine("prefill", p, prefillCut), c.engine("decode", d, decodeCut)
	handOver(t, from, to, 100, false)
	id := [16]byte(agent.NewID())
	ticket, err := from.Offer(soon(t), door.Offer{Transfer: id, Tokens: prompt(20), Tables: [][]uint32{{1, 2}}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := to.Accept(soon(t), door.Accept{Ticket: ticket, Tokens: prompt(20), Tables: [][]uint32{{3}}}); err != nil {
		t.Fatal(err)
	}
	to.hears(t, door.Serving, [16]byte{})
	d.stop(t)
	to.hears(t, door.Failed, id)
	to.hears(t, door.Freed, id)
	to.hears(t, door.Fenced, [16]byte{})
	if to.Serving() {
		t.Error("it serves without an agent")
	}
	if _, err := to.Accept(soon(t), door.Accept{Ticket: ticket}); !errors.Is(err, door.ErrNotServing) {
		t.Errorf("accepting without an agent: %v", err)
	}
	c.start("d")
	to.hears(t, door.Serving, [16]byte{})
	handOver(t, from, to, 100, false)
}

// An engine's ranks are processes of their own. The loss of one fences the whole
// engine, which is complete again when that rank is.
func TestRankIsKilled(t *testing.T) {
	c := newCell(t, "tcp")
	n := c.start("n")
	second := func(o *puppetOptions) { o.OnlyRank = 1 }
	rank := c.process("e", n, prefillCut, second)
	e := c.engine("e", n, prefillCut, func(o *door.Options) { o.Memory = o.Memory[:1] })
	e.hears(t, door.Serving, [16]byte{})
	id := [16]byte(agent.NewID())
	if _, err := e.Offer(soon(t), door.Offer{Transfer: id, Tokens: prompt(20), Tables: [][]uint32{{1, 2}}}); err != nil {
		t.Fatal(err)
	}
	rank.kill()
	e.hears(t, door.Freed, id)
	e.hears(t, door.Fenced, [16]byte{})
	if _, err := e.Offer(soon(t), door.Offer{Transfer: id, Tokens: prompt(20), Tables: [][]uint32{{1, 2}}}); err == nil {
		t.Error("an engine that lacks a rank offers something")
	}
	c.process("e", n, prefillCut, second)
	e.hears(t, door.Serving, [16]byte{})
}

// An id belongs to one living engine.
func TestSecondEngineIsRefused(t *testing.T) {
	c := newCell(t, "tcp")
	n := c.start("n")
	first := c.engine("e", n, prefillCut)
	second, err := newEngine("e", prefillCut.publication())
	if err != nil {
		t.Fatal(err)
	}
	_, err = door.Open(soon(t), second.options(n.socket))
	var refused *door.Problem
	if !errors.As(err, &refused) || refused.Code != "present" {
		t.Errorf("a second engine of the same id: %v", err)
	}
	if !first.Serving() {
		t.Error("it disturbed the first one")
	}
	first.leave(t)
	again, err := door.Open(soon(t), second.options(n.socket))
	if err != nil {
		t.Fatalf("after the first has left: %v", err)
	}
	second.Client = again
	second.leave(t)
}

// A directory that is away stops nothing; when it is back the engine is listed.
func TestDirectoryIsAway(t *testing.T) {
	c := newCell(t, "tcp")
	n := c.start("n")
	n.directory.SetOutage(memdir.Refused)
	from, to := c.engine("prefill", n, prefillCut), c.engine("decode", n, decodeCut)
	handOver(t, from, to, 100, false)
	n.directory.SetOutage(memdir.None)
	until.True(t, "both are listed", func() bool {
		_, one := n.record(t, "prefill")
		_, other := n.record(t, "decode")
		return one && other
	})
	n.directory.SetOutage(memdir.Silent)
	to.leave(t)
	n.directory.SetOutage(memdir.None)
}

// An agent that requires legs takes those that the gateway made for this engine,
// this part and this request.
func TestLegs(t *testing.T) {
	c := newCell(t, "tcp")
	n := c.start("n", func(o *doorserver.Options) { o.RequireLeg = true })
	lax := c.start("lax")
	from, to := c.engine("prefill", n, prefillCut), c.engine("decode", n, decodeCut)
	free := c.engine("free", lax, prefillCut)
	id := [16]byte(agent.NewID())
	offer := func(e *engine, id [16]byte, leg []byte) ([]byte, error) {
		return e.Offer(soon(t), door.Offer{Transfer: id, Tokens: prompt(20), Tables: [][]uint32{{1, 2}}, Layers: len(model.Layers), Leg: leg})
	}
	good := trust.Leg{Kind: trust.LegPrefill, ID: id, Engine: "prefill"}
	for name, leg := range map[string][]byte{
		"none":              nil,
		"of another cell":   good.Seal([32]byte{9}),
		"of another part":   trust.Leg{Kind: trust.LegDecode, ID: id, Engine: "prefill"}.Seal(legKey),
		"another engine's":  trust.Leg{Kind: trust.LegPrefill, ID: id, Engine: "decode"}.Seal(legKey),
		"another request's": trust.Leg{Kind: trust.LegPrefill, ID: [16]byte{1}, Engine: "prefill"}.Seal(legKey),
	} {
		var refused *door.Problem
		if _, err := offer(from, id, leg); !errors.As(err, &refused) || refused.Code != "leg" {
			t.Errorf("a leg %s: %v", name, err)
		}
	}
	ticket, err := offer(from, id, good.Seal(legKey))
	if err != nil {
		t.Fatal(err)
	}
	accept := door.Accept{Ticket: ticket, Tokens: prompt(20), Tables: [][]uint32{{3}}}
	var refused *door.Problem
	if _, err := to.Accept(soon(t), accept); !errors.As(err, &refused) || refused.Code != "leg" {
		t.Errorf("accepting without a leg: %v", err)
	}
	accept.Leg = trust.Leg{Kind: trust.LegDecode, ID: [16]byte{1}, Engine: "decode"}.Seal(legKey)
	if _, err := to.Accept(soon(t), accept); !errors.As(err, &refused) || refused.Code != "leg" {
		t.Errorf("accepting with another transfer's leg: %v", err)
	}
	if _, err := offer(from, id, good.Seal(legKey)); err != nil {
		t.Errorf("repeating an offer that stands: %v", err)
	}
	accept.Leg = trust.Leg{Kind: trust.LegDecode, ID: id, Engine: "decode"}.Seal(legKey)
	if _, err := to.Accept(soon(t), accept); err != nil {
		t.Error(err)
	}
	to.hears(t, door.Ready, id)
	from.hears(t, door.Freed, id)
	if _, err := offer(from, id, good.Seal(legKey)); !errors.As(err, &refused) || refused.Code != "leg" {
		t.Errorf("a second offer with one leg: %v", err)
	}
	// Where none is required one that is there is checked all the same.
	if _, err := offer(free, agent.NewID(), nil); err != nil {
		t.Error(err)
	}
	if _, err := offer(free, agent.NewID(), []byte("forged")); !errors.As(err, &refused) || refused.Code != "leg" {
		t.Errorf("a forged leg: %v", err)
	}
	if got := n.Metrics().Refused["leg"]; got != 8 {
		t.Errorf("%d refusals are counted", got)
	}
}

// The kernel says who dials, and only those come in whom the agent's user allows.
func TestDoorIsForUsersThatAreAllowed(t *testing.T) {
	c := newCell(t, "tcp")
	for name, want := range map[string]os.FileMode{"own": 0o600, "shared": 0o666} {
		n := c.start(name, func(o *doorserver.Options) {
			if want == 0o666 {
				o.AllowUIDs = []uint32{12345}
			}
		})
		info, err := os.Stat(n.socket)
		if err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v", name, info.Mode(), err)
		}
	}
	if os.Geteuid() != 0 {
		require.Skip(t, "root", "only root can be another user")
	}
	if err := os.Chmod(c.dir, 0o711); err != nil {
		t.Fatal(err)
	}
	for uid, code := range map[int]string{12345: "", 12346: "denied"} {
		wire, err := dialAs(uid, filepath.Join(c.dir, "shared.sock"))
		if err != nil {
			t.Fatal(err)
		}
		hello := &doorpb.Hello{LowVersion: 1, HighVersion: 1, Engine: "e", As: &doorpb.Hello_Control{Control: &doorpb.Control{Role: "both"}}}
		if err := wire.Send(doorpb.FrameType_FRAME_TYPE_HELLO, hello, nil); err != nil {
			t.Fatal(err)
		}
		f, err := wire.Read(door.MaxFrameBytes)
		if err != nil {
			t.Fatal(err)
		}
		var m doorpb.Reply
		if f.Type == doorpb.FrameType_FRAME_TYPE_REPLY {
			if err := f.Unmarshal(&m); err != nil {
				t.Fatal(err)
			}
		}
		if got := m.GetProblem().GetCode(); got != code {
			t.Errorf("user %d: %q", uid, got)
		}
		wire.Close()
	}
	if _, err := dialAs(12346, filepath.Join(c.dir, "own.sock")); !errors.Is(err, os.ErrPermission) {
		t.Errorf("another user dials a door that is not shared: %v", err)
	}
}

// dialAs dials as another user: one thread of this process is him meanwhile.
func dialAs(uid int, socket string) (*door.Conn, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	become := func(uid int) error {
		if _, _, errno := syscall.RawSyscall(syscall.SYS_SETRESUID, ^uintptr(0), uintptr(uid), ^uintptr(0)); errno != 0 {
			return errno
		}
		return nil
	}
	if err := become(uid); err != nil {
		return nil, err
	}
	conn, err := net.Dial("unix", socket)
	if back := become(0); back != nil {
		panic(back) // this thread must not go on as another user
	}
	if err != nil {
		return nil, err
	}
	return door.NewConn(conn.(*net.UnixConn)), nil
}
