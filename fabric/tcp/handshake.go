package tcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"time"

	"meridian/fabric"
	"meridian/mrdn"
)

// greet introduces this side on a new connection and checks who answers.
func greet(conn net.Conn, hello mrdn.Hello) error {
	if _, err := conn.Write(hello.Append(nil)); err != nil {
		return err
	}
	_, body, err := readFrame(conn, maxIntroduction, mrdn.WelcomeFrame)
	if err != nil {
		return err
	}
	welcome, err := mrdn.ParseWelcome(body)
	if err != nil {
		return err
	}
	if welcome.Code != mrdn.OK {
		return fabric.FromCode(welcome.Code, welcome.Message)
	}
	if hello.Expect != (mrdn.ID{}) && welcome.Incarnation != hello.Expect {
		return fmt.Errorf("%w: expected %s, %s answered", fabric.ErrStalePeer, hello.Expect, welcome.Incarnation)
	}
	return nil
}

// maxIntroduction bounds what a stranger can make us buffer.
const maxIntroduction = 4 << 10

// readFrame reads one of the frames that may come now.
func readFrame(conn net.Conn, most uint32, due ...mrdn.LinkFrame) (mrdn.LinkFrame, []byte, error) {
	var prefix [mrdn.PrefixSize]byte
	if _, err := io.ReadFull(conn, prefix[:]); err != nil {
		return 0, nil, err
	}
	frame, length, err := mrdn.ParsePrefix(prefix[:])
	if err != nil {
		return 0, nil, err
	}
	if !slices.Contains(due, frame) || length > most {
		return 0, nil, fmt.Errorf("%w: type %d of %d bytes where %v was due", mrdn.ErrLinkFrame, frame, length, due)
	}
	body := make([]byte, length)
	_, err = io.ReadFull(conn, body)
	return frame, body, err
}

// Fetch asks whoever listens at address for its metadata.
func (f *Fabric) Fetch(ctx context.Context, address []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, f.options.Handshake)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", string(address))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", fabric.ErrPeerGone, err)
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	if _, err := conn.Write(mrdn.AppendFetch(nil)); err != nil {
		return nil, err
	}
	_, blob, err := readFrame(conn, mrdn.MaxLinkFrame, mrdn.BlobFrame)
	if err != nil {
		return nil, fmt.Errorf("tcp: fetching metadata from %s: %w", address, errors.Join(err, ctx.Err()))
	}
	return blob, nil
}

// accept takes connections until the listener closes.
func (f *Fabric) accept() {
	for {
		conn, err := f.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			// Out of descriptors, most likely: others may free some.
			f.options.Logger.Warn("cannot accept a connection", "error", err)
			time.Sleep(10 * time.Millisecond)
			continue
		}
		if !f.welcomeGuest(conn) {
			conn.Close()
		}
	}
}

// maxGreeting bounds connections that have not said who they are.
const maxGreeting = 256

func (f *Fabric) welcomeGuest(conn net.Conn) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed || len(f.greeting) >= maxGreeting {
		return false
	}
	f.greeting[conn] = struct{}{}
	f.wait.Go(func() { f.introduce(conn.(*net.TCPConn)) })
	return true
}

// introduce hears a guest out and serves its stream until it ends.
func (f *Fabric) introduce(conn *net.TCPConn) {
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(f.options.Handshake))
	hello, err := f.hear(conn)
	f.mu.Lock()
	delete(f.greeting, conn)
	f.mu.Unlock()
	if errors.Is(err, errServed) {
		return
	}
	if err != nil {
		f.options.Logger.Info("refused a connection", "from", conn.RemoteAddr().String(), "error", err)
		return
	}
	_ = conn.SetDeadline(time.Time{})
	service, s, err := f.join(conn, hello)
	if err != nil {
		f.options.Logger.Info("refused a stream", "from", hello.Agent, "error", err)
		return
	}
	s.run()
	service.server.Lost(fabric.ErrPeerGone)
}

// errServed: the guest wanted the metadata, and has it.
var errServed = errors.New("tcp: metadata was served")

// hear reads a Hello and answers it.
func (f *Fabric) hear(conn net.Conn) (mrdn.Hello, error) {
	frame, body, err := readFrame(conn, maxIntroduction, mrdn.HelloFrame, mrdn.FetchFrame)
	if err != nil {
		return mrdn.Hello{}, err
	}
	if frame == mrdn.FetchFrame {
		if f.options.Metadata == nil {
			return mrdn.Hello{}, fmt.Errorf("%w: there is no metadata to fetch", fabric.ErrUnsupported)
		}
		_, err := conn.Write(mrdn.AppendBlob(nil, f.options.Metadata()))
		return mrdn.Hello{}, errors.Join(errServed, err)
	}
	hello, err := mrdn.ParseHello(body)
	if err != nil {
		return mrdn.Hello{}, err
	}
	err = f.judge(hello)
	welcome := mrdn.Welcome{Version: mrdn.LinkVersion, Agent: f.options.Agent, Incarnation: f.options.Incarnation}
	welcome.Code, welcome.Message = fabric.ToCode(err)
	if _, writeErr := conn.Write(welcome.Append(nil)); err == nil {
		err = writeErr
	}
	return hello, err
}

func (f *Fabric) judge(h mrdn.Hello) error {
	switch {
	case h.MinVersion > mrdn.LinkVersion || h.MaxVersion < mrdn.LinkVersion:
		return fmt.Errorf("%w: this side speaks %d, the caller %d to %d", fabric.ErrVersion, mrdn.LinkVersion, h.MinVersion, h.MaxVersion)
	case h.Expect != (mrdn.ID{}) && h.Expect != f.options.Incarnation:
		return fmt.Errorf("%w: expected %s, this is %s", fabric.ErrStalePeer, h.Expect, f.options.Incarnation)
	case h.Agent == "" || len(h.Agent) > 255 || h.Streams == 0 || h.Streams > 64 || h.Stream >= h.Streams:
		return fmt.Errorf("%w: a hello that makes no sense", fabric.ErrRefused)
	}
	return nil
}

// dial opens one stream of a link and introduces it.
func (f *Fabric) dial(ctx context.Context, p fabric.Peer, link mrdn.ID, stream int) (*net.TCPConn, error) {
	ctx, cancel := context.WithTimeout(ctx, f.options.Handshake)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", string(p.Address))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", fabric.ErrPeerGone, err)
	}
	deadline, _ := ctx.Deadline()
	_ = conn.SetDeadline(deadline)
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	err = greet(conn, mrdn.Hello{
		MinVersion: mrdn.LinkVersion, MaxVersion: mrdn.LinkVersion,
		Agent: f.options.Agent, Incarnation: f.options.Incarnation,
		Expect: p.Incarnation, Link: link, Stream: uint16(stream), Streams: uint16(f.options.Streams),
	})
	if err != nil {
		conn.Close()
		return nil, err
	}
	_ = conn.SetDeadline(time.Time{})
	return conn.(*net.TCPConn), nil
}
