package tcp

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"meridian/internal/until"
	"meridian/move/fabric"
	"meridian/move/fabric/handshake"
	"meridian/move/mem"
	"meridian/move/mrdn"
)

// deaf is a peer that serves nothing: it says the same over and over, and never
// reads.
func deaf(t *testing.T, says []byte) fabric.Peer {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	pending := handshake.Listen(listener, handshake.PendingOptions{
		Self: handshake.Self{Agent: "deaf"}, Patience: time.Minute, Strangers: 10, Refused: func(string, error) {},
		Judge: func(net.Conn, mrdn.Hello) error { return nil },
		Serve: func(conn net.Conn, _ mrdn.Hello) error {
			for len(says) > 0 {
				if _, err := conn.Write(says); err != nil {
					return nil
				}
			}
			<-stop
			return nil
		},
	})
	t.Cleanup(func() {
		close(stop)
		if err := pending.Close(); err != nil {
			t.Error(err)
		}
		pending.Wait()
	})
	return fabric.Peer{Name: "deaf", Address: []byte(listener.Addr().String())}
}

// lostTo hears of links that were lost.
type lostTo struct {
	heard
	why chan error
}

func (l *lostTo) LinkLost(_ fabric.Peer, err error) {
	select {
	case l.why <- err:
	default:
	}
}

// hearing connects a fabric of one stream to a peer.
func hearing(t *testing.T, p fabric.Peer, events fabric.Events) (*Fabric, *peerLink) {
	t.Helper()
	f, err := Open(t.Context(), Options{Agent: "a", Streams: 1, Events: events})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	l, err := f.Connect(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	return f, l.(*peerLink)
}

// A peer that asks whether the posting side lives, and does not read that it
// does, gets one answer at a time.
func TestPongsDoNotPileUp(t *testing.T) {
	var pings []byte
	for range 1000 {
		pings = mrdn.AppendPing(pings)
	}
	_, l := hearing(t, deaf(t, pings), &heard{})
	c, err := l.Connected(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s := c.(*connection).streams[0]
	heard := 0
	until.True(t, "pings were heard, again and again", func() bool {
		s.sender.mu.Lock()
		waiting := len(s.control)
		s.sender.mu.Unlock()
		if waiting > 10*mrdn.PrefixSize {
			t.Fatalf("%d bytes of pongs wait", waiting)
		}
		if ask, _ := s.socket.silence.Check(); !ask {
			heard++
		}
		return heard == 30
	})
}

// What waits for a peer that reads nothing is bounded: requests by a refusal,
// and whatever is said besides by the end of the link, which has a name.
func TestFramesForADeafPeerAreBounded(t *testing.T) {
	events := &lostTo{why: make(chan error, 1)}
	f, l := hearing(t, deaf(t, nil), events)
	arena, err := mem.NewArena(mem.ArenaOptions{Name: "a", SizeBytes: 8 << 20, NUMANode: -1})
	if err == nil {
		err = f.Register(fabric.Region{ID: 1, Epoch: 7, Section: arena.Section})
	}
	if err != nil {
		t.Fatal(err)
	}
	prepared, err := l.Prepare(fabric.Read, scattered(1<<20, 5, 1), scattered(1<<20, 5, 2))
	if err != nil {
		t.Fatal(err)
	}
	defer prepared.Release()
	for posted := 0; ; posted++ {
		_, err := l.Post(t.Context(), prepared, fabric.PostOptions{ID: newID()})
		if errors.Is(err, fabric.ErrBusy) {
			break
		}
		if err != nil || posted > 4000 {
			t.Fatalf("after %d posts: %v", posted, err)
		}
	}
	c, err := l.Connected(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for range maxQueued >> 20 {
		c.(*connection).streams[0].Send(make([]byte, 1<<20))
	}
	select {
	case why := <-events.why:
		if !errors.Is(why, ErrDeaf) {
			t.Errorf("the link is lost for %v", why)
		}
	case <-time.After(time.Minute):
		t.Fatal("the link goes on")
	}
}
