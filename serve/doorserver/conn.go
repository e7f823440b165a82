package doorserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"meridian/serve/door"
	"meridian/serve/door/doorpb"
)

// conn is one connection: of an engine, or of a client that is none.
type conn struct {
	server  *Server
	wire    *door.Conn
	peer    peer
	outbox  *outbox
	desk    *storeRequests
	quiet   chan struct{} // closed when nothing of its engine is touched any more
	release sync.Once

	engine   *engine // once it has come in; of a client always nil; under the server's mu
	rank     int     // its number, or control, or client, or forSteps
	version  uint32
	features []string // that both sides have

	vramDevice uint32 // of all GPU memory that it lends; the reader's
	steps      *steps // where it is for steps
}

// The ranks of connections that are none.
const (
	control  = -1
	client   = -2
	forSteps = -3
)

// as says what the connection is, for the log.
func (c *conn) as() string {
	switch c.rank {
	case control:
		return "control"
	case client:
		return "client"
	case forSteps:
		return "steps"
	}
	return fmt.Sprintf("rank %d", c.rank)
}

// engineID is for the log; a client has none.
func (c *conn) engineID() string {
	switch {
	case c.steps != nil:
		return c.steps.engine
	case c.engine != nil:
		return c.engine.id
	}
	return ""
}

// maxSmallBytes bounds the first frame, which strangers send, and every frame of
// those that have nothing long to say. Control has: it sends prompts. Clients of the
// object cache have, too: objects; and so have those that tell of steps.
const maxSmallBytes = 64 << 10

func (c *conn) maxFrameBytes() int {
	switch {
	case c.rank == control:
		return door.MaxFrameBytes
	case c.rank == client && slices.Contains(c.features, door.FeatureStore):
		return door.MaxStoreBytes
	case c.rank == forSteps:
		return door.MaxStepBytes
	}
	return maxSmallBytes
}

func newConn(s *Server, wire *door.Conn) *conn {
	c := &conn{server: s, wire: wire, outbox: newOutbox(s.options.MaxBacklogBytes), quiet: make(chan struct{}), rank: control}
	c.desk = newStoreRequests(c)
	return c
}

// run is the connection's life.
func (c *conn) run() {
	s := c.server
	defer c.forget()
	if p := c.handshake(); p != nil {
		s.refuse(c, p)
		c.drainRefused()
		return
	}
	if c.rank == forSteps {
		c.runSteps()
		return
	}
	written := make(chan struct{})
	s.wait.Go(func() {
		defer close(written)
		c.write()
	})
	s.wait.Go(func() {
		if c.peer.waitExit() {
			s.lost(c, "its process has ended")
		}
	})
	s.lost(c, c.read())
	c.desk.end()
	<-written
}

func (c *conn) forget() {
	_ = c.wire.Close()
	c.desk.end()
	c.outbox.drop()
	if c.peer.process != nil {
		c.peer.stopWatching()
		_ = c.peer.process.Close()
	}
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	delete(c.server.conns, c)
}

// drainRefused lets the refused finish what it is saying, so that it gets to read
// why.
func (c *conn) drainRefused() {
	_ = c.wire.Socket().CloseWrite()
	_ = c.wire.Socket().SetReadDeadline(time.Now().Add(time.Second))
	_, _ = io.CopyN(io.Discard, c.wire.Socket(), 1<<20)
}

