package record

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"meridian/kv"
	"meridian/move/checksum"
	"meridian/move/mrdn"
)

func encoded(t interface{ Fatal(...any) }, r *Record, align int) []byte {
	b := bytes.Repeat([]byte{0xa5}, Size(r, align)) // memory that was used before
	if err := Encode(b, r); err != nil {
		t.Fatal(err)
	}
	return b
}

func drawn(t *rapid.T) *Record {
	return &Record{
		Key: rapid.SliceOfN(rapid.Byte(), 1, MaxKey).Draw(t, "key"), Header: rapid.SliceOfN(rapid.Byte(), 0, MaxHeader).Draw(t, "header"),
		Payload: rapid.SliceOfN(rapid.Byte(), 0, 20_000).Draw(t, "payload"), Dropped: rapid.Bool().Draw(t, "dropped"),
	}
}

func TestRecordIsAFrame(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := drawn(t)
		align := rapid.SampledFrom([]int{1, 64, 4096}).Draw(t, "align")
		b := encoded(t, r, align)
		if f, rest, err := mrdn.Parse(b, 1<<20); err != nil || len(f.Body) != prefixSize+len(r.Key)+len(r.Header) || !bytes.HasPrefix(rest, r.Payload) || len(b)%align != 0 {
			t.Fatalf("as a frame: %d bytes are behind it of %d, %v", len(rest), len(b), err)
		}
		e, err := Parse(b[:min(len(b), Lead)])
		if err != nil || !bytes.Equal(e.Key, r.Key) || !bytes.Equal(e.Header, r.Header) || e.Length != len(r.Payload) || e.Bytes != len(b) || e.Dropped != r.Dropped {
			t.Fatalf("%+v, %v", e, err)
		}
		got := make([]byte, e.Length)
		if err := e.CopyPayload(got, b); err != nil || !bytes.Equal(got, r.Payload) {
			t.Fatal(err)
		}
		clear(got)
		c := e.CopyTo(got)
		for read := 0; read < len(b); {
			read += rapid.IntRange(1, len(b)-read).Draw(t, "read")
			c.Take(b[:read])
		}
		if err := c.End(); err != nil || !bytes.Equal(got, r.Payload) {
			t.Fatalf("in pieces: %v", err)
		}
	})
}

// before encodes a record as it was done before, with the frame around all of it.
func before(t interface{ Fatal(...any) }, r *Record, align int) []byte {
	b := make([]byte, Size(r, align))
	body := b[mrdn.HeaderSize:]
	copy(body, magicBefore)
	binary.LittleEndian.PutUint16(body[4:], uint16(len(r.Key)))
	binary.LittleEndian.PutUint16(body[6:], uint16(len(r.Header)))
	binary.LittleEndian.PutUint32(body[8:], uint32(len(r.Payload)))
	if r.Dropped {
		body[12] = 1
	}
	n := prefixSize + copy(body[prefixSize:], r.Key)
	n += copy(body[n:], r.Header)
	copy(body[n:], r.Payload)
	binary.LittleEndian.PutUint64(body[16:], checksum.OfSums(checksum.AppendSums(nil, r.Payload)))
	binary.LittleEndian.PutUint64(body[24:], prefixSum(uint32(len(body)), body[:n]))
	frame, err := mrdn.NewHeader(kv.ThinkComplete, body)
	if err != nil {
		t.Fatal(err)
	}
	frame.Append(b[:0])
	return b
}

// What a tier was given by an earlier version is still there.
func TestRecordsOfBefore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := drawn(t)
		b := before(t, r, 64)
		e, err := Parse(b[:min(len(b), Lead)])
		if err != nil || !bytes.Equal(e.Key, r.Key) || !bytes.Equal(e.Header, r.Header) || e.Length != len(r.Payload) || e.Bytes != len(b) || e.Dropped != r.Dropped {
			t.Fatalf("%+v, %v", e, err)
		}
		got := make([]byte, e.Length)
		if err := e.CopyPayload(got, b); err != nil || !bytes.Equal(got, r.Payload) {
			t.Fatal(err)
		}
	})
}

// A bit that is flipped anywhere but in the zeros and in the frame's tier, which is a hint,
// is found, in records of before but in the frame's checksum; what is cut short is torn.
func TestDamageIsFound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := drawn(t)
		b, unseen := encoded(t, r, 64), 13
		if rapid.Bool().Draw(t, "before") {
			b, unseen = before(t, r, 64), mrdn.HeaderSize
		}
		e, err := Parse(b)
		if err != nil {
			t.Fatal(err)
		}
		whole := func(b []byte) error {
			e, err := Parse(b)
			if err == nil {
				err = e.CopyPayload(make([]byte, e.Length), b)
			}
			return err
		}
		if cut := rapid.IntRange(0, e.Payload+e.Length-1).Draw(t, "cut"); !errors.Is(whole(b[:cut]), ErrTorn) {
			t.Fatalf("cut at %d of %d: %v", cut, len(b), whole(b[:cut]))
		}
		at := rapid.IntRange(0, e.Payload+e.Length-1).Filter(func(at int) bool { return at < 12 || at >= unseen }).Draw(t, "at")
		b[at] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
		if err := whole(b); !errors.Is(err, ErrBroken) {
			t.Fatalf("a bit of byte %d of %d: %v", at, len(b), err)
		}
	})
}

func TestCheck(t *testing.T) {
	for name, r := range map[string]*Record{
		"no key": {}, "key": {Key: make([]byte, MaxKey+1)}, "header": {Key: []byte("k"), Header: make([]byte, MaxHeader+1)},
	} {
		if err := r.Check(); !errors.Is(err, ErrSize) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if Lead != mrdn.HeaderSize+32+MaxKey+MaxHeader {
		t.Error(Lead)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(encoded(f, &Record{Key: []byte("key"), Header: []byte("header"), Payload: []byte("payload")}, 64))
	f.Add(encoded(f, &Record{Key: make([]byte, MaxKey), Header: make([]byte, MaxHeader), Dropped: true}, 4096))
	f.Add(before(f, &Record{Key: []byte("key"), Header: []byte("header"), Payload: []byte("payload")}, 64))
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := Parse(b)
		if err != nil {
			if !errors.Is(err, ErrBroken) {
				t.Fatal(err)
			}
			return
		}
		if len(e.Key) == 0 || len(e.Key) > MaxKey || len(e.Header) > MaxHeader || e.Payload+e.Length > e.Bytes || e.Length < 0 {
			t.Fatalf("%+v", e)
		}
		if e.Length <= len(b) {
			_ = e.CopyPayload(make([]byte, e.Length), b)
		}
	})
}

func BenchmarkRecord(b *testing.B) {
	for _, size := range []int{64 << 10, 1 << 20} {
		r := &Record{Key: []byte("key"), Payload: make([]byte, size)}
		whole := encoded(b, r, 4096)
		b.Run(fmt.Sprintf("Encode%dKiB", size>>10), func(b *testing.B) {
			b.SetBytes(int64(size))
			for b.Loop() {
				_ = Encode(whole, r)
			}
		})
		b.Run(fmt.Sprintf("Decode%dKiB", size>>10), func(b *testing.B) {
			b.SetBytes(int64(size))
			into := make([]byte, size)
			for b.Loop() {
				if e, err := Parse(whole); err != nil || e.CopyPayload(into, whole) != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
