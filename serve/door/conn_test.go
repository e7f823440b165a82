package door

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	"meridian/kv"
	"meridian/serve/door/doorpb"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func pair(t testing.TB) (a, b *Conn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var ends [2]*Conn
	for i, fd := range fds {
		file := os.NewFile(uintptr(fd), "end")
		c, err := net.FileConn(file)
		if err != nil {
			t.Fatal(err)
		}
		file.Close()
		ends[i] = NewConn(c.(*net.UnixConn))
		t.Cleanup(func() { ends[i].Close() })
		_ = c.SetDeadline(time.Now().Add(time.Minute))
	}
	return ends[0], ends[1]
}

func TestFramesArriveWithTheirDescriptors(t *testing.T) {
	a, b := pair(t)
	file, err := os.CreateTemp(t.TempDir(), "lent")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	big := &doorpb.Offer{Request: 2, Tokens: make([]uint32, 1<<20)}
	for i := range big.Tokens {
		big.Tokens[i] = uint32(i)
	}
	go func() {
		_ = a.Send(doorpb.FrameType_FRAME_TYPE_CANCEL, &doorpb.Cancel{Request: 1}, nil)
		_ = a.Send(doorpb.FrameType_FRAME_TYPE_OFFER, big, nil)
		_ = a.Send(doorpb.FrameType_FRAME_TYPE_LEND, &doorpb.Lend{Request: 3}, file)
		_ = a.Send(doorpb.FrameType_FRAME_TYPE_LEND, &doorpb.Lend{Request: 4}, file)
		_ = a.Send(doorpb.FrameType_FRAME_TYPE_CANCEL, &doorpb.Cancel{Request: 5}, nil)
		_ = a.Close()
	}()
	for _, want := range []struct {
		message proto.Message
		into    proto.Message
		lent    bool
	}{
		{&doorpb.Cancel{Request: 1}, &doorpb.Cancel{}, false},
		{big, &doorpb.Offer{}, false},
		{&doorpb.Lend{Request: 3}, &doorpb.Lend{}, true},
		{&doorpb.Lend{Request: 4}, &doorpb.Lend{}, true},
		{&doorpb.Cancel{Request: 5}, &doorpb.Cancel{}, false},
	} {
		f, err := b.Read(MaxFrameBytes)
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Unmarshal(want.into); err != nil || !proto.Equal(want.into, want.message) {
			t.Errorf("%v arrives as %v, %v", want.message, want.into, err)
		}
		if (f.File != nil) != want.lent {
			t.Errorf("%v has a descriptor: %v", f.Type, f.File != nil)
		}
		f.Close()
	}
	if _, err := b.Read(MaxFrameBytes); !errors.Is(err, io.EOF) {
		t.Errorf("the end is %v", err)
	}
}

func TestMisplacedDescriptorsAreRefused(t *testing.T) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	wire, err := AppendFrame(nil, doorpb.FrameType_FRAME_TYPE_LEND, &doorpb.Lend{Request: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Run("within the header", func(t *testing.T) {
		a, b := pair(t)
		if err := a.Write(wire[:2], nil); err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(20*time.Millisecond, func() { _ = a.Write(wire[2:], null) })
		if _, err := b.Read(MaxFrameBytes); !errors.Is(err, ErrFrame) {
			t.Error(err)
		}
	})
	t.Run("two", func(t *testing.T) {
		a, b := pair(t)
		fds := unix.UnixRights(int(null.Fd()), int(null.Fd()))
		if _, _, err := a.Socket().WriteMsgUnix(wire, fds, nil); err != nil {
			t.Fatal(err)
		}
		if _, err := b.Read(MaxFrameBytes); !errors.Is(err, ErrFrame) {
			t.Error(err)
		}
	})
}

func TestTooLongIsNotSent(t *testing.T) {
	if _, err := AppendFrame(nil, doorpb.FrameType_FRAME_TYPE_OFFER, &doorpb.Offer{Leg: make([]byte, MaxFrameBytes)}); !errors.Is(err, ErrFrame) {
		t.Error(err)
	}
}

func TestPublicationArrivesAsSent(t *testing.T) {
	layout, err := kv.ParseLayout("LBHNC")
	if err != nil {
		t.Fatal(err)
	}
	want := Publication{
		Geometry: kv.Geometry{DType: kv.BFloat16, Layers: []kv.Layer{
			{KVHeads: 8, HeadDim: 64, WindowTokens: 128}, {Attention: kv.Latent, KVHeads: 1, HeadDim: 576, IndexBytes: 132},
		}},
		Parallelism: kv.Parallelism{TP: 2, Stages: []int{1, 1}, CP: 2, DP: 3}, Layout: layout, Packing: kv.Packing{Unit: kv.HeadOfBlock, Name: "x"},
		BlockTokens: 16, Blocks: 100, InterleaveTokens: 4, Scope: kv.Scope{Model: "m", Revision: "r", Adapter: "a", Media: "i", Salt: "s"},
	}
	wire, err := proto.Marshal(want.Message())
	if err != nil {
		t.Fatal(err)
	}
	var m doorpb.Publish
	if err := proto.Unmarshal(wire, &m); err != nil {
		t.Fatal(err)
	}
	got, err := ParsePublication(&m)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(kv.Layout{})); diff != "" {
		t.Error(diff)
	}
}