// handshake asks the kernel which process dialled, reads its Hello and lets it in.
func (c *conn) handshake() *door.Problem {
	s := c.server
	var err error
	if c.peer, err = peerOf(c.wire.Socket()); err != nil {
		return problem(door.CodeDenied, "it cannot be told who is at the other end: %v", err)
	}
	if uid := uint32(os.Geteuid()); c.peer.uid != uid && !slices.Contains(s.options.AllowUIDs, c.peer.uid) {
		p := problem(door.CodeDenied, "the agent runs as user %d, and user %d is not one whose engines it takes", uid, c.peer.uid)
		p.Hint = "add it to door.allow_uids"
		return p
	}
	if c.peer.guessed {
		s.options.Logger.Info("this kernel does not tell which process connected (SO_PEERPIDFD, Linux 6.5); its number is used", "peer", c.peer.String())
	}
	_ = c.wire.Socket().SetReadDeadline(time.Now().Add(s.options.Handshake))
	f, err := c.wire.Read(maxSmallBytes)
	if err != nil {
		return problem(door.CodeMalformed, "no Hello: %v", err)
	}
	f.Close()
	_ = c.wire.Socket().SetReadDeadline(time.Time{})
	var hello doorpb.Hello
	if f.Type != doorpb.FrameType_FRAME_TYPE_HELLO {
		return problem(door.CodeOrder, "%v came where Hello was due", f.Type)
	}
	if err := f.UnmarshalRequest(&hello); err != nil {
		return problemOf(err)
	}
	var p *door.Problem
	if c.version, c.features, p = door.Agree(hello.GetLowVersion(), hello.GetHighVersion(), hello.GetFeatures()); p != nil {
		return p
	}
	c.features = slices.DeleteFunc(c.features, func(f string) bool {
		return f == door.FeatureStore && s.options.Cache == nil || f == door.FeatureCache && s.options.Offload == nil ||
			f == door.FeatureSteps && s.options.Governor == nil
	})
	for _, text := range []string{hello.GetSoftware(), hello.GetControl().GetUrl(), hello.GetControl().GetModel(), hello.GetSteps().GetModel()} {
		if len(text) > maxTextBytes {
			return problem(door.CodeTerms, "%.80q… has %d bytes, at most %d", text, len(text), maxTextBytes)
		}
	}
	switch {
	case hello.GetClient() != nil:
		return s.registerClient(c, &hello)
	case hello.GetSteps() != nil:
		return s.registerSteps(c, &hello)
	}
	return s.register(c, &hello)
}

// maxTextBytes bounds each text that is kept of what a connection says of itself.
const maxTextBytes = 1 << 10

// welcome answers Hello. mu is held, but for a connection for steps.
func (s *Server) welcome(c *conn, hello *doorpb.Hello) {
	incarnation := s.self.Incarnation
	welcome := &doorpb.Welcome{
		Version: c.version, Agent: s.self.Name, Incarnation: incarnation[:], MaxFrameBytes: uint32(c.maxFrameBytes()), Features: c.features,
	}
	if c.rank == control {
		key := s.options.Transceiver.HomeKey()
		welcome.TicketKey = key[:]
		if slices.Contains(c.features, door.FeatureCache) {
			welcome.Cache = s.options.CacheTerms.Message()
		}
	}
	if c.steps != nil {
		welcome.Governor = c.steps.Terms()
	}
	c.send(frame(doorpb.FrameType_FRAME_TYPE_WELCOME, welcome))
	s.options.Logger.Info("a connection has come in", "engine", c.engineID(), "as", c.as(), "peer", c.peer.String(), "software", hello.GetSoftware(), "features", c.features)
}

func frame(kind doorpb.FrameType, m proto.Message) []byte {
	wire, err := door.AppendFrame(nil, kind, m)
	if err != nil {
		panic(err) // what an agent says is short and valid
	}
	return wire
}

// send sends a frame, or cuts off an engine that does not read.
func (c *conn) send(wire []byte) { c.sendWith(wire, nil) }

// sendWith takes over the descriptor that goes with the frame.
func (c *conn) sendWith(wire []byte, file *os.File) {
	if c.rank == forSteps {
		c.sendNow(wire)
		return
	}
	if !c.outbox.addFrame(wire, file) {
		c.disconnectUnread()
	}
}

func (c *conn) sendEvent(e door.Event) {
	if !c.outbox.addEvent(e) {
		c.disconnectUnread()
	}
}

