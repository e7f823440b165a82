package tcp

import (
	"net"
	"testing"

	"meridian/internal/until"
)

// A stream that waits until another of its link has read a large frame is not silent.
func TestWaitingForALargeFrameIsNoSilence(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	near, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer near.Close()
	far, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer far.Close()
	s, err := newStream(near, &Options{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	s.limits = &peerLimits{large: make(chan []byte, 1)}
	s.socket.silence.Check()
	done := make(chan error, 1)
	go func() {
		giveBack, err := s.borrowRoom(2 * largeFrame)
		if err == nil {
			giveBack()
		}
		done <- err
	}()
	quiet := 0
	until.True(t, "it waits, and then for longer than any peer may be silent", func() bool {
		ask, dead := s.socket.silence.Check()
		if dead {
			t.Fatal("its peer counts as silent while it waits")
		}
		if quiet++; ask {
			quiet = 0
			s.socket.silence.Received()
		}
		return quiet == 10
	})
	s.limits.large <- nil
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	s.socket.silence.Check()
	for range 2 {
		s.socket.silence.Check()
	}
	if _, dead := s.socket.silence.Check(); !dead {
		t.Error("its peer is silent, and not given up")
	}
	s.limits.leave()
}
