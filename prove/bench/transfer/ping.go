package transfer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"meridian/prove/bench"
)

// ping is a bare TCP ping-pong between the same two processes: what Go's
// network allows.
type ping struct {
	conn  net.Conn
	child *bench.Process
}

func openPing(ctx context.Context, child *bench.Process) (*ping, error) {
	var at answer
	if err := child.Ask(ctx, request{Do: "pong"}, &at); err != nil {
		return nil, err
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", at.Address)
	if err != nil {
		return nil, err
	}
	return &ping{conn: conn, child: child}, nil
}

const pingName = "ping-pong"

func (p *ping) Name() string { return pingName }

func (p *ping) sprint(ctx context.Context, count int, pinned bool) (got lags, err error) {
	if err := bench.PlacePair(os.Getpid(), p.child.PID(), pinned); err != nil {
		return got, err
	}
	defer bench.Pin(os.Getpid(), bench.UsableCores())
	deadline, _ := ctx.Deadline()
	_ = p.conn.SetDeadline(deadline)
	ball := make([]byte, smallBytes)
	stop := watchCores(os.Getpid(), p.child.PID())
	for range count {
		start := time.Now()
		if _, err := p.conn.Write(ball); err != nil {
			return got, fmt.Errorf("ping: %w", err)
		}
		if _, err := io.ReadFull(p.conn, ball); err != nil {
			return got, fmt.Errorf("pong: %w", err)
		}
		got.done = append(got.done, time.Since(start))
	}
	got.posting, got.serving = stop()
	return got, nil
}

func (p *ping) rest()  {}
func (p *ping) wake()  {}
func (p *ping) close() { p.conn.Close() }

// listen serves pings to one guest.
func (s *server) listen(ctx context.Context) (answer, error) {
	var err error
	if s.pong, err = (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0"); err != nil {
		return answer{}, err
	}
	s.echoing.Go(func() {
		conn, err := s.pong.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		ball := make([]byte, smallBytes)
		for err == nil {
			if _, err = io.ReadFull(conn, ball); err == nil {
				_, err = conn.Write(ball)
			}
		}
	})
	return answer{Address: s.pong.Addr().String()}, nil
}

// closePong ends the ping-pong, whether a guest came or not.
func (s *server) closePong() error {
	if s.pong == nil {
		return nil
	}
	if err := s.pong.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}