func (c *conn) disconnectUnread() {
	c.outbox.close()
	_ = c.wire.Socket().SetWriteDeadline(time.Unix(1, 0))
	c.server.wait.Go(func() {
		c.server.lost(c, fmt.Sprintf("it does not read: more than %d bytes wait for it", c.server.options.MaxBacklogBytes))
	})
}

// write writes what is in the outbox, and ends the connection when nothing of its
// engine, and nothing that it gave with a request, is touched any more.
func (c *conn) write() {
	for {
		p := c.outbox.take()
		if p.frames == nil {
			break
		}
		err := c.wire.Write(p.frames, p.file)
		closeFile(p.file)
		if err != nil {
			c.outbox.close()
			c.server.lost(c, err.Error())
			break
		}
	}
	<-c.quiet
	c.desk.close()
	_ = c.wire.Close()
}

// end lets the connection end: what waits is written, for a moment.
func (c *conn) end() {
	c.release.Do(func() {
		_ = c.wire.Socket().SetWriteDeadline(time.Now().Add(time.Second))
		c.outbox.close()
		close(c.quiet)
	})
}

// read takes frames until the connection ends, and says why it did.
func (c *conn) read() (why string) {
	for {
		f, err := c.wire.Read(c.maxFrameBytes())
		switch {
		case errors.Is(err, io.EOF):
			return "it has left"
		case errors.Is(err, door.ErrFrame):
			c.send(replyFrame(0, problemOf(err)))
			return err.Error()
		case err != nil:
			return err.Error()
		}
		if p := c.handle(&f); p != nil {
			c.server.count(p)
			c.send(replyFrame(0, p))
			return p.Message
		}
	}
}

// handle does what a frame asks for. A problem that it returns is with the
// protocol itself and ends the connection; others are answered.
func (c *conn) handle(f *door.Frame) *door.Problem {
	defer f.Close() // lend has duplicated the descriptor that it keeps
	switch {
	case f.File != nil && f.Type != doorpb.FrameType_FRAME_TYPE_LEND:
		c.refuse(f, problem(door.CodeUnsupported, "a descriptor came with %v, which takes none", f.Type))
		return nil
	case c.rank == client && engineOnly(f.Type):
		c.refuse(f, problem(door.CodeOrder, "a client that is no engine sends no %v", f.Type))
		return nil
	case c.rank == forSteps && f.Type == doorpb.FrameType_FRAME_TYPE_STEP:
		return c.step(f)
	case c.rank == forSteps && (engineOnly(f.Type) || f.Type == doorpb.FrameType_FRAME_TYPE_STORE || f.Type == doorpb.FrameType_FRAME_TYPE_STATUS):
		c.refuse(f, problem(door.CodeOrder, "a connection for steps sends no %v", f.Type))
		return nil
	}
	switch f.Type {
	case doorpb.FrameType_FRAME_TYPE_LEND:
		var m doorpb.Lend
		return c.take(f, &m, func() (*doorpb.Reply, *door.Problem) { return c.lend(&m, f) })
	case doorpb.FrameType_FRAME_TYPE_PUBLISH:
		var m doorpb.Publish
		return c.take(f, &m, func() (*doorpb.Reply, *door.Problem) { return nil, c.publish(&m) })
	case doorpb.FrameType_FRAME_TYPE_OFFER:
		var m doorpb.Offer
		return c.take(f, &m, func() (*doorpb.Reply, *door.Problem) { return c.offer(&m) })
	case doorpb.FrameType_FRAME_TYPE_ACCEPT:
		var m doorpb.Accept
		return c.take(f, &m, func() (*doorpb.Reply, *door.Problem) { return c.accept(&m) })
	case doorpb.FrameType_FRAME_TYPE_CANCEL:
		var m doorpb.Cancel
		return c.take(f, &m, func() (*doorpb.Reply, *door.Problem) { return nil, c.cancel(&m) })
	case doorpb.FrameType_FRAME_TYPE_PROGRESS:
		var m doorpb.Progress
		if err := f.UnmarshalRequest(&m); err != nil {
			return problemOf(err)
		}
		c.progress(&m)
	case doorpb.FrameType_FRAME_TYPE_STEP:
		c.refuse(f, problem(door.CodeOrder, "steps go over a connection of their own"))
	case doorpb.FrameType_FRAME_TYPE_STATUS:
		var m doorpb.Status
		return c.take(f, &m, func() (*doorpb.Reply, *door.Problem) { return c.server.status(), nil })
	case doorpb.FrameType_FRAME_TYPE_STORE:
		return c.takeStore(f)
	case doorpb.FrameType_FRAME_TYPE_KEEP:
		var m doorpb.Keep
		return c.take(f, &m, func() (*doorpb.Reply, *door.Problem) { return nil, c.keep(&m) })
	case doorpb.FrameType_FRAME_TYPE_FIND:
		return c.takeFind(f)
	case doorpb.FrameType_FRAME_TYPE_HELLO, doorpb.FrameType_FRAME_TYPE_WELCOME, doorpb.FrameType_FRAME_TYPE_REPLY, doorpb.FrameType_FRAME_TYPE_EVENT, doorpb.FrameType_FRAME_TYPE_DECISION:
		return problem(door.CodeMalformed, "%v is not sent to an agent, or not twice", f.Type)
	default: // of a newer engine
		c.refuse(f, problem(door.CodeUnsupported, "this agent knows no frame of type %d", f.Type))
	}
	return nil
}

