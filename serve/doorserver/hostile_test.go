package doorserver_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"meridian/internal/until"
	"meridian/kv"
	"meridian/move/agent"
	"meridian/serve/door"
	"meridian/serve/door/doorpb"
	"meridian/serve/doorserver"
)

// hostile makes frames of an engine that means harm: every field of every message
// at its edges, in any order.
type hostile struct{ *rand.Rand }

var requests = map[doorpb.FrameType]func() proto.Message{
	doorpb.FrameType_FRAME_TYPE_HELLO:    func() proto.Message { return &doorpb.Hello{} },
	doorpb.FrameType_FRAME_TYPE_LEND:     func() proto.Message { return &doorpb.Lend{} },
	doorpb.FrameType_FRAME_TYPE_PUBLISH:  func() proto.Message { return &doorpb.Publish{} },
	doorpb.FrameType_FRAME_TYPE_OFFER:    func() proto.Message { return &doorpb.Offer{} },
	doorpb.FrameType_FRAME_TYPE_ACCEPT:   func() proto.Message { return &doorpb.Accept{} },
	doorpb.FrameType_FRAME_TYPE_PROGRESS: func() proto.Message { return &doorpb.Progress{} },
	doorpb.FrameType_FRAME_TYPE_CANCEL:   func() proto.Message { return &doorpb.Cancel{} },
	doorpb.FrameType_FRAME_TYPE_STEP:     func() proto.Message { return &doorpb.Step{} },
	doorpb.FrameType_FRAME_TYPE_STATUS:   func() proto.Message { return &doorpb.Status{} },
	doorpb.FrameType_FRAME_TYPE_STORE:    func() proto.Message { return &doorpb.Store{} },
	doorpb.FrameType_FRAME_TYPE_KEEP:     func() proto.Message { return &doorpb.Keep{} },
	doorpb.FrameType_FRAME_TYPE_FIND:     func() proto.Message { return &doorpb.Find{} },
}

func (h hostile) number() uint64 {
	edges := []uint64{0, 1, 2, 3, 15, 16, 17, 1 << 10, 1 << 20, math.MaxInt32, math.MaxInt32 + 1, math.MaxUint32, math.MaxInt64, math.MaxUint64}
	return edges[h.IntN(len(edges))]
}

func (h hostile) text() string {
	texts := []string{"", "e", "both", "fp32", "LBHNC", "plain", "key_value", "MRDT\x01", "MRDP\x01", "a/b", "\x00", "0123456789abcdef", string(make([]byte, 16)), string(make([]byte, 3000))}
	return texts[h.IntN(len(texts))]
}

func (h hostile) scalar(field protoreflect.FieldDescriptor) protoreflect.Value {
	switch field.Kind() {
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(h.IntN(2) == 0)
	case protoreflect.Int32Kind:
		return protoreflect.ValueOfInt32(int32(h.number()))
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(protoreflect.EnumNumber(int32(h.number())))
	case protoreflect.Uint32Kind:
		return protoreflect.ValueOfUint32(uint32(h.number()))
	case protoreflect.Uint64Kind:
		return protoreflect.ValueOfUint64(h.number())
	case protoreflect.FloatKind:
		return protoreflect.ValueOfFloat32(math.Float32frombits(uint32(h.number())))
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(h.text())
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes([]byte(h.text()))
	}
	panic(field.Kind())
}

func (h hostile) fill(m protoreflect.Message) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		field := fields.Get(i)
		switch {
		case h.IntN(5) == 0:
		case field.IsList():
			list := m.Mutable(field).List()
			for range h.IntN(4) {
				if field.Message() == nil {
					list.Append(h.scalar(field))
					continue
				}
				h.fill(list.AppendMutable().Message())
			}
		case field.Message() != nil:
			h.fill(m.Mutable(field).Message())
		default:
			m.Set(field, h.scalar(field))
		}
	}
}

// frame is one frame, now and then with bytes of it changed.
func (h hostile) frame(t testing.TB) []byte {
	kind := doorpb.FrameType(h.IntN(18))
	m := proto.Message(&doorpb.Reply{})
	if of, is := requests[kind]; is {
		m = of()
	}
	h.fill(m.ProtoReflect())
	wire, err := door.AppendFrame(nil, kind, m)
	if err != nil {
		t.Fatal(err)
	}
	if h.IntN(4) == 0 && len(wire) > 6 {
		wire[6+h.IntN(len(wire)-6)] ^= byte(1 + h.IntN(255))
	}
	return wire
}

