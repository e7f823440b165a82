package tcp

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"testing"
	"time"

	"meridian/kv"
	"meridian/move/checksum"
	"meridian/move/cuda"
	"meridian/move/fabric"
	"meridian/move/fabric/handshake"
	"meridian/move/mem"
	"meridian/move/mem/vram"
	"meridian/move/mrdn"
)

// A write is acknowledged when its last chunk is in place: until then its kernel may hang.
func TestAcknowledgedWhenPlaced(t *testing.T) {
	h := newHangs(t)
	want := random(2, hungBytes)
	if err := h.memory[0].WriteAt(want, 0); err != nil {
		t.Fatal(err)
	}
	for kernel := range int64(8) { // one places a chunk, one sums what lies there
		if err := h.memory[1].WriteAt(make([]byte, hungBytes), 0); err != nil {
			t.Fatal(err)
		}
		far := h.processes[1]
		far.hangIn(kernel)
		transfer := h.post(t, fabric.Write, 1, hungBytes)
		far.awaitHung(t)
		brief, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		if err := transfer.Await(brief); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("it ends with %v while kernel %d hangs", err, kernel)
		}
		cancel()
		far.resume()
		got := make([]byte, hungBytes)
		if err := errors.Join(transfer.Await(t.Context()), h.memory[1].ReadAt(got, 0)); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("other bytes, or %v", err)
		}
	}
}

// While a GPU places a chunk the stream is read: what is for others is not delayed.
func TestReadsWhileTheGPUPlaces(t *testing.T) {
	h := newHangs(t)
	for _, f := range h.fabrics {
		arena, err := mem.NewArena(mem.ArenaOptions{SizeBytes: 2 << 20, NUMANode: -1})
		if err == nil {
			err = f.Register(fabric.Region{ID: 2, Epoch: 7, Section: arena.Section})
		}
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := errors.Join(f.Deregister(context.Background(), 2), arena.Close(context.Background())); err != nil {
				t.Error(err)
			}
		}()
	}
	resume := h.processes[1].Hang()
	stuck := h.stuck(t, fabric.Write, h.processes[1])
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := h.post(t, fabric.Write, 2, 2<<20).Await(ctx); err != nil {
		t.Errorf("a write to host memory beside it: %v", err)
	}
	if state, _ := stuck.Status(); state.Ended() {
		t.Errorf("it is %v while the GPU has it", state)
	}
	resume()
	if err := stuck.Await(t.Context()); err != nil {
		t.Error(err)
	}
}

// A fabric whose GPU hangs in a chunk of a peer that is gone keeps that memory, and is not
// closed before the GPU is done.
func TestLinkLostWhileTheGPUPlaces(t *testing.T) {
	h := newHangs(t)
	resume := h.processes[1].Hang()
	h.stuck(t, fabric.Write, h.processes[1])
	if err := h.fabrics[0].Close(t.Context()); err != nil {
		t.Error(err)
	}
	brief, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := h.fabrics[1].Close(brief); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("closed while the GPU has its memory: %v", err)
	}
	if h.memory[1].References() == 0 {
		t.Error("the memory is let go of while the GPU writes it")
	}
	resume()
	if err := h.fabrics[1].Close(t.Context()); err != nil {
		t.Error(err)
	}
	if n := h.memory[1].References(); n != 0 {
		t.Errorf("%d references are left", n)
	}
}

// What lies at the destination is compared: a byte that was placed wrongly is noticed.
func TestPlacedWrongly(t *testing.T) {
	h := newHangs(t)
	for i, op := range []fabric.Op{fabric.Read, fabric.Write} {
		at := vram.Of(h.memory[i]).At
		for _, byteOf := range []uint64{0, stagedBytes + 77, hungBytes - 1} {
			h.processes[i].Flip(at + cuda.Pointer(byteOf))
			if err := h.post(t, op, 1, hungBytes).Await(t.Context()); !errors.Is(err, fabric.ErrChecksum) {
				t.Errorf("%v: byte %d was placed wrongly: %v", op, byteOf, err)
			}
		}
		if err := h.post(t, op, 1, hungBytes).Await(t.Context()); err != nil {
			t.Errorf("%v after that: %v", op, err)
		}
	}
}