// engineOnly reports whether a frame is for engines.
func engineOnly(kind doorpb.FrameType) bool {
	return kind >= doorpb.FrameType_FRAME_TYPE_LEND && kind <= doorpb.FrameType_FRAME_TYPE_STEP ||
		kind == doorpb.FrameType_FRAME_TYPE_KEEP || kind == doorpb.FrameType_FRAME_TYPE_FIND
}

// refuse answers a frame that is not taken, where it wants an answer. The
// connection goes on.
func (c *conn) refuse(f *door.Frame, p *door.Problem) {
	c.server.count(p)
	c.server.options.Logger.Debug("the engine door refuses a frame", "engine", c.engineID(), "type", f.Type.String(), "code", p.Code, "reason", p.Message)
	if request := f.Request(); request != 0 {
		c.send(replyFrame(request, p))
	}
}

// transferOf is the transfer that a request names, for the log; "" where it names none.
func transferOf(m any) string {
	named, does := m.(interface{ GetTransfer() []byte })
	if !does {
		return ""
	}
	return fmt.Sprintf("%.16x", named.GetTransfer())
}

// take reads a request, does it, and answers. Events of what it began come after
// the answer.
func (c *conn) take(f *door.Frame, m interface {
	proto.Message
	GetRequest() uint64
}, do func() (*doorpb.Reply, *door.Problem),
) *door.Problem {
	if err := f.UnmarshalRequest(m); err != nil {
		return problemOf(err)
	}
	s := c.server
	s.mu.Lock()
	if c.engine != nil {
		c.engine.beginRequest(c)
	}
	s.mu.Unlock()
	reply, p := do()
	if p != nil {
		s.count(p)
		s.options.Logger.Debug("the engine door refuses a request", "engine", c.engineID(), "type", f.Type.String(), "transfer", transferOf(m), "code", p.Code, "reason", p.Message)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if m.GetRequest() != 0 {
		if reply == nil {
			reply = &doorpb.Reply{}
		}
		reply.Request = m.GetRequest()
		if p != nil {
			reply.Problem = door.ProblemMessage(p)
		}
		c.send(frame(doorpb.FrameType_FRAME_TYPE_REPLY, reply))
	}
	if c.engine != nil {
		c.engine.endRequest(c)
	}
	return nil
}

// bounded is for work of the server's own, which has no caller to cancel it.
func bounded(d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), d)
}
