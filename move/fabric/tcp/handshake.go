package tcp

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"

	"meridian/kv"
	"meridian/member/trust"
	"meridian/move/fabric"
	"meridian/move/fabric/handshake"
	"meridian/move/mrdn"
)

func (f *Fabric) self() handshake.Self {
	return handshake.Self{Agent: f.options.Agent, Incarnation: f.options.Incarnation, Key: f.options.Key}
}

// listenForPeers lets peers in.
func (f *Fabric) listenForPeers(l net.Listener) *handshake.PendingPeers {
	o := handshake.PendingOptions{
		Self: f.self(), Metadata: f.options.Metadata, Patience: f.options.Handshake, Strangers: f.options.Strangers,
		Logger: f.options.Logger, Refused: f.options.Events.Refused, Serve: f.serve,
		Judge: func(_ net.Conn, h mrdn.Hello) error {
			if h.Streams > maxStreams {
				return fmt.Errorf("%w: %d streams, at most %d", fabric.ErrRefused, h.Streams, maxStreams)
			}
			return nil
		},
	}
	if f.options.TLS != nil {
		o.Secure = func(conn net.Conn) (net.Conn, string, error) {
			secured := tls.Server(&sealed{TCPConn: conn.(*net.TCPConn)}, f.options.TLS.Server())
			name, err := trust.Handshake(context.Background(), secured) // bounded by its Patience
			if err != nil {
				err = fmt.Errorf("%w: %w", fabric.ErrUnproven, err)
			}
			return secured, name, err
		}
	}
	return handshake.Listen(l, o)
}

// serve runs a dialer's stream until it ends.
func (f *Fabric) serve(conn net.Conn, hello mrdn.Hello) error {
	service, s, err := f.join(conn, hello)
	if err != nil {
		return err
	}
	s.run()
	service.server.Lost(fabric.ErrPeerGone)
	return nil
}

// reach dials, secures and introduces a connection. An empty name takes
// any peer that answers.
func (f *Fabric) reach(ctx context.Context, address, name string, call handshake.DialRequest) (_ net.Conn, capabilities uint64, err error) {
	ctx, cancel := context.WithTimeout(ctx, f.options.Handshake)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, 0, fmt.Errorf("%w: %w", fabric.ErrPeerGone, err)
	}
	deadline, _ := ctx.Deadline()
	_ = conn.SetDeadline(deadline)
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	secured := conn
	if f.options.TLS != nil {
		client := tls.Client(&sealed{TCPConn: conn.(*net.TCPConn)}, f.options.TLS.Client(name))
		if call.Certified, err = trust.Handshake(ctx, client); err != nil {
			err = fmt.Errorf("%w: %w", fabric.ErrUnproven, err)
		}
		secured = client
	}
	var welcome mrdn.Welcome
	if err == nil {
		welcome, err = f.self().Introduce(secured, call)
	}
	if err != nil {
		conn.Close()
		return nil, 0, errors.Join(err, ctx.Err())
	}
	_ = conn.SetDeadline(time.Time{})
	return secured, welcome.Capabilities, nil
}

// dial opens one stream of a link.
func (f *Fabric) dial(ctx context.Context, p fabric.Peer, link kv.ID, stream int) (_ net.Conn, capabilities uint64, err error) {
	return f.reach(ctx, string(p.Address), p.Name, handshake.DialRequest{
		Expect: p.Incarnation, Link: link, Stream: uint16(stream), Streams: uint16(f.options.Streams),
	})
}

// Fetch asks the agent that listens at address for its metadata.
func (f *Fabric) Fetch(ctx context.Context, address []byte) ([]byte, error) {
	conn, _, err := f.reach(ctx, string(address), "", handshake.DialRequest{Fetch: true, Streams: 1})
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(f.options.Handshake))
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	blob, err := handshake.ReadFrame(conn, mrdn.MaxLinkFrame, mrdn.BlobFrame)
	if err != nil {
		return nil, fmt.Errorf("tcp: fetching metadata from %s: %w", address, errors.Join(err, ctx.Err()))
	}
	return blob, nil
}
