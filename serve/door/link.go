package door

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	"meridian/move/mem"
	"meridian/move/mem/vram"
	"meridian/serve/door/doorpb"
)

// link is one connection to the agent.
type link struct {
	conn     *Conn
	features []string // that both sides have; from the greeting on
	cache    CacheTerms

	sending sync.Mutex // held around one frame
	ended   bool       // nothing comes any more; under the session's mu
}

func (l *link) send(kind doorpb.FrameType, m proto.Message, file *os.File) error {
	wire, err := AppendFrame(nil, kind, m)
	if err != nil {
		return err
	}
	l.sending.Lock()
	defer l.sending.Unlock()
	if err := l.conn.Socket().SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return err
	}
	return l.conn.Write(wire, file)
}

// register dials and says everything that makes an engine, in order. After an
// error nothing of it is left.
func (c *Client) register(ctx context.Context) (*session, error) {
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	c.mu.Lock()
	c.left = false
	c.mu.Unlock()
	s := newSession(c)
	err := c.registerAll(ctx, s)
	if err == nil {
		return s, nil
	}
	// Nothing was offered or accepted yet, so an agent that hangs holds nothing.
	force := time.AfterFunc(farewell, s.abandon)
	defer force.Stop()
	s.finish()
	if c.Serving() {
		c.lost() // it was told, and something may have come of it
	}
	c.mu.Lock()
	c.session = nil
	c.mu.Unlock()
	return nil, fmt.Errorf("door: registering engine %s at %s: %w", c.options.Engine, c.options.Socket, err)
}

func (c *Client) registerAll(ctx context.Context, s *session) error {
	if !c.options.RanksOnly {
		control := &doorpb.Control{Url: c.options.URL, Role: c.options.Role, Model: c.options.Model}
		if err := c.open(ctx, s, &doorpb.Hello{As: &doorpb.Hello_Control{Control: control}}, nil); err != nil {
			return err
		}
	}
	ranks := uint32(c.options.Publish.Parallelism.Ranks())
	for index, section := range c.options.Memory {
		if section == nil {
			continue
		}
		rank := &doorpb.Rank{Index: uint32(index), Ranks: ranks}
		if err := c.open(ctx, s, &doorpb.Hello{As: &doorpb.Hello_Rank{Rank: rank}}, section); err != nil {
			return fmt.Errorf("rank %d: %w", index, err)
		}
	}
	if len(s.links) == 0 {
		return errors.New("neither control nor a rank's memory was given")
	}
	c.mu.Lock()
	c.session = s
	c.mu.Unlock()
	if c.options.RanksOnly {
		return nil
	}
	publish := c.options.Publish.Message()
	_, err := s.ask(ctx, doorpb.FrameType_FRAME_TYPE_PUBLISH, func(request uint64) proto.Message { publish.Request = request; return publish }, nil)
	return err
}

