package mrdn

import (
	"bytes"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"meridian/kv"
)

var someID = kv.ID{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}

// linkFrames is one of each, with the parser that reads it back.
var linkFrames = []struct {
	name  string
	frame LinkFrame
	wire  []byte
	want  any
	parse func([]byte) (any, error)
}{
	{
		"hello", HelloFrame,
		Hello{MinVersion: 1, MaxVersion: 2, Capabilities: 3, Agent: "p0", Incarnation: someID, Expect: kv.ID{9}, Link: kv.ID{8}, Stream: 1, Streams: 4}.Append(nil),
		Hello{MinVersion: 1, MaxVersion: 2, Capabilities: 3, Agent: "p0", Incarnation: someID, Expect: kv.ID{9}, Link: kv.ID{8}, Stream: 1, Streams: 4},
		func(b []byte) (any, error) { return ParseHello(b) },
	},
	{
		"welcome", WelcomeFrame,
		Welcome{Version: 1, Capabilities: 5, Agent: "d0", Incarnation: someID, Code: CodeStalePeer, Message: "gone"}.Append(nil),
		Welcome{Version: 1, Capabilities: 5, Agent: "d0", Incarnation: someID, Code: CodeStalePeer, Message: "gone"},
		func(b []byte) (any, error) { return ParseWelcome(b) },
	},
	{
		"begin", BeginFrame,
		Begin{Handle: 7, ID: someID, Write: true, Part: 1, Parts: 2, Bytes: 99, List: []byte{1}, Notify: true, Notification: []byte("n")}.Append(nil),
		Begin{Handle: 7, ID: someID, Write: true, Part: 1, Parts: 2, Bytes: 99, List: []byte{1}, Notify: true, Notification: []byte("n")},
		func(b []byte) (any, error) { return ParseBegin(b) },
	},
	{
		"ack", AckFrame,
		Ack{ID: someID, Part: NoticeAck, Handle: 0x01020304, Code: CodeBusy, Untouched: true, Message: "full"}.Append(nil),
		Ack{ID: someID, Part: NoticeAck, Handle: 0x01020304, Code: CodeBusy, Untouched: true, Message: "full"},
		func(b []byte) (any, error) { return ParseAck(b) },
	},
	{
		"cancel", CancelFrame, Cancel{ID: someID}.Append(nil),
		Cancel{ID: someID},
		func(b []byte) (any, error) { return ParseCancel(b) },
	},
	{
		"notice", NoticeFrame, Notice{ID: someID, Payload: []byte("hi")}.Append(nil),
		Notice{ID: someID, Payload: []byte("hi")},
		func(b []byte) (any, error) { return ParseNotice(b) },
	},
	{
		"proof", ProofFrame, Proof{MAC: [32]byte{1, 31: 2}, Code: CodeUnproven, Message: "no"}.Append(nil),
		Proof{MAC: [32]byte{1, 31: 2}, Code: CodeUnproven, Message: "no"},
		func(b []byte) (any, error) { return ParseProof(b) },
	},
	{
		"chunk", ChunkFrame,
		func() []byte {
			b := make([]byte, ChunkHeaderSize)
			Chunk{Handle: 3, Length: 4096}.Put(b)
			return b
		}(),
		Chunk{Handle: 3, Length: 4096},
		func(b []byte) (any, error) { return ParseChunk(b) },
	},
	{
		"flag page", FlagPageFrame, FlagPage{Copiers: 3}.Append(nil),
		FlagPage{Copiers: 3},
		func(b []byte) (any, error) { return ParseFlagPage(b) },
	},
	{
		"lend", LendFrame, Lend{Region: 1, Epoch: 2, Serial: 3, Address: 4, SizeBytes: 5}.Append(nil),
		Lend{Region: 1, Epoch: 2, Serial: 3, Address: 4, SizeBytes: 5},
		func(b []byte) (any, error) { return ParseLend(b) },
	},
	{
		"lend gpu", LendGPUFrame, LendGPU{Region: 1, Epoch: 2, Serial: 3, UUID: [16]byte{4}, Handle: [64]byte{5, 63: 6}, Offset: 7, SizeBytes: 8}.Append(nil),
		LendGPU{Region: 1, Epoch: 2, Serial: 3, UUID: [16]byte{4}, Handle: [64]byte{5, 63: 6}, Offset: 7, SizeBytes: 8},
		func(b []byte) (any, error) { return ParseLendGPU(b) },
	},
	{
		"recall", RecallFrame, Recall{Region: 1, Serial: 2}.Append(nil),
		Recall{Region: 1, Serial: 2},
		func(b []byte) (any, error) { return ParseRecall(b) },
	},
	{
		"taken", TakenFrame, Taken{Handle: 7}.Append(nil),
		Taken{Handle: 7},
		func(b []byte) (any, error) { return ParseTaken(b) },
	},
	{
		"source", SourceFrame, Source{Handle: 1, Cell: 2, Turn: 3, List: []byte{4}}.Append(nil),
		Source{Handle: 1, Cell: 2, Turn: 3, List: []byte{4}},
		func(b []byte) (any, error) { return ParseSource(b) },
	},
}

