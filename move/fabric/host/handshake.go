package host

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"meridian/move/fabric"
	"meridian/move/fabric/handshake"
	"meridian/move/mrdn"
)

// credentials are those of the process at the other end, by the kernel.
func credentials(conn *net.UnixConn) (peer *unix.Ucred, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	var credErr error
	err = raw.Control(func(fd uintptr) { peer, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	return peer, errors.Join(err, credErr)
}

// sameUser turns away peers of other users: a loan shows a whole region.
func sameUser(conn *net.UnixConn) error {
	peer, err := credentials(conn)
	if err != nil {
		return err
	}
	if int(peer.Uid) != os.Getuid() {
		return fmt.Errorf("%w: the peer runs as user %d, this agent as %d", fabric.ErrRefused, peer.Uid, os.Getuid())
	}
	return nil
}

func (f *Fabric) self() handshake.Self {
	return handshake.Self{Agent: f.options.Agent, Incarnation: f.options.Incarnation, Key: f.options.Key}
}

// listenForPeers lets peers in.
func (f *Fabric) listenForPeers(l net.Listener) *handshake.PendingPeers {
	return handshake.Listen(l, handshake.PendingOptions{
		Self: f.self(), Patience: f.options.Handshake, Logger: f.options.Logger, Refused: f.options.Events.Refused,
		Judge: func(conn net.Conn, h mrdn.Hello) error {
			if h.Streams != 1 {
				return fmt.Errorf("%w: %d streams where one is enough", fabric.ErrRefused, h.Streams)
			}
			return sameUser(conn.(*net.UnixConn))
		},
		Serve: func(conn net.Conn, h mrdn.Hello) error { return f.serve(conn.(*net.UnixConn), h) },
	})
}

// dial reaches a peer and introduces this side.
func (f *Fabric) dial(ctx context.Context, p fabric.Peer) (_ *net.UnixConn, capabilities uint64, err error) {
	path, err := socketOf(p.Address, f.options.HostID)
	if err != nil {
		return nil, 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, f.options.Handshake)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
	if err != nil {
		return nil, 0, fmt.Errorf("%w: %w", fabric.ErrPeerGone, err)
	}
	deadline, _ := ctx.Deadline()
	_ = conn.SetDeadline(deadline)
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	socket := conn.(*net.UnixConn)
	var welcome mrdn.Welcome
	if err = sameUser(socket); err == nil {
		welcome, err = f.self().Introduce(socket, handshake.DialRequest{Expect: p.Incarnation, Streams: 1})
	}
	if err != nil {
		conn.Close()
		return nil, 0, err
	}
	_ = conn.SetDeadline(time.Time{})
	return socket, welcome.Capabilities, nil
}
