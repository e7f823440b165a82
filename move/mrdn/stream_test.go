package mrdn

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"testing/iotest"

	"meridian/kv"
)

func TestStreamRoundTrip(t *testing.T) {
	bodies := [][]byte{{}, {7}, patternBody(16 << 10), patternBody(3 << 20), []byte("last")}
	var stream bytes.Buffer
	w := NewWriter(&stream)
	for i, body := range bodies {
		if err := w.Write(kv.Tiers()[i%3], body); err != nil {
			t.Fatal(err)
		}
	}
	r := NewReader(iotest.HalfReader(&stream), DefaultMaxBody)
	var offset int64
	for i, body := range bodies {
		if r.Offset() != offset {
			t.Errorf("frame %d starts at %d, reader says %d", i, offset, r.Offset())
		}
		f, err := r.Next()
		if err != nil || f.Tier != kv.Tiers()[i%3] || !bytes.Equal(f.Body, body) {
			t.Fatalf("frame %d: %v, %d bytes, %v", i, f.Tier, len(f.Body), err)
		}
		offset += int64(HeaderSize + len(body))
	}
	if _, err := r.Next(); err != io.EOF {
		t.Errorf("at the end: got %v, want io.EOF", err)
	}
}

func TestStreamGoesOnAfterABadChecksum(t *testing.T) {
	stream := mustFrame(t, kv.ThinkActive, []byte("abc"))
	stream[len(stream)-1] ^= 1
	stream = append(stream, mustFrame(t, kv.ThinkActive, []byte("def"))...)
	r := NewReader(bytes.NewReader(stream), DefaultMaxBody)
	if f, err := r.Next(); !errors.Is(err, ErrChecksum) || string(f.Body) != "abb" {
		t.Fatalf("got %q, %v", f.Body, err)
	}
	if f, err := r.Next(); err != nil || string(f.Body) != "def" {
		t.Fatalf("got %q, %v", f.Body, err)
	}
}

func TestStreamEndsWithinAFrame(t *testing.T) {
	frame := mustFrame(t, kv.ThinkActive, patternBody(100))
	for n := 1; n < len(frame); n++ {
		if _, err := NewReader(bytes.NewReader(frame[:n]), DefaultMaxBody).Next(); !errors.Is(err, ErrTruncated) {
			t.Errorf("first %d bytes: got %v, want ErrTruncated", n, err)
		}
	}
}

// A header that promises 200 MiB and brings nothing must not cost 200 MiB.
func TestAllocationFollowsArrival(t *testing.T) {
	h, err := NewHeader(kv.ThinkActive, nil)
	if err != nil {
		t.Fatal(err)
	}
	h.BodyLen = 200 << 20
	r := NewReader(bytes.NewReader(h.Append(nil)), DefaultMaxBody)
	if _, err := r.Next(); !errors.Is(err, ErrTruncated) {
		t.Fatalf("got %v", err)
	}
	if cap(r.body) > firstRead {
		t.Errorf("an empty promise allocated %d bytes", cap(r.body))
	}
}

func TestStreamErrorsKeepTheirCause(t *testing.T) {
	cause := errors.New("disk on fire")
	frame := mustFrame(t, kv.ThinkActive, patternBody(100))
	for _, n := range []int{0, 10, HeaderSize, HeaderSize + 50} {
		r := NewReader(io.MultiReader(bytes.NewReader(frame[:n]), iotest.ErrReader(cause)), DefaultMaxBody)
		if _, err := r.Next(); !errors.Is(err, cause) {
			t.Errorf("after %d bytes: got %v", n, err)
		}
	}
	for _, n := range []int64{0, HeaderSize} {
		w := NewWriter(&failingWriter{after: n, cause: cause})
		if err := w.Write(kv.ThinkActive, []byte("abc")); !errors.Is(err, cause) {
			t.Errorf("writer after %d bytes: got %v", n, err)
		}
	}
}

type failingWriter struct {
	after int64
	cause error
}

func (w *failingWriter) Write(p []byte) (int, error) {
	if w.after -= int64(len(p)); w.after < 0 {
		return 0, w.cause
	}
	return len(p), nil
}

func TestReaderReusesItsBuffer(t *testing.T) {
	frame := mustFrame(t, kv.ThinkActive, patternBody(16<<10))
	source := bytes.NewReader(frame)
	r := NewReader(source, DefaultMaxBody)
	allocs := testing.AllocsPerRun(100, func() {
		source.Reset(frame)
		if _, err := r.Next(); err != nil {
			t.Fatal(err)
		}
	})
	if allocs != 0 {
		t.Errorf("a warm reader allocates %v times a frame", allocs)
	}
}
