package host

import (
	"errors"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"meridian/move/fabric/link"
	"meridian/move/mrdn"
)

// lostOwner waits for its wire's end.
type lostOwner struct{ lostFor chan error }

func (*lostOwner) frame(mrdn.LinkFrame, []byte) error { return nil }

func (o *lostOwner) lost(err error) { o.lostFor <- err }

// runWire starts a wire; what it sends is read by the test alone.
func runWire(t *testing.T, server *link.Server) (*wire, *net.UnixConn, *lostOwner) {
	t.Helper()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var ends [2]*net.UnixConn
	for i, fd := range pair {
		file := os.NewFile(uintptr(fd), "pair")
		conn, err := net.FileConn(file)
		if err != nil {
			t.Fatal(err)
		}
		file.Close()
		ends[i] = conn.(*net.UnixConn)
	}
	o := &lostOwner{make(chan error, 2)}
	w, err := newWire(ends[0], time.Minute, o)
	if err != nil {
		t.Fatal(err)
	}
	w.server = server
	var running sync.WaitGroup
	running.Go(w.run)
	t.Cleanup(func() {
		ends[1].Close()
		running.Wait()
	})
	return w, ends[1], o
}

// A peer that asks without end and reads no answer does not fill memory here.
func TestPeerThatAsksAndDoesNotRead(t *testing.T) {
	w, peer, _ := runWire(t, nil)
	var pings []byte
	for range 1 << 16 {
		pings = mrdn.AppendPing(pings)
	}
	for range 16 {
		if _, err := peer.Write(pings); err != nil {
			t.Fatal(err)
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.out) > 1024 {
		t.Errorf("%d bytes of answers wait", len(w.out))
	}
}

// A peer that sends signs of life without end is served more slowly than it can
// send them.
func TestPeerThatOnlyAsksMustWait(t *testing.T) {
	w, peer, _ := runWire(t, link.NewServer(link.ServerOptions{Peer: "b", MaxTransfers: 1}))
	t.Cleanup(w.close)
	var signs []byte
	for range 1 << 18 {
		signs = mrdn.AppendPong(mrdn.AppendPing(signs))
	}
	if err := peer.SetWriteDeadline(time.Now().Add(300 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if n, err := peer.Write(signs); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%d of %d bytes were taken at once: %v", n, len(signs), err)
	}
}

func TestPeerThatDoesNotReadIsGivenUp(t *testing.T) {
	w, _, o := runWire(t, nil)
	for range maxQueued>>20 + 4 {
		w.send(frames{bytes: make([]byte, 1<<20)})
	}
	select {
	case err := <-o.lostFor:
		if !errors.Is(err, ErrDeaf) {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Error("it is sent ever more")
	}
}
