package host

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"meridian/kv"
	"meridian/move/fabric"
	"meridian/move/fabric/handshake"
	"meridian/move/mem"
	"meridian/move/mrdn"
)

// Whatever a neighbour says, and whatever descriptor comes with it: the fabric
// ends the link or serves it, lets go of its memory, and greets the next.
func FuzzWire(f *testing.F) {
	var part fabric.Part
	part.Region, part.Epoch = 1, 1
	if err := part.Spans.Add(100, 10); err != nil {
		f.Fatal(err)
	}
	list := fabric.List{part}.AppendTo(nil)
	page := mrdn.FlagPage{Copiers: 1}.Append(nil)
	lend := mrdn.Lend{Region: 1, Epoch: 1, Serial: 9}.Append(nil)
	source := mrdn.Source{Handle: 4, Cell: 3, Turn: 9, List: list}.Append(nil)
	begin := mrdn.Begin{Handle: 4, ID: kv.ID{1}, Write: true, Parts: 1, Bytes: 10, List: list}.Append(nil)
	for _, said := range [][]byte{
		page, lend, source, begin, append(append(append(append([]byte{}, page...), lend...), begin...), source...),
		mrdn.Taken{Handle: 1}.Append(page), mrdn.Recall{Region: 1, Serial: 9}.Append(nil),
		mrdn.Begin{Handle: 1, ID: kv.ID{2}, Parts: 1, Bytes: 10, List: list}.Append(nil),
		{0, 0, 0x40, 0, byte(mrdn.LendFrame), 0, 0, 0},
	} {
		f.Add(said, true)
		f.Add(said, false)
	}
	dir, err := os.MkdirTemp("", "host") // a socket's path must be short
	if err != nil {
		f.Fatal(err)
	}
	arena, err := mem.NewArena(mem.ArenaOptions{Name: "fuzz", SizeBytes: 64 << 10, NUMANode: -1})
	if err != nil {
		f.Fatal(err)
	}
	ctx := context.Background()
	fabrics, err := Open(ctx, Options{Agent: "b", Dir: dir, Events: &heard{}})
	if err == nil {
		err = fabrics.Register(fabric.Region{ID: 1, Epoch: 1, Section: arena.Section})
	}
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() {
		if err := errors.Join(fabrics.Close(ctx), arena.Close(ctx), os.RemoveAll(dir)); err != nil {
			f.Error(err)
		}
	})
	socket, err := socketOf(fabrics.Address(), fabrics.options.HostID)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, said []byte, gift bool) { neighbour(t, socket, said, gift) })
}

// neighbour introduces itself, says what it has to say, and hears the answer.
func neighbour(t *testing.T, socket string, said []byte, gift bool) {
	conn, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	if _, err := (handshake.Self{Agent: "a"}).Introduce(conn, handshake.DialRequest{Link: kv.ID{1}, Streams: 1}); err != nil {
		t.Fatalf("the fabric greets no peer any more: %v", err)
	}
	var rights []byte
	if gift && len(said) > 0 {
		lent, err := unix.MemfdCreate("fuzz", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
		if err == nil {
			err = unix.Ftruncate(lent, 8<<10)
		}
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(lent)
		_, _ = unix.FcntlInt(uintptr(lent), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW)
		rights = unix.UnixRights(lent)
	}
	unixConn := conn.(*net.UnixConn)
	_, _, _ = unixConn.WriteMsgUnix(said, rights, nil)
	_ = unixConn.CloseWrite()
	_, err = io.Copy(io.Discard, conn)
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		t.Fatal("the link never ended")
	}
}

// An address comes from a stranger's metadata.
func FuzzAddress(f *testing.F) {
	f.Add([]byte("boot:/run/a.sock"), "boot")
	f.Add([]byte("boot:relative"), "boot")
	f.Add([]byte(":"), "")
	f.Fuzz(func(t *testing.T, address []byte, hostID string) {
		path, err := socketOf(address, hostID)
		switch {
		case err != nil && !errors.Is(err, fabric.ErrUnsupported):
			t.Fatalf("%v has no sentinel", err)
		case err == nil && hostID+":"+path != string(address) || err == nil && path[0] != '/':
			t.Fatalf("%q on %q is %q", address, hostID, path)
		}
	})
}
