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

	"meridian/internal/until"
	"meridian/kv"
	"meridian/move/checksum"
	"meridian/move/fabric"
	"meridian/move/fabric/link"
	"meridian/move/mem"
	"meridian/move/mrdn"
)

// leaving is the end of a stream that sends.
type leaving struct {
	link.End
	left chan error
}

func (e *leaving) Leaving(*link.Outbound) bool      { return true }
func (e *leaving) Left(_ *link.Outbound, err error) { e.left <- err }
func (e *leaving) Lost(error)                       {}

func random(seed uint64, bytes int) (b []byte) {
	draw := rand.New(rand.NewPCG(seed, 5))
	for len(b) < bytes {
		b = binary.LittleEndian.AppendUint64(b, draw.Uint64())
	}
	return b[:bytes]
}

// sending is a stream to a peer that reads what the test does, and takes less than a chunk
// by itself.
type sending struct {
	gpu    *gpu
	stream *stream
	peer   net.Conn
	end    *leaving
	memory *mem.Section
	over   chan struct{} // closed when the stream's goroutines have ended

	regions fabric.Regions
}

func newSending(t *testing.T, bytes int) *sending {
	t.Helper()
	process, section := newGPU(t)
	s := &sending{gpu: process, memory: section(t, uint64(bytes)), end: &leaving{left: make(chan error, 4)}, over: make(chan struct{})}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	near, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if s.peer, err = listener.Accept(); err != nil {
		t.Fatal(err)
	}
	err = errors.Join(listener.Close(), near.(*net.TCPConn).SetWriteBuffer(16<<10), s.peer.(*net.TCPConn).SetReadBuffer(16<<10),
		s.memory.WriteAt(random(1, bytes), 0), s.regions.Add(fabric.Region{ID: 1, Epoch: 7, Section: s.memory}))
	if err != nil {
		t.Fatal(err)
	}
	if s.stream, err = newStream(near, &Options{}, s.end); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(s.over)
		s.stream.run()
	}()
	t.Cleanup(func() {
		s.stream.Close()
		s.peer.Close()
		<-s.over
		if err := s.memory.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return s
}

// post posts a part, and returns what gives its memory back.
func (s *sending) post(t *testing.T, handle uint32, offset, length uint64) (part link.Part, release func()) {
	t.Helper()
	list := fabric.List{{Region: 1, Epoch: 7}}
	if err := list[0].Spans.Add(offset, length); err != nil {
		t.Fatal(err)
	}
	bound, err := s.regions.Bind(list)
	if err != nil {
		t.Fatal(err)
	}
	part = link.Part{ID: kv.ID{byte(handle)}, Bound: bound}
	if _, err := s.stream.Post(&link.Outbound{Part: part, Handle: handle, Walk: list.Walk()}); err != nil {
		t.Fatal(err)
	}
	return part, bound.Release
}

// chunk reads one, and looks at its checksum.
func (s *sending) chunk(t *testing.T) (handle uint32, payload []byte) {
	t.Helper()
	header := make([]byte, mrdn.ChunkHeaderSize)
	_, err := io.ReadFull(s.peer, header)
	if err != nil {
		t.Fatal(err)
	}
	c, err := mrdn.ParseChunk(header[mrdn.PrefixSize:])
	if err != nil {
		t.Fatal(err)
	}
	payload = make([]byte, int(c.Length)+mrdn.ChunkTrailerSize)
	if _, err := io.ReadFull(s.peer, payload); err != nil {
		t.Fatal(err)
	}
	payload, sum := payload[:c.Length], binary.LittleEndian.Uint64(payload[c.Length:])
	if got := checksum.OfSums(checksum.AppendSums(nil, payload)); got != sum {
		t.Errorf("a chunk of %d bytes with checksum %x comes with %x", c.Length, got, sum)
	}
	return c.Handle, payload
}

// While a chunk waits for a peer that reads nothing the GPU gathers the next one, and no more.
func TestGathersAhead(t *testing.T) {
	const size = 3*stagedBytes + 5000
	s := newSending(t, size)
	_, release := s.post(t, 1, 0, size)
	until.True(t, "the second chunk is gathered while the first one leaves", func() bool { return s.gpu.launches.Load() == 2 })
	var got []byte
	for n := int64(1); len(got) < size; n++ {
		handle, payload := s.chunk(t)
		if handle != 1 {
			t.Fatalf("a chunk of part %d", handle)
		}
		got = append(got, payload...)
		if most := s.gpu.launches.Load(); most > n+2 {
			t.Errorf("after %d chunks %d were gathered", n, most)
		}
	}
	if err := <-s.end.left; err != nil || !bytes.Equal(got, random(1, size)) {
		t.Errorf("other bytes, or %v", err)
	}
	if n := s.gpu.launches.Load(); n != 4 {
		t.Errorf("4 chunks were gathered by %d kernels", n)
	}
	release()
}

// Parts take turns, and what is gathered ahead is the chunk of the one whose turn is next.
func TestGathersAheadInTurn(t *testing.T) {
	const size = 2 * stagedBytes
	s := newSending(t, 2*size)
	_, first := s.post(t, 1, 0, size)
	until.True(t, "something is gathered", func() bool { return s.gpu.launches.Load() == 2 })
	_, second := s.post(t, 2, size, size)
	got := map[uint32][]byte{}
	for range 4 {
		handle, payload := s.chunk(t)
		got[handle] = append(got[handle], payload...)
	}
	for range 2 {
		if err := <-s.end.left; err != nil {
			t.Error(err)
		}
	}
	want := random(1, 2*size)
	if !bytes.Equal(got[1], want[:size]) || !bytes.Equal(got[2], want[size:]) {
		t.Error("other bytes")
	}
	if n := s.gpu.launches.Load(); n > 5 { // one may have been for nothing, when the second part came
		t.Errorf("4 chunks were gathered by %d kernels", n)
	}
	first()
	second()
}

// A part that is stopped is quiet at once, also while the GPU gathers ahead of it, whose
// memory stays until it has. What it gathered is dropped, and another part is sent.
func TestStoppedWhileGatheringAhead(t *testing.T) {
	const size = 3 * stagedBytes
	s := newSending(t, 2*size)
	s.gpu.hangIn(1)
	stopped, release := s.post(t, 1, 0, size)
	s.gpu.awaitHung(t)
	s.stream.Quiet(func(p link.Part) bool { return p.ID == stopped.ID })
	release()
	if n := s.memory.References(); n == 0 {
		t.Error("the memory is let go of while the GPU reads it")
	}
	_, release = s.post(t, 2, size, size)
	s.gpu.resume()
	want := random(1, 2*size)
	if handle, payload := s.chunk(t); handle != 1 || !bytes.Equal(payload, want[:stagedBytes]) {
		t.Errorf("the chunk that was leaving is one of part %d, or has other bytes", handle)
	}
	for at := size; at < 2*size; at += stagedBytes {
		if handle, payload := s.chunk(t); handle != 2 || !bytes.Equal(payload, want[at:at+stagedBytes]) {
			t.Errorf("a chunk of part %d, or other bytes", handle)
		}
	}
	if err := <-s.end.left; err != nil {
		t.Error(err)
	}
	release()
	until.True(t, "no references are left", func() bool { return s.memory.References() == 0 })
}

// A stream that is closed has ended when the GPU has gathered what it was at.
func TestClosedWhileGatheringAhead(t *testing.T) {
	s := newSending(t, 2*stagedBytes)
	s.gpu.hangIn(1)
	_, release := s.post(t, 1, 0, 2*stagedBytes)
	s.gpu.awaitHung(t)
	s.stream.Close()
	release()
	brief, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	select {
	case <-s.over:
		t.Error("the stream has ended, and the GPU has not")
	case <-brief.Done():
	}
	if s.memory.References() == 0 {
		t.Error("the memory is let go of while the GPU reads it")
	}
	s.gpu.resume()
	<-s.over
	if n := s.memory.References(); n != 0 {
		t.Errorf("%d references are left", n)
	}
}
