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

	"meridian/door"
	"meridian/door/doorpb"
)

// conn is one connection of an engine.
type conn struct {
	server  *Server
	wire    *door.Conn
	peer    peer
	outbox  *outbox
	quiet   chan struct{} // closed when nothing of its engine is touched any more
	release sync.Once

	engine *engine // once it has come in; under the server's mu
	rank   int     // its number, or control
}

// control is the rank of a connection that is none.
const control = -1

// as says what the connection is of its engine, for the log.
func (c *conn) as() string {
	if c.rank == control {
		return "control"
	}
	return fmt.Sprintf("rank %d", c.rank)
}

// maxHelloBytes bounds the first frame, which strangers send.
const maxHelloBytes = 64 << 10

func newConn(s *Server, wire *door.Conn) *conn {
	return &conn{server: s, wire: wire, outbox: newOutbox(s.options.MaxBacklogBytes), quiet: make(chan struct{}), rank: control}
}

// run is the connection's life.
func (c *conn) run() {
	s := c.server
	defer c.forget()
	if p := c.comeIn(); p != nil {
		s.refuse(c, p)
		c.sayGoodbye()
		return
	}
	written := make(chan struct{})
	s.wait.Go(func() {
		defer close(written)
		c.write()
	})
	s.wait.Go(func() {
		if c.peer.gone() {
			s.lost(c, "its process has ended")
		}
	})
	s.lost(c, c.read())
	<-written
}

func (c *conn) forget() {
	_ = c.wire.Close()
	if c.peer.process != nil {
		c.peer.stopWatching()
		_ = c.peer.process.Close()
	}
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	delete(c.server.conns, c)
}

// sayGoodbye lets the refused finish what it is saying, so that it gets to read
// why.
func (c *conn) sayGoodbye() {
	_ = c.wire.Socket().CloseWrite()
	_ = c.wire.Socket().SetReadDeadline(time.Now().Add(time.Second))
	_, _ = io.CopyN(io.Discard, c.wire.Socket(), 1<<20)
}

// comeIn finds out who is there and makes it part of an engine.
func (c *conn) comeIn() *door.Problem {
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
	f, err := c.wire.Read(maxHelloBytes)
	if err != nil {
		return problem(door.CodeMalformed, "no Hello: %v", err)
	}
	f.Close()
	_ = c.wire.Socket().SetReadDeadline(time.Time{})
	var hello doorpb.Hello
	if f.Type != doorpb.FrameType_FRAME_TYPE_HELLO {
		return problem(door.CodeOrder, "%v came where Hello was due", f.Type)
	}
	if err := f.Unmarshal(&hello); err != nil {
		return problemOf(err)
	}
	if hello.GetLowVersion() > door.Version || hello.GetHighVersion() < door.Version {
		return problem(door.CodeVersion, "the engine speaks versions %d to %d, this agent %d", hello.GetLowVersion(), hello.GetHighVersion(), door.Version)
	}
	return s.enter(c, &hello)
}

func frame(kind doorpb.FrameType, m proto.Message) []byte {
	wire, err := door.AppendFrame(nil, kind, m)
	if err != nil {
		panic(err) // what an agent says is short and valid
	}
	return wire
}

// put sends a frame, or cuts off an engine that does not read.
func (c *conn) put(wire []byte) {
	if !c.outbox.put(wire) {
		c.cutOff()
	}
}

func (c *conn) tell(e door.Event) {
	if !c.outbox.tell(e) {
		c.cutOff()
	}
}

func (c *conn) cutOff() {
	c.outbox.close()
	_ = c.wire.Socket().SetWriteDeadline(time.Unix(1, 0))
	c.server.wait.Go(func() {
		c.server.lost(c, fmt.Sprintf("it does not read: more than %d bytes wait for it", c.server.options.MaxBacklogBytes))
	})
}

// write writes what is in the outbox, and ends the connection when nothing of its
// engine is touched any more.
func (c *conn) write() {
	for {
		frames := c.outbox.take()
		if frames == nil {
			break
		}
		if err := c.wire.Write(frames, nil); err != nil {
			c.outbox.close()
			c.server.lost(c, err.Error())
			break
		}
	}
	<-c.quiet
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
		f, err := c.wire.Read(door.MaxFrameBytes)
		switch {
		case errors.Is(err, io.EOF):
			return "it has left"
		case errors.Is(err, door.ErrFrame):
			c.put(replyFrame(0, problemOf(err)))
			return err.Error()
		case err != nil:
			return err.Error()
		}
		if p := c.handle(&f); p != nil {
			c.server.count(p)
			c.put(replyFrame(0, p))
			return p.Message
		}
	}
}

// handle does what a frame asks for. A problem that it returns is with the
// protocol itself and ends the connection; others are answered.
func (c *conn) handle(f *door.Frame) *door.Problem {
	if f.Type != doorpb.FrameType_FRAME_TYPE_LEND && f.File != nil {
		f.Close()
		return problem(door.CodeMalformed, "a descriptor came with %v, which takes none", f.Type)
	}
	switch f.Type {
	case doorpb.FrameType_FRAME_TYPE_LEND:
		defer f.Close()
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
		if err := f.Unmarshal(&m); err != nil {
			return problemOf(err)
		}
		c.progress(&m)
	case doorpb.FrameType_FRAME_TYPE_STEP:
		var m doorpb.Step
		return c.take(f, &m, func() (*doorpb.Reply, *door.Problem) { return nil, c.step(&m) })
	default:
		return problem(door.CodeMalformed, "an engine sends no frame of type %d now", f.Type)
	}
	return nil
}

// take reads a request, does it, and answers. Events of what it began come after
// the answer.
func (c *conn) take(f *door.Frame, m interface {
	proto.Message
	GetRequest() uint64
}, do func() (*doorpb.Reply, *door.Problem),
) *door.Problem {
	if err := f.Unmarshal(m); err != nil {
		return problemOf(err)
	}
	s := c.server
	s.mu.Lock()
	c.engine.asking(c)
	s.mu.Unlock()
	reply, p := do()
	if p != nil {
		s.count(p)
		s.options.Logger.Debug("the engine door refuses a request", "engine", c.engine.id, "type", f.Type.String(), "code", p.Code, "reason", p.Message)
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
		c.put(frame(doorpb.FrameType_FRAME_TYPE_REPLY, reply))
	}
	c.engine.answered(c)
	return nil
}

// bounded is for work that nobody cancels but that must end.
func bounded(d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), d)
}
