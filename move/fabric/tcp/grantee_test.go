package tcp

import (
	"context"
	"io"
	"net"
	"testing"
	"time"

	"meridian/internal/until"
	"meridian/kv"
	"meridian/move/fabric"
	"meridian/move/fabric/handshake"
	"meridian/move/mem"
	"meridian/move/mrdn"
)

// grantee is a peer that may touch memory here, and says what it likes.
type grantee struct {
	*testing.T
	fabric *Fabric
	arena  *mem.Arena
	net.Conn
}

func newGrantee(t *testing.T) *grantee {
	t.Helper()
	arena, err := mem.NewArena(mem.ArenaOptions{Name: "granted", SizeBytes: 64 << 10, NUMANode: -1})
	if err != nil {
		t.Fatal(err)
	}
	f, err := Open(t.Context(), Options{Agent: "b", Listen: "127.0.0.1:0", Events: &heard{notes: make(chan fabric.Notification, 10)}})
	if err == nil {
		err = f.Register(fabric.Region{ID: 1, Epoch: 1, Section: arena.Section})
	}
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", string(f.Address()))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := (handshake.Self{Agent: "a"}).Introduce(conn, handshake.DialRequest{Link: newID(), Streams: 1}); err != nil {
		t.Fatal(err)
	}
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	g := &grantee{T: t, fabric: f, arena: arena, Conn: conn}
	t.Cleanup(func() {
		conn.Close()
		if err := f.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return g
}

// begin announces a write of bytes at the start of the arena.
func (g *grantee) begin(handle uint32, id kv.ID, bytes uint64) {
	g.Helper()
	part := fabric.Part{Region: 1, Epoch: 1}
	if err := part.Spans.Add(0, bytes); err != nil {
		g.Fatal(err)
	}
	list := fabric.List{part}.AppendTo(nil)
	frame := mrdn.Begin{Handle: handle, ID: id, Write: true, Parts: 1, Bytes: bytes, List: list}.Append(nil)
	if _, err := g.Write(frame); err != nil {
		g.Fatal(err)
	}
}

// ends demands that the fabric hangs up, and lets go of the memory.
func (g *grantee) ends() {
	g.Helper()
	if _, err := io.Copy(io.Discard, g); isTimeout(err) {
		g.Error("the link goes on")
	}
	until.True(g, "no references are left", func() bool { return g.arena.References() == 0 })
}

// A handle names one part at a time: a second part of the same handle would
// hide the first, whose memory could not be made quiet.
func TestHandleInUse(t *testing.T) {
	g := newGrantee(t)
	g.begin(7, newID(), 10)
	g.begin(7, newID(), 10)
	g.ends()
}