func dial(ctx context.Context, path string) (*link, error) {
	var dialer net.Dialer
	socket, err := dialer.DialContext(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	return &link{conn: NewConn(socket.(*net.UnixConn))}, nil
}

// depart ends a connection that is not part of a session. The other side ends it
// once it has nothing of it any more.
func (l *link) depart() error {
	_ = l.conn.Socket().CloseWrite()
	_ = l.conn.Socket().SetReadDeadline(time.Now().Add(farewell))
	for {
		f, ended := l.conn.Read(MaxFrameBytes)
		if ended != nil {
			return l.conn.Close()
		}
		f.Close()
	}
}

// open makes one connection and adds it to the session.
func (c *Client) open(ctx context.Context, s *session, hello *doorpb.Hello, section *mem.Section) error {
	l, err := dial(ctx, c.options.Socket)
	if err != nil {
		return err
	}
	hello.Engine, hello.Software = c.options.Engine, c.options.Software
	if _, err := l.greet(ctx, hello); err != nil {
		return errors.Join(err, l.depart())
	}
	s.add(l)
	if section == nil {
		return nil
	}
	return s.lend(l, section)
}

// greet introduces a connection, which has no other user yet.
func (l *link) greet(ctx context.Context, hello *doorpb.Hello) (*doorpb.Welcome, error) {
	defer context.AfterFunc(ctx, l.interrupt)()
	hello.LowVersion, hello.HighVersion, hello.Features = OldestVersion, Version, Features
	sent := l.send(doorpb.FrameType_FRAME_TYPE_HELLO, hello, nil)
	if sent != nil && !errors.Is(sent, unix.EPIPE) {
		return nil, sent
	}
	// Who is refused at the door hears why, though not a word was listened to.
	var welcome doorpb.Welcome
	if err := l.expect(doorpb.FrameType_FRAME_TYPE_WELCOME, &welcome); err != nil {
		var refusal *Problem
		if errors.As(err, &refusal) {
			return nil, err
		}
		return nil, cmp.Or(sent, err)
	}
	if v := welcome.GetVersion(); v < OldestVersion || v > Version {
		return nil, fmt.Errorf("the agent answers with version %d, this build speaks %d to %d", v, OldestVersion, Version)
	}
	l.features, l.cache = commonFeatures(welcome.GetFeatures()), parseCacheTerms(welcome.GetCache())
	return &welcome, nil
}

// interrupt ends what waits for the other side.
func (l *link) interrupt() { _ = l.conn.Socket().SetDeadline(time.Unix(1, 0)) }

// expect reads the one frame that must come now. A reply with a problem may come
// instead of it.
func (l *link) expect(kind doorpb.FrameType, into proto.Message) error {
	f, err := l.conn.Read(MaxFrameBytes)
	if err != nil {
		return err
	}
	defer f.Close()
	if f.Type == doorpb.FrameType_FRAME_TYPE_REPLY {
		var reply doorpb.Reply
		if err := f.Unmarshal(&reply); err != nil {
			return err
		}
		if p := problemOf(reply.GetProblem()); p != nil {
			return p
		}
	}
	if f.Type != kind {
		return fmt.Errorf("%w: %v where %v was due", ErrFrame, f.Type, kind)
	}
	return f.Unmarshal(into)
}

// lend gives a section to the agent.
func (s *session) lend(l *link, section *mem.Section) error {
	if err := section.Acquire(); err != nil {
		return err
	}
	defer section.Release()
	m := &doorpb.Lend{SizeBytes: section.Size()}
	var file *os.File
	switch section.Kind() {
	case mem.DRAM:
		var err error
		if file, err = section.Share(); err != nil {
			return err
		}
		defer file.Close()
		m.Kind = &doorpb.Lend_Memfd{Memfd: &doorpb.MemFD{}}
	case mem.Borrowed:
		if err := l.allowAgent(); err != nil {
			return err
		}
		m.Kind = &doorpb.Lend_Borrowed{Borrowed: &doorpb.Borrowed{Address: section.Base()}}
	case mem.VRAM:
		gpu := vram.Of(section)
		m.Kind = &doorpb.Lend_CudaIpc{CudaIpc: &doorpb.CudaIPC{Handle: gpu.Handle[:], Uuid: gpu.Device.UUID[:], Offset: gpu.Offset}}
	default:
		return fmt.Errorf("memory of kind %v cannot be lent", section.Kind())
	}
	_, err := s.askOn(&question{on: l, answered: make(chan struct{})}, func(request uint64) error {
		m.Request = request
		return l.send(doorpb.FrameType_FRAME_TYPE_LEND, m, file)
	})
	return err
}

// allowAgent lets the process at the other end reach this one's memory where the
// kernel asks for that (Yama). Elsewhere there is nothing to allow.
func (l *link) allowAgent() error {
	raw, err := l.conn.Socket().SyscallConn()
	if err != nil {
		return err
	}
	var agent *unix.Ucred
	var asked error
	if err := raw.Control(func(fd uintptr) { agent, asked = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); err != nil {
		return err
	}
	if asked != nil {
		return fmt.Errorf("who the agent is: %w", asked)
	}
	err = unix.Prctl(unix.PR_SET_PTRACER, uintptr(agent.Pid), 0, 0, 0)
	if err != nil && !errors.Is(err, unix.EINVAL) { // without Yama the call is unknown
		return fmt.Errorf("allowing the agent to reach this memory: %w", err)
	}
	return nil
}
