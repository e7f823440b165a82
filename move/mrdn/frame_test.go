package mrdn

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"meridian/kv"
)

// vectorLines returns the words of each line of a file in testdata/mrdn, which
// the Python and C++ tests read as well.
func vectorLines(t testing.TB, name string) [][]string {
	t.Helper()
	f, err := os.Open(filepath.Join("..", "..", "testdata", "mrdn", name))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var lines [][]string
	for scanner := bufio.NewScanner(f); scanner.Scan(); {
		if line := scanner.Text(); !strings.HasPrefix(line, "#") {
			lines = append(lines, strings.Fields(line))
		}
	}
	if len(lines) == 0 {
		t.Fatalf("%s holds no vectors", name)
	}
	return lines
}

func patternBody(size int) []byte {
	body := make([]byte, size)
	for i := range body {
		body[i] = byte(i % 251)
	}
	return body
}

func mustHex(t testing.TB, text string) []byte {
	t.Helper()
	if text == "-" {
		return nil
	}
	b, err := hex.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func mustFrame(t testing.TB, tier kv.Tier, body []byte) []byte {
	t.Helper()
	frame, err := AppendFrame(nil, tier, body)
	if err != nil {
		t.Fatal(err)
	}
	return frame
}

func TestGoldenVectors(t *testing.T) {
	for _, line := range vectorLines(t, "golden.txt") {
		tier, err := kv.ParseTier(line[0])
		if err != nil {
			t.Fatal(err)
		}
		size, err := strconv.Atoi(line[1])
		if err != nil {
			t.Fatal(err)
		}
		body := patternBody(size)
		want := append(mustHex(t, line[2]), body...)
		if got := mustFrame(t, tier, body); !bytes.Equal(got, want) {
			t.Errorf("%s of %d bytes: header is %x, want %s", tier, size, got[:HeaderSize], line[2])
		}
		f, rest, err := Parse(want, DefaultMaxBody)
		if err != nil || f.Tier != tier || !bytes.Equal(f.Body, body) || len(rest) != 0 {
			t.Errorf("%s of %d bytes does not parse: tier %v, %d bytes, %d left, %v", tier, size, f.Tier, len(f.Body), len(rest), err)
		}
	}
}

// verdict is Verdict, and demands that there is only one.
func verdict(t testing.TB, err error) string {
	t.Helper()
	found := Verdict(err)
	for name, fault := range verdicts {
		if errors.Is(err, fault) && name != found {
			t.Errorf("%v is both %s and %s", err, found, name)
		}
	}
	return found
}

func TestBadVectors(t *testing.T) {
	for _, line := range vectorLines(t, "bad.txt") {
		want, name := line[0], line[1]
		maxBody, err := strconv.ParseUint(line[2], 10, 32)
		if err != nil {
			t.Fatal(err)
		}
		frame := mustHex(t, line[3])
		if _, rest, err := Parse(frame, uint32(maxBody)); verdict(t, err) != want || len(rest) != len(frame) {
			t.Errorf("%s: got %v with %d of %d bytes left, want %s and all of them", name, err, len(rest), len(frame), want)
		}
		_, err = NewReader(bytes.NewReader(frame), uint32(maxBody)).Next()
		if len(frame) == 0 {
			continue // a stream may end between frames
		}
		if verdict(t, err) != want {
			t.Errorf("%s from a stream: got %v, want %s", name, err, want)
		}
	}
}

func TestEveryPrefixIsTruncated(t *testing.T) {
	frame := mustFrame(t, kv.ThinkActive, patternBody(100))
	for n := range frame {
		if _, _, err := Parse(frame[:n:n], DefaultMaxBody); !errors.Is(err, ErrTruncated) {
			t.Errorf("first %d bytes: got %v, want ErrTruncated", n, err)
		}
	}
}

// TestEveryFlippedBitIsSeen flips every bit of a frame. The one flip that the
// format cannot show is a tier that becomes another valid tier.
func TestEveryFlippedBitIsSeen(t *testing.T) {
	const tierByte = 12
	for _, tier := range kv.Tiers() {
		frame := mustFrame(t, tier, patternBody(200))
		for bit := range 8 * len(frame) {
			frame[bit/8] ^= 1 << (bit % 8)
			_, _, err := Parse(frame, DefaultMaxBody)
			hidden := bit/8 == tierByte && kv.Tier(frame[tierByte]).Valid()
			if hidden != (err == nil) {
				t.Errorf("%v: bit %d of byte %d: got %v, want hidden=%v", tier, bit%8, bit/8, err, hidden)
			}
			if err != nil && verdict(t, err) == "" {
				t.Errorf("%v has no sentinel", err)
			}
			frame[bit/8] ^= 1 << (bit % 8)
		}
	}
}

func TestParseLeavesWhatFollows(t *testing.T) {
	stream := mustFrame(t, kv.ThinkComplete, []byte("one"))
	stream = append(stream, mustFrame(t, kv.OutputCritical, []byte("two"))...)
	first, rest, err := Parse(stream, DefaultMaxBody)
	if err != nil {
		t.Fatal(err)
	}
	if got := append(first.Body, '!'); string(rest[:4]) != Magic {
		t.Errorf("appending to the body %q reached into the next frame", got)
	}
	second, rest, err := Parse(rest, DefaultMaxBody)
	if err != nil || string(second.Body) != "two" || second.Tier != kv.OutputCritical || len(rest) != 0 {
		t.Errorf("got %v %q, %d left, %v", second.Tier, second.Body, len(rest), err)
	}
}

func TestEncodingRefusesUnknownTier(t *testing.T) {
	prefix := []byte("kept")
	got, err := AppendFrame(prefix, kv.Tier(3), nil)
	if !errors.Is(err, ErrTier) || string(got) != "kept" {
		t.Errorf("got %q, %v", got, err)
	}
	if err := NewWriter(&bytes.Buffer{}).Write(kv.Tier(3), nil); !errors.Is(err, ErrTier) {
		t.Errorf("writer: got %v", err)
	}
}

func TestNoAllocations(t *testing.T) {
	body := patternBody(16 << 10)
	buf := make([]byte, 0, HeaderSize+len(body))
	allocs := testing.AllocsPerRun(100, func() {
		var err error
		if buf, err = AppendFrame(buf[:0], kv.ThinkComplete, body); err != nil {
			t.Fatal(err)
		}
		if _, _, err = Parse(buf, DefaultMaxBody); err != nil {
			t.Fatal(err)
		}
	})
	if allocs != 0 {
		t.Errorf("encode and parse allocate %v times", allocs)
	}
}

func FuzzParse(f *testing.F) {
	for _, line := range vectorLines(f, "bad.txt") {
		f.Add(mustHex(f, line[3]), uint32(100))
	}
	f.Add(mustFrame(f, kv.OutputCritical, []byte("abc")), uint32(3))
	f.Fuzz(func(t *testing.T, input []byte, maxBody uint32) {
		frame, rest, err := Parse(input, maxBody)
		streamed, streamErr := NewReader(bytes.NewReader(input), maxBody).Next()
		if err != nil {
			if name := verdict(t, err); name == "" || (len(input) > 0 && verdict(t, streamErr) != name) {
				t.Fatalf("slice says %v, stream says %v", err, streamErr)
			}
			return
		}
		if streamErr != nil || streamed.Header != frame.Header || !bytes.Equal(streamed.Body, frame.Body) {
			t.Fatalf("slice reads %+v, stream %+v, %v", frame.Header, streamed.Header, streamErr)
		}
		again, err := AppendFrame(nil, frame.Tier, frame.Body)
		if err != nil || !bytes.Equal(append(again, rest...), input) {
			t.Fatalf("a frame that parses is not what it encodes to: %v", err)
		}
	})
}