// FuzzRead: whatever comes is a frame or a clear error, and a length alone costs
// no memory.
func FuzzRead(f *testing.F) {
	wire, err := AppendFrame(nil, doorpb.FrameType_FRAME_TYPE_OFFER, &doorpb.Offer{Request: 1, Tokens: []uint32{1, 2, 3}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(wire, 3)
	f.Add(append(bytes.Clone(wire), wire...), 7)
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 1, 0}, 2)
	f.Add([]byte{0, 0, 0, 0, 0, 0}, 1)
	f.Add([]byte{2}, 0)
	f.Fuzz(func(t *testing.T, b []byte, cut int) {
		if len(b) > 64<<10 {
			return // it must fit the socket's buffer
		}
		from, to := pair(t)
		cut = max(0, min(cut, len(b)))
		for _, part := range [][]byte{b[:cut], b[cut:]} {
			if len(part) > 0 {
				if err := from.Write(part, nil); err != nil {
					t.Fatal(err)
				}
			}
		}
		_ = from.Close()
		var again []byte
		for {
			frame, err := to.Read(MaxFrameBytes)
			if err != nil {
				if len(again) > len(b) || !bytes.Equal(again, b[:len(again)]) || errors.Is(err, io.EOF) && len(again) != len(b) {
					t.Errorf("%d of %d bytes were frames, then %v", len(again), len(b), err)
				}
				return
			}
			length := len(frame.Body) + 2
			again = append(again, byte(length), byte(length>>8), byte(length>>16), byte(length>>24), byte(frame.Type), byte(frame.Type>>8))
			again = append(again, frame.Body...)
			frame.Request()
			var m doorpb.Offer
			if frame.UnmarshalRequest(&m) == nil {
				_, _ = ParseOffer(&m)
			}
			var p doorpb.Publish
			if frame.UnmarshalRequest(&p) == nil {
				_, _ = ParsePublication(&p)
			}
		}
	})
}

// What an engine asks arrives as it was said.
func TestOfferAndAcceptArrive(t *testing.T) {
	offer := Offer{
		Transfer: [16]byte{1}, Scope: kv.Scope{Model: "m", Salt: "s"}, Tokens: []uint32{1, 2}, Tables: [][]uint32{{3}, {4, 5}}, DP: 1, Layers: 2,
		Keep: 3 * time.Second, Leg: []byte("leg"),
	}
	got, err := ParseOffer(offer.message())
	if diff := cmp.Diff(offer, got); diff != "" || err != nil {
		t.Error(err, diff)
	}
	accept := Accept{
		Ticket: []byte("ticket"), Scope: kv.Scope{Revision: "r"}, Tokens: []uint32{1, 2}, Tables: [][]uint32{{3}}, DP: 2, Present: 1, Push: true,
		Deadline: time.Minute, Leg: []byte("leg"),
	}
	if diff := cmp.Diff(accept, ParseAccept(accept.message())); diff != "" {
		t.Error(diff)
	}
	keep := Keep{Transfer: [16]byte{1}, Scope: kv.Scope{Salt: "s"}, Tokens: []uint32{1}, Tables: [][]uint32{{3}}, DP: 1, Request: "r", Leg: []byte("leg")}
	kept, err := ParseKeep(keep.message())
	if diff := cmp.Diff(keep, kept); diff != "" || err != nil {
		t.Error(err, diff)
	}
	for _, wrong := range [][]byte{nil, make([]byte, 16), make([]byte, 17)} {
		if _, err := ParseOffer(&doorpb.Offer{Transfer: wrong}); !errors.Is(err, ErrFrame) {
			t.Errorf("%x: %v", wrong, err)
		}
	}
}
