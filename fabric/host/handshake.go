package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"meridian/fabric"
	"meridian/mrdn"
)

// sameUser turns away whoever is another user: a loan shows a whole region.
func sameUser(conn *net.UnixConn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var peer *unix.Ucred
	var credErr error
	err = raw.Control(func(fd uintptr) { peer, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err = errors.Join(err, credErr); err != nil {
		return err
	}
	if int(peer.Uid) != os.Getuid() {
		return fmt.Errorf("%w: the peer runs as user %d, this agent as %d", fabric.ErrRefused, peer.Uid, os.Getuid())
	}
	return nil
}

// maxIntroduction bounds what a stranger can make us buffer.
const maxIntroduction = 4 << 10

// readFrame reads the frame that must come now. It reads no byte too many,
// because a descriptor may come with the next.
func readFrame(conn net.Conn, due mrdn.LinkFrame) ([]byte, error) {
	var prefix [mrdn.PrefixSize]byte
	if _, err := io.ReadFull(conn, prefix[:]); err != nil {
		return nil, err
	}
	frame, length, err := mrdn.ParsePrefix(prefix[:])
	if err != nil {
		return nil, err
	}
	if frame != due || length > maxIntroduction {
		return nil, fmt.Errorf("%w: type %d of %d bytes where type %d was due", mrdn.ErrLinkFrame, frame, length, due)
	}
	body := make([]byte, length)
	_, err = io.ReadFull(conn, body)
	return body, err
}

// dial reaches a peer and introduces this side.
func (f *Fabric) dial(ctx context.Context, p fabric.Peer) (*net.UnixConn, error) {
	path, err := socketOf(p.Address, f.options.HostID)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, f.options.Handshake)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", fabric.ErrPeerGone, err)
	}
	deadline, _ := ctx.Deadline()
	_ = conn.SetDeadline(deadline)
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	socket := conn.(*net.UnixConn)
	if err := errors.Join(sameUser(socket), f.greet(socket, p.Incarnation)); err != nil {
		conn.Close()
		return nil, err
	}
	_ = conn.SetDeadline(time.Time{})
	return socket, nil
}

func (f *Fabric) greet(conn net.Conn, expect mrdn.ID) error {
	hello := mrdn.Hello{
		MinVersion: mrdn.LinkVersion, MaxVersion: mrdn.LinkVersion, Streams: 1,
		Agent: f.options.Agent, Incarnation: f.options.Incarnation, Expect: expect,
	}
	if _, err := conn.Write(hello.Append(nil)); err != nil {
		return fmt.Errorf("%w: %w", fabric.ErrPeerGone, err)
	}
	body, err := readFrame(conn, mrdn.WelcomeFrame)
	if err != nil {
		return fmt.Errorf("%w: %w", fabric.ErrPeerGone, err)
	}
	welcome, err := mrdn.ParseWelcome(body)
	switch {
	case err != nil:
		return err
	case welcome.Code != mrdn.OK:
		return fabric.FromCode(welcome.Code, welcome.Message)
	case expect != (mrdn.ID{}) && welcome.Incarnation != expect:
		return fmt.Errorf("%w: expected %s, %s answered", fabric.ErrStalePeer, expect, welcome.Incarnation)
	}
	return nil
}

// accept takes connections until the listener closes.
func (f *Fabric) accept() {
	for {
		conn, err := f.listener.AcceptUnix()
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

func (f *Fabric) welcomeGuest(conn *net.UnixConn) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed || len(f.greeting) >= maxGreeting {
		return false
	}
	f.greeting[conn] = struct{}{}
	f.wait.Go(func() { f.introduce(conn) })
	return true
}

// introduce hears a guest out and serves it until it ends.
func (f *Fabric) introduce(conn *net.UnixConn) {
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(f.options.Handshake))
	hello, err := f.hear(conn)
	_ = conn.SetDeadline(time.Time{})
	f.mu.Lock()
	delete(f.greeting, conn)
	f.mu.Unlock()
	if err == nil {
		err = f.serve(conn, hello)
	}
	if err != nil {
		f.options.Logger.Info("refused a connection", "from", hello.Agent, "error", err)
	}
}

// hear reads a Hello and answers it.
func (f *Fabric) hear(conn *net.UnixConn) (mrdn.Hello, error) {
	body, err := readFrame(conn, mrdn.HelloFrame)
	if err != nil {
		return mrdn.Hello{}, err
	}
	hello, err := mrdn.ParseHello(body)
	if err != nil {
		return mrdn.Hello{}, err
	}
	err = errors.Join(sameUser(conn), f.judge(hello))
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
	case h.Agent == "" || len(h.Agent) > 255 || h.Streams != 1:
		return fmt.Errorf("%w: a hello that makes no sense", fabric.ErrRefused)
	}
	return nil
}

// showBoard is the first that either side sends once it is welcome.
func (f *Fabric) showBoard(w *wire) error {
	file, err := f.board.arena.Lend()
	if err != nil {
		return err
	}
	var p parcel
	p.add(mrdn.Board{Hands: uint32(f.board.hands)}.Append(nil), file)
	w.sendWith(p.frames, p.gifts)
	return nil
}