// The checksum that comes with a chunk is held against what the GPU has placed. After a
// wrong one the rest of its part is thrown away, and another part is served.
func TestWrongChecksumForTheGPU(t *testing.T) {
	const chunk, chunks = 100_000, 3
	h := newHangs(t)
	conn, err := net.Dial("tcp", string(h.fabrics[1].Address()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := (handshake.Self{Agent: "peer"}).Introduce(conn, handshake.DialRequest{Expect: kv.ID{2}, Link: newID(), Streams: 1}); err != nil {
		t.Fatal(err)
	}
	payload := random(3, chunk*chunks)
	const offset = 4321
	list := fabric.List{{Region: 1, Epoch: 7}}
	if err := errors.Join(list[0].Spans.Add(offset, chunk*chunks), h.memory[1].WriteAt(make([]byte, hungBytes), 0)); err != nil {
		t.Fatal(err)
	}
	for wrong := range chunks + 1 { // the last time none is
		said := mrdn.Begin{Handle: uint32(wrong), ID: newID(), Write: true, Parts: 1, Bytes: chunk * chunks, List: list.AppendTo(nil)}.Append(nil)
		for i := range chunks {
			header, body := make([]byte, mrdn.ChunkHeaderSize), payload[i*chunk:(i+1)*chunk]
			mrdn.Chunk{Handle: uint32(wrong), Length: chunk}.Put(header)
			sum := checksum.OfSums(checksum.AppendSums(nil, body))
			if i == wrong {
				sum++
			}
			said = binary.LittleEndian.AppendUint64(append(append(said, header...), body...), sum)
		}
		if _, err := conn.Write(said); err != nil {
			t.Fatal(err)
		}
		want := mrdn.CodeChecksum
		if wrong == chunks {
			want = mrdn.OK
		}
		if ack := nextAck(t, conn); ack.Code != want || ack.Handle != uint32(wrong) {
			t.Errorf("checksum %d of %d wrong: %v", wrong, chunks, ack)
		}
	}
	got, whole := make([]byte, hungBytes), make([]byte, hungBytes)
	copy(whole[offset:], payload)
	if err := h.memory[1].ReadAt(got, 0); err != nil || !bytes.Equal(got, whole) {
		t.Errorf("other bytes in the end, or %v", err)
	}
}

// nextAck reads frames up to an Ack.
func nextAck(t *testing.T, conn net.Conn) mrdn.Ack {
	t.Helper()
	_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
	for {
		prefix := make([]byte, mrdn.PrefixSize)
		_, err := io.ReadFull(conn, prefix)
		if err != nil {
			t.Fatal(err)
		}
		frame, length, err := mrdn.ParsePrefix(prefix)
		if err != nil {
			t.Fatal(err)
		}
		body := make([]byte, length)
		if _, err := io.ReadFull(conn, body); err != nil {
			t.Fatal(err)
		}
		if frame == mrdn.AckFrame {
			ack, err := mrdn.ParseAck(body)
			if err != nil {
				t.Fatal(err)
			}
			return ack
		}
	}
}

// A list may name memory of a GPU and of the host, in pieces of any size, more of them in a
// chunk than are placed at a time.
func TestMixedMemory(t *testing.T) {
	const size = stagedBytes + 333
	h := newHangs(t)
	want := random(4, size)
	draw := rand.New(rand.NewPCG(11, 12))
	for i, f := range h.fabrics {
		arena, err := mem.NewArena(mem.ArenaOptions{SizeBytes: hungBytes, NUMANode: -1})
		if err == nil {
			err = f.Register(fabric.Region{ID: 2, Epoch: 7, Section: arena.Section})
		}
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := errors.Join(h.fabrics[i].Deregister(context.Background(), 2), arena.Close(context.Background())); err != nil {
				t.Error(err)
			}
		}()
	}
	// cut names size bytes in pieces, in regions that take turns after so many bytes.
	cut := func(longest, turn uint64, regions ...uint64) (l fabric.List) {
		for left, at := uint64(size), uint64(0); left > 0; {
			l = append(l, fabric.Part{Region: regions[len(l)%len(regions)], Epoch: 7})
			for n := uint64(0); n < turn && left > 0; {
				length := min(1+draw.Uint64N(longest), left)
				if err := l[len(l)-1].Spans.Add(at, length); err != nil {
					t.Fatal(err)
				}
				n, left, at = n+length, left-length, at+length+draw.Uint64N(2)
			}
		}
		return l
	}
	for name, lists := range map[string][2]fabric.List{
		"small pieces": {cut(1<<20, size, 1), cut(47, size, 1)},
		"mixed":        {cut(50_000, 150_000, 1, 2), cut(3_000, 170_000, 2, 1)},
		"mixed source": {cut(9_000, 300_000, 2, 1), cut(200_000, size, 1)},
	} {
		for _, op := range []fabric.Op{fabric.Write, fabric.Read} {
			source, destination := h.fabrics[0], h.fabrics[1]
			local, remote := lists[0], lists[1]
			if op == fabric.Read {
				source, destination, local, remote = destination, source, remote, local
			}
			pass(t, source, lists[0], want, true)
			pass(t, destination, lists[1], make([]byte, size), true)
			p, err := h.link.Prepare(op, local, remote)
			if err != nil {
				t.Fatal(err)
			}
			transfer, err := h.link.Post(t.Context(), p, fabric.PostOptions{ID: newID()})
			if err == nil {
				err = transfer.Await(t.Context())
			}
			p.Release()
			got := make([]byte, size)
			pass(t, destination, lists[1], got, false)
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("%s: %v: other bytes, or %v", name, op, err)
			}
		}
	}
}

// pass writes bytes to a list, or reads them.
func pass(t *testing.T, f *Fabric, l fabric.List, b []byte, write bool) {
	t.Helper()
	bound, err := f.regions.Bind(l)
	if err != nil {
		t.Fatal(err)
	}
	defer bound.Release()
	// One call for each region: what is between the pieces is random too.
	images := map[*mem.Section][]byte{}
	walk := l.Walk()
	for len(b) > 0 {
		cut := walk.Next(uint64(len(b)))
		section := bound.Section(cut.Part)
		image := images[section]
		if image == nil {
			image = make([]byte, section.Size())
			if err := section.ReadAt(image, 0); err != nil {
				t.Fatal(err)
			}
			images[section] = image
		}
		if piece := image[cut.Offset:][:cut.Length]; write {
			copy(piece, b)
		} else {
			copy(b, piece)
		}
		b = b[cut.Length:]
	}
	for section, image := range images {
		if !write {
			break
		}
		if err := section.WriteAt(image, 0); err != nil {
			t.Fatal(err)
		}
	}
}