// plausible is a frame of an engine that serves, with something wrong in it.
func (h hostile) plausible(t testing.TB) []byte {
	m := &doorpb.Offer{}
	h.fill(m.ProtoReflect())
	m.Transfer, m.Leg = []byte("0123456789abcdef"), nil
	m.Transfer[0] = byte(h.IntN(8))
	if h.IntN(2) == 0 { // nothing is wrong with it but its times
		m.Tokens, m.Tables, m.Dp, m.Layers, m.ComputedTokens, m.Scope = prompt(16), []*doorpb.Table{{Blocks: []uint32{1}}}, 0, 0, 0, nil
	}
	said := []proto.Message{
		m, &doorpb.Cancel{Request: 1, What: &doorpb.Cancel_Offered{Offered: m.Transfer}}, &doorpb.Progress{Transfer: m.Transfer, Layers: uint32(h.number())},
		&doorpb.Step{Number: h.Uint64(), Sequences: []uint64{1}, Counts: []uint32{uint32(h.number())}}, h.store(),
		&doorpb.Keep{Request: 2, Transfer: m.Transfer, Tokens: m.Tokens, Tables: m.Tables, Dp: m.Dp, Scope: m.Scope},
		&doorpb.Find{Request: 3, Tokens: m.Tokens, PresentTokens: uint32(h.number()), DeadlineUs: uint32(h.number()), Scope: m.Scope},
		&doorpb.Accept{Request: 4, Ticket: door.FoundTicket(kv.ID(m.Transfer)), Tokens: m.Tokens, Tables: m.Tables},
	}
	kinds := []doorpb.FrameType{
		doorpb.FrameType_FRAME_TYPE_OFFER, doorpb.FrameType_FRAME_TYPE_CANCEL, doorpb.FrameType_FRAME_TYPE_PROGRESS, doorpb.FrameType_FRAME_TYPE_STEP,
		doorpb.FrameType_FRAME_TYPE_STORE, doorpb.FrameType_FRAME_TYPE_KEEP, doorpb.FrameType_FRAME_TYPE_FIND, doorpb.FrameType_FRAME_TYPE_ACCEPT,
	}
	i := h.IntN(len(said))
	wire, err := door.AppendFrame(nil, kinds[i], said[i])
	if err != nil {
		t.Fatal(err)
	}
	return wire
}

// store asks the object cache for any of what it does, with columns of any lengths.
func (h hostile) store() *doorpb.Store {
	m := &doorpb.Store{}
	h.fill(m.ProtoReflect())
	choices := m.ProtoReflect().Descriptor().Oneofs().ByName("what").Fields()
	h.fill(m.ProtoReflect().Mutable(choices.Get(h.IntN(choices.Len()))).Message())
	key, at, size := []byte(h.text()), h.number(), h.number()
	switch h.IntN(4) { // the columns fit
	case 0:
		m.What = &doorpb.Store_Put{Put: &doorpb.StorePut{Keys: [][]byte{key}, Addresses: []uint64{at}, Sizes: []uint64{size}}}
	case 1:
		m.What = &doorpb.Store_Get{Get: &doorpb.StoreGet{Keys: [][]byte{key, key}, Addresses: []uint64{at, at}, Sizes: []uint64{size, 0}}}
	}
	m.DeadlineMs %= 100 // else what is slow would wait for the end
	return m
}

// step is a Step with something wrong in it, or with nothing: of sequences, blocks and
// tokens that may be there.
func (h hostile) step(t testing.TB, number *uint64, measures bool) []byte {
	m := &doorpb.Step{}
	h.fill(m.ProtoReflect())
	if h.IntN(8) > 0 {
		*number++
		m.Number = *number
	}
	if h.IntN(8) > 0 { // its columns fit
		n := h.IntN(4)
		m.Sequences, m.Computed, m.Counts, m.Places, m.BlockCounts, m.Forked, m.ForkNats = nil, nil, nil, nil, nil, nil, nil
		m.Tokens, m.Entropies, m.Blocks, m.Forced, m.ForcedFor = nil, nil, nil, nil, nil
		for range n {
			m.Sequences = append(m.Sequences, uint64(h.IntN(6)))
			m.Counts = append(m.Counts, 1)
			m.Entropies = append(m.Entropies, math.Float32frombits(h.Uint32()))
			if measures {
				m.Places = append(m.Places, uint32(h.number()))
				m.Forced, m.ForcedFor = append(m.Forced, uint64(h.IntN(6))), append(m.ForcedFor, doorpb.ForceReason(h.IntN(5)))
				continue
			}
			m.Computed, m.Tokens = append(m.Computed, uint32(h.number())), append(m.Tokens, uint32(h.number()))
			m.BlockCounts, m.Blocks = append(m.BlockCounts, 1), append(m.Blocks, uint32(h.IntN(70)))
		}
		if measures {
			m.Begun, m.Evicted, m.Finished, m.Stopped, m.Copied, m.Recalled = nil, nil, nil, nil, nil, nil
		}
	}
	for _, b := range m.Begun {
		b.Sequence = uint64(h.IntN(6))
	}
	wire, err := door.AppendFrame(nil, doorpb.FrameType_FRAME_TYPE_STEP, m)
	if err != nil {
		t.Fatal(err)
	}
	return wire
}

