package tcp

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"testing"
	"time"

	"meridian/internal/until"
	"meridian/kv"
	"meridian/move/checksum"
	"meridian/move/fabric"
	"meridian/move/fabric/handshake"
	"meridian/move/mem"
	"meridian/move/mrdn"
)

// Whatever a peer says after its introduction: the fabric ends the stream or
// serves it, lets go of its memory, and greets the next.
func FuzzStream(f *testing.F) {
	for _, said := range saidByPeers() {
		f.Add(said)
	}
	ctx := context.Background()
	arena, err := mem.NewArena(mem.ArenaOptions{Name: "fuzz", SizeBytes: 64 << 10, NUMANode: -1})
	if err != nil {
		f.Fatal(err)
	}
	fabrics, err := Open(ctx, Options{Agent: "b", Listen: "127.0.0.1:0", Events: &heard{notes: make(chan fabric.Notification, 10)}})
	if err == nil {
		err = fabrics.Register(fabric.Region{ID: 1, Epoch: 1, Section: arena.Section})
	}
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() {
		if err := fabrics.Close(ctx); err != nil {
			f.Error(err)
		}
		if err := arena.Close(ctx); err != nil {
			f.Error(err)
		}
	})
	f.Fuzz(func(t *testing.T, said []byte) {
		conn, err := net.Dial("tcp", string(fabrics.Address()))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(time.Minute))
		if _, err := (handshake.Self{Agent: "a"}).Introduce(conn, handshake.DialRequest{Link: newID(), Streams: 1}); err != nil {
			t.Fatalf("the fabric greets no peer any more: %v", err)
		}
		_, _ = conn.Write(said)
		_ = conn.(*net.TCPConn).CloseWrite()
		if _, err := io.Copy(io.Discard, conn); isTimeout(err) {
			t.Fatal("the stream never ended")
		}
		until.True(t, "no references are left", func() bool { return arena.References() == 0 })
	})
}

func isTimeout(err error) bool {
	timeout, is := err.(net.Error)
	return is && timeout.Timeout()
}

// saidByPeers is what honest peers say, and what is nearly that.
func saidByPeers() [][]byte {
	var part fabric.Part
	part.Region, part.Epoch = 1, 1
	if err := part.Spans.Add(100, 10); err != nil {
		panic(err) // one span always fits
	}
	list := fabric.List{part}.AppendTo(nil)
	read := mrdn.Begin{Handle: 1, ID: kv.ID{1}, Parts: 1, Bytes: 10, List: list}.Append(nil)
	write := mrdn.Begin{Handle: 2, ID: kv.ID{2}, Write: true, Parts: 1, Bytes: 10, List: list, Notify: true, Notification: []byte("n")}.Append(nil)
	payload := []byte("ten bytes.")
	chunk := make([]byte, mrdn.ChunkHeaderSize)
	mrdn.Chunk{Handle: 2, Length: 10}.Put(chunk)
	chunk = binary.LittleEndian.AppendUint64(append(chunk, payload...), checksum.Of(payload))
	whole := append(append([]byte{}, write...), chunk...)
	broken := append([]byte{}, whole...)
	broken[len(broken)-1]++
	return [][]byte{
		read, whole, broken, write, chunk, append(append([]byte{}, read...), read...),
		mrdn.Cancel{ID: kv.ID{2}}.Append(append([]byte{}, write...)),
		mrdn.Notice{ID: kv.ID{3}, Payload: []byte("hello")}.Append(mrdn.AppendPing(nil)),
		mrdn.Ack{ID: kv.ID{1}}.Append(nil),
		{0, 0, 0x40, 0, byte(mrdn.BeginFrame), 0, 0, 0},
	}
}