func TestLinkFramesRoundTrip(t *testing.T) {
	for _, c := range linkFrames {
		frame, length, err := ParsePrefix(c.wire)
		if err != nil || frame != c.frame || int(length) != len(c.wire)-PrefixSize {
			t.Errorf("%s: prefix says type %d of %d bytes, %v", c.name, frame, length, err)
			continue
		}
		got, err := c.parse(c.wire[PrefixSize:])
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s: %s", c.name, diff)
		}
	}
	for _, b := range [][]byte{AppendPing(nil), AppendPong(nil)} {
		if _, length, err := ParsePrefix(b); err != nil || length != 0 || len(b) != PrefixSize {
			t.Errorf("% x: %d, %v", b, length, err)
		}
	}
}

func TestLinkFramesCutOrPadded(t *testing.T) {
	for _, c := range linkFrames {
		body := c.wire[PrefixSize:]
		for n := range body {
			if _, err := c.parse(body[:n:n]); !errors.Is(err, ErrLinkFrame) {
				t.Errorf("%s: first %d of %d bytes: %v", c.name, n, len(body), err)
			}
		}
		if _, err := c.parse(append(bytes.Clone(body), 0)); !errors.Is(err, ErrLinkFrame) {
			t.Errorf("%s: one byte too many: %v", c.name, err)
		}
	}
}

func TestLinkFramesRefuseNonsense(t *testing.T) {
	for name, prefix := range map[string][]byte{
		"unknown type": {0, 0, 0, 0, 200, ^byte(200), 0, 0},
		"type zero":    {0, 0, 0, 0, 0, 0xFF, 0, 0},
		"wrong fold":   {0, 0, 0, 0, 1, 0, 0, 0},
		"too long":     {1, 0, 0x40, 0, 1, 0xBF, 0, 0},
	} {
		if _, _, err := ParsePrefix(prefix); !errors.Is(err, ErrLinkFrame) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, b := range map[string]Begin{
		"part beyond parts":      {Part: 2, Parts: 2},
		"no parts":               {},
		"payload without notify": {Parts: 1, Notification: []byte("x")},
	} {
		if _, err := ParseBegin(b.Append(nil)[PrefixSize:]); !errors.Is(err, ErrLinkFrame) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, length := range []uint32{0, MaxChunk + 1} {
		b := make([]byte, ChunkHeaderSize)
		Chunk{Length: length}.Put(b)
		if _, err := ParseChunk(b[PrefixSize:]); !errors.Is(err, ErrLinkFrame) {
			t.Errorf("chunk of %d bytes: %v", length, err)
		}
	}
	if OK.String() != "ok" || Code(999).String() != "code 999" {
		t.Error("codes print as words, unknown ones as numbers")
	}
}

func FuzzLinkFrames(f *testing.F) {
	for i, c := range linkFrames {
		f.Add(uint8(i), c.wire[PrefixSize:])
	}
	f.Fuzz(func(t *testing.T, which uint8, body []byte) {
		c := linkFrames[int(which)%len(linkFrames)]
		if _, err := c.parse(body); err != nil && !errors.Is(err, ErrLinkFrame) {
			t.Fatalf("%s: %v has no sentinel", c.name, err)
		}
	})
}

// One flipped bit anywhere in a frame is noticed, by its prefix or by its check.
func TestLinkFramesNoticeAFlippedBit(t *testing.T) {
	for _, c := range linkFrames {
		for bit := range 8 * len(c.wire) {
			b := bytes.Clone(c.wire)
			b[bit/8] ^= 1 << (bit % 8)
			_, _, err := ParsePrefix(b)
			if err == nil {
				err = CheckFrame(b, b[PrefixSize:])
			}
			if !errors.Is(err, ErrLinkFrame) {
				t.Errorf("%s: bit %d: %v", c.name, bit, err)
			}
		}
	}
}