// serve makes the engine of a control complete, if it lets itself be.
func (h hostile) serve(t testing.TB, n *node, control *door.Conn) *door.Conn {
	publication := smallCut.publication()
	size, err := sideOf(publication).MemoryBytes(0)
	if err != nil {
		t.Fatal(err)
	}
	rank, f := greet(t, n, &doorpb.Hello{Engine: "bad", As: &doorpb.Hello_Rank{Rank: &doorpb.Rank{Ranks: 1}}})
	if f.Type == doorpb.FrameType_FRAME_TYPE_WELCOME && lendOn(rank, int64(size), &doorpb.Lend{}) == nil {
		_ = control.Send(doorpb.FrameType_FRAME_TYPE_PUBLISH, publication.Message(), nil)
		thrownOut := make(chan struct{})
		go func() {
			defer close(thrownOut)
			for err := error(nil); err == nil; _, err = rank.Read(door.MaxFrameBytes) {
			}
		}()
		until.True(t, "it serves, or is thrown out", func() bool {
			select {
			case <-thrownOut:
				return true
			default:
				return n.Metrics().Serving == 2
			}
		})
	}
	return rank
}

// attack comes in as one of four and says whatever comes to mind, until it is
// thrown out or has said enough.
func (h hostile) attack(t testing.TB, n *node, hello *doorpb.Hello) {
	serves := hello.GetControl() != nil && h.IntN(4) > 0
	if serves { // what it was before is not being fenced, and this with it
		until.True(t, "nothing is left of it", func() bool { return n.Metrics().Engines == 1 })
	}
	wire, f := greet(t, n, hello)
	defer wire.Close()
	if f.Type != doorpb.FrameType_FRAME_TYPE_WELCOME {
		return
	}
	file, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if serves {
		defer h.serve(t, n, wire).Close()
	}
	number := uint64(0)
	for range 1 + h.IntN(60) {
		said, with := h.plausible(t), (*os.File)(nil)
		if hello.GetSteps() != nil {
			said = h.step(t, &number, hello.GetSteps().GetMeasures())
		}
		if h.IntN(10) == 0 {
			said = h.frame(t)
		}
		if h.IntN(8) == 0 {
			with = file
		}
		if wire.Write(said, with) != nil {
			return
		}
	}
	if h.IntN(2) == 0 {
		return // at once: what the agent has not read is lost
	}
	_ = wire.Socket().CloseWrite()
	for err == nil {
		_, err = wire.Read(door.MaxFrameBytes)
	}
}

var smallCut = cut{tp: 1, pp: 1, blockTokens: 16, blocks: 64, layout: "LBHNC"}

