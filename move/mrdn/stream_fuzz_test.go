package mrdn

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"meridian/kv"
)

// Whatever a stream holds, its reader ends with a verdict, at a place within
// it, and what it took for a frame is one.
func FuzzReader(f *testing.F) {
	var two bytes.Buffer
	w := NewWriter(&two)
	for _, body := range []string{"", "some bytes"} {
		if err := w.Write(kv.ThinkActive, []byte(body)); err != nil {
			f.Fatal(err)
		}
	}
	whole := two.Bytes()
	f.Add(whole)
	f.Add(whole[:len(whole)-1])
	f.Add(whole[1:])
	f.Add(bytes.Repeat([]byte{0xff}, 3*HeaderSize))
	f.Fuzz(func(t *testing.T, stream []byte) {
		const most = 1 << 12
		r := NewReader(bytes.NewReader(stream), most)
		for {
			at := r.Offset()
			frame, err := r.Next()
			if r.Offset() > int64(len(stream)) {
				t.Fatalf("read to %d of %d", r.Offset(), len(stream))
			}
			if errors.Is(err, ErrChecksum) {
				continue
			}
			if err != nil {
				if !errors.Is(err, io.EOF) && Verdict(err) == "" {
					t.Fatalf("%v is no verdict", err)
				}
				return
			}
			if len(frame.Body) > most {
				t.Fatalf("a body of %d bytes", len(frame.Body))
			}
			var again bytes.Buffer
			if err := NewWriter(&again).Write(frame.Header.Tier, frame.Body); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(again.Bytes(), stream[at:r.Offset()]) {
				t.Fatalf("% x was read, and is written as % x", stream[at:r.Offset()], again.Bytes())
			}
		}
	})
}
