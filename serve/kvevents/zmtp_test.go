package kvevents

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
)

// fakePeer is what the other end has said; what is written to it is kept.
type fakePeer struct {
	io.Reader
	written bytes.Buffer
}

func (f *fakePeer) Write(p []byte) (int, error) { return f.written.Write(p) }

func reading(said ...string) (*wire, *fakePeer) {
	f := &fakePeer{Reader: strings.NewReader(strings.Join(said, ""))}
	return newWire(f), f
}

func ready(kind string) string {
	body := property([]byte("\x05READY"), "Socket-Type", kind)
	return string([]byte{flagCommand, byte(len(body))}) + string(body)
}

func TestShake(t *testing.T) {
	old, curve, garbled := greeting(), greeting(), greeting()
	old[10] = 1
	copy(curve[12:], "CURVE")
	garbled[0] = 'H'
	newer := greeting()
	newer[10], newer[11] = 3, 1
	for name, c := range map[string]struct {
		said []string
		want string // of the error, "" for none
	}{
		"a publisher":     {[]string{string(greeting()), ready("PUB")}, ""},
		"of libzmq today": {[]string{string(newer), ready("XPUB")}, ""},
		"a REP socket":    {[]string{string(greeting()), ready("REP")}, "REP"},
		"too old":         {[]string{string(old), ready("PUB")}, "version 1"},
		"secured":         {[]string{string(curve)}, "CURVE"},
		"a web server":    {[]string{"HTTP/1.1 400 Bad Request" + strings.Repeat(" ", 64)}, "greeting"},
		"garbled":         {[]string{string(garbled)}, "greeting"},
		"cut":             {[]string{string(greeting()[:40])}, "greeting"},
		"an error":        {[]string{string(greeting()), "\x04\x0b\x05ERROR\x04nope"}, "nope"},
		"no handshake":    {[]string{string(greeting()), "\x00\x01x"}, "before the handshake"},
		"no name":         {[]string{string(greeting()), "\x04\x02\x09x"}, "without a name"},
	} {
		w, f := reading(c.said...)
		err := w.shake(subscriber)
		if c.want == "" && err != nil || c.want != "" && (!errors.Is(err, ErrProtocol) || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v", name, err)
		}
		if !bytes.HasPrefix(f.written.Bytes(), greeting()) {
			t.Errorf("%s: was not greeted", name)
		}
	}
}

func TestReceive(t *testing.T) {
	long := strings.Repeat("x", 70_000)
	lengthOf := func(n uint64) string { return string(binary.BigEndian.AppendUint64(nil, n)) }
	w, f := reading(
		"\x01\x00", "\x01\x02ab", "\x00\x01c", // three frames, the first empty
		"\x04\x09\x04PING\x00\x0aab", "\x04\x03\x02Hi", // commands between messages
		"\x01\x01d", "\x04\x08\x04PING\x00\x0ac", "\x02", lengthOf(70_000), long, // and within one
	)
	for _, want := range [][]string{{"", "ab", "c"}, {"d", long}} {
		frames, err := w.receive()
		if err != nil {
			t.Fatal(err)
		}
		got := make([]string, len(frames))
		for i := range frames {
			got[i] = string(frames[i])
		}
		if !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if _, err := w.receive(); err != io.EOF {
		t.Errorf("the end is %v", err)
	}
	if got := f.written.String(); got != "\x04\x07\x04PONGab\x04\x06\x04PONGc" {
		t.Errorf("PINGs were answered with %q", got)
	}
}

func TestReceiveRefuses(t *testing.T) {
	for name, said := range map[string]string{
		"flags":           "\x08\x00",
		"a long command":  "\x06\x00\x00\x00\x00\x00\x10\x00\x00",
		"a command, more": "\x05\x00",
		"a giant":         "\x02\x7f\xff\xff\xff\xff\xff\xff\xff",
		"many frames":     strings.Repeat("\x01\x00", 9),
		"a short PING":    "\x04\x06\x04PING\x00",
	} {
		w, _ := reading(said)
		if _, err := w.receive(); !errors.Is(err, ErrProtocol) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, said := range map[string]string{
		"within a frame": "\x00\x05abc", "within a size": "\x02\x00\x00", "before a size": "\x00", "between frames": "\x01\x01a",
		"what is announced, not sent": "\x02\x00\x00\x00\x00\x03\x00\x00\x00abc",
	} {
		w, _ := reading(said)
		if _, err := w.receive(); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%s: %v", name, err)
		}
		if cap(w.buffer) > 4*readStep {
			t.Errorf("%s: %d bytes were held for it", name, cap(w.buffer))
		}
	}
}

// What is sent is received.
func TestSendReceive(t *testing.T) {
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	frames := [][]byte{nil, []byte("topic"), bytes.Repeat([]byte("p"), 300)}
	go func() { _ = newWire(a).send(frames...) }()
	got, err := newWire(b).receive()
	if err != nil || len(got) != 3 || !bytes.Equal(got[2], frames[2]) || string(got[1]) != "topic" {
		t.Errorf("got %q, %v", got, err)
	}
}

func FuzzReceive(f *testing.F) {
	f.Add([]byte("\x01\x00\x01\x02ab\x00\x01c"))
	f.Add([]byte("\x04\x09\x04PING\x00\x0aab\x00\x00"))
	f.Add([]byte("\x02\x00\x00\x00\x00\x00\x00\x00\x01z"))
	f.Fuzz(func(t *testing.T, data []byte) {
		w, _ := reading(string(data))
		total := 0
		for {
			frames, err := w.receive()
			if err != nil {
				break
			}
			for _, frame := range frames {
				total += len(frame)
			}
		}
		if total > len(data) {
			t.Fatalf("%d bytes came of %d", total, len(data))
		}
		if cap(w.buffer) > 4*(len(data)+readStep) {
			t.Fatalf("%d bytes are held for %d", cap(w.buffer), len(data))
		}
	})
}

func FuzzShake(f *testing.F) {
	f.Add(append(greeting(), ready("PUB")...))
	f.Fuzz(func(t *testing.T, data []byte) {
		w, _ := reading(string(data))
		_ = w.shake(subscriber) // whatever comes, it returns
	})
}