// Whatever an engine says, in whatever order, the agent stays, the engines of
// others serve, and nothing is left of it.
func TestHostileEngine(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	h := hostile{rand.New(rand.NewPCG(seed, 1))}
	c := newCell(t, "tcp")
	cache := newFakeCache()
	offload := &fakeOffload{joined: make(map[string]bool)} // finds nothing
	n := c.start("n", func(o *doorserver.Options) {
		o.Cache, o.Offload, offload.relay, o.Governor = cache, offload, o.Relay, newGovernors(t)
	})
	good := c.engine("good", n, prefillCut)
	steps, err := door.OpenSteps(soon(t), door.StepsOptions{Socket: n.socket, Engine: "good", About: &doorpb.Steps{BlockTokens: 16, MaxRunning: 8, StepTokens: 64}})
	if err != nil {
		t.Fatal(err)
	}
	defer steps.Close()
	connections := n.Metrics().Connections
	offered := false
	lacking := func() string { // what no attack has come to yet
		kept, finds := offload.count(func() int { return len(offload.kept) }), offload.count(func() int { return offload.finds })
		if m := n.Metrics(); !offered || cache.read(&cache.asked) == 0 || kept == 0 || finds == 0 || m.StepsDecided == 0 || m.StepsRefused == 0 {
			return fmt.Sprintf("it has come as far as an offer (%v), %d times to the cache, %d to Keep, %d to Find; %d of its steps were decided, %d refused",
				offered, cache.read(&cache.asked), kept, finds, m.StepsDecided, m.StepsRefused)
		}
		return ""
	}
	attack := func() {
		hello := &doorpb.Hello{Engine: "bad", As: &doorpb.Hello_Control{Control: &doorpb.Control{Role: "both"}}}
		switch h.IntN(5) {
		case 0:
			hello.As = &doorpb.Hello_Rank{Rank: &doorpb.Rank{Index: uint32(h.IntN(3)), Ranks: uint32(h.IntN(3))}}
		case 1:
			hello.Engine, hello.As, hello.Features = "", &doorpb.Hello_Client{Client: &doorpb.Client{}}, []string{"store"}
		case 2:
			about := &doorpb.Steps{}
			h.fill(about.ProtoReflect())
			if h.IntN(4) > 0 {
				about.Model, about.Blocks, about.BlockTokens, about.MaxRunning, about.StepTokens = "m", 64, 16, 8, 64
			}
			hello.As, hello.Features = &doorpb.Hello_Steps{Steps: about}, []string{"steps"}
		}
		h.attack(t, n, hello)
		offered = offered || n.transceiver.Metrics().Offered > 0
	}
	for range 80 {
		attack()
	}
	until.Well(t, "it has come everywhere", func() string { // which is a matter of chance
		if lacking() != "" {
			attack()
		}
		return lacking()
	})
	until.True(t, "nothing is left open", func() bool { return cache.opened() == 0 })
	until.True(t, "nothing is left of it", func() bool { m := n.Metrics(); return m.Engines == 1 && m.Connections == connections })
	if _, err := good.Offer(soon(t), door.Offer{Transfer: agent.NewID(), Tokens: prompt(16), Tables: [][]uint32{{1}}}); err != nil {
		t.Errorf("another engine: %v", err)
	}
	if steps.Renewed(); !steps.Send(&doorpb.Step{Number: 1, Begun: []*doorpb.Begun{{Sequence: 1, PromptTokens: 4}}}) {
		t.Error("another engine is not governed any more")
	}
	if come := steps.Take(time.Minute); len(come) != 1 || len(come[0].GetOrder()) != 1 {
		t.Errorf("another engine: %v", come)
	}
}

// lingering is a connection whose last close waits for a minute: more was written
// than the other side reads.
func lingering(t *testing.T) *os.File {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	dialled, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer dialled.Close()
	silent, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { silent.Close() })
	_ = dialled.SetWriteDeadline(time.Now().Add(200 * time.Millisecond))
	for err == nil {
		_, err = dialled.Write(make([]byte, 1<<20))
	}
	file, err := dialled.(*net.TCPConn).File()
	if err == nil {
		err = unix.SetsockoptLinger(int(file.Fd()), unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1, Linger: 60})
	}
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// A descriptor that came along and is not wanted holds nothing up when it is closed.
func TestDescriptorThatLingers(t *testing.T) {
	n := newCell(t, "tcp").start("n")
	wire, _ := greet(t, n, &doorpb.Hello{Engine: "e", As: &doorpb.Hello_Control{Control: &doorpb.Control{Role: "both"}}})
	file := lingering(t)
	if err := wire.Send(doorpb.FrameType_FRAME_TYPE_STATUS, &doorpb.Status{Request: 1}, file); err != nil {
		t.Fatal(err)
	}
	file.Close() // the agent closes last, or has taken the lingering off
	if err := wire.Send(doorpb.FrameType_FRAME_TYPE_STATUS, &doorpb.Status{Request: 2}, nil); err != nil {
		t.Fatal(err)
	}
	for _, code := range []string{"unsupported", ""} {
		f, err := wire.Read(door.MaxFrameBytes)
		if err != nil || codeOf(t, f) != code {
			t.Fatalf("%v, and not %q", err, code)
		}
	}
}
