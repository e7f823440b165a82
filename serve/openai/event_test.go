package openai

import (
	"errors"
	"io"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"
)

func allEvents(r *EventReader) ([]string, error) {
	var events []string
	for {
		data, err := r.Next()
		if err != nil {
			return events, err
		}
		events = append(events, string(data))
	}
}

func TestEventReader(t *testing.T) {
	for name, c := range map[string]struct {
		stream string
		events []string
		err    error
	}{
		"plain":             {"data: a\n\ndata: b\n\n", []string{"a", "b"}, io.EOF},
		"crlf":              {"data: a\r\n\r\ndata: b\r\n\r\n", []string{"a", "b"}, io.EOF},
		"cr":                {"data: a\r\rdata: b\r\r", []string{"a", "b"}, io.EOF},
		"comments":          {": hello\n\n:\ndata: a\n: more\n\n", []string{"a"}, io.EOF},
		"other fields":      {"event: x\nid: 1\nretry: 5\ndata: a\n\n", []string{"a"}, io.EOF},
		"no space":          {"data:a\n\n", []string{"a"}, io.EOF},
		"two spaces":        {"data:  a\n\n", []string{" a"}, io.EOF},
		"several lines":     {"data: a\ndata: b\ndata\n\n", []string{"a\nb\n"}, io.EOF},
		"many blank lines":  {"\n\n\ndata: a\n\n\n\n", []string{"a"}, io.EOF},
		"byte order mark":   {"\ufeffdata: a\n\n", []string{"a"}, io.EOF},
		"nothing":           {"", nil, io.EOF},
		"cut within a line": {"data: a\n\ndata: b", []string{"a"}, io.ErrUnexpectedEOF},
		"cut after a line":  {"data: a\n\ndata: b\n", []string{"a"}, io.ErrUnexpectedEOF},
		"just at the limit": {"data: 12345678\n\n", []string{"12345678"}, io.EOF},
		"beyond the limit":  {"data: 123456789\n\n", nil, ErrEventTooLong},
		"beyond, no end":    {"data: " + strings.Repeat("x", 1<<16), nil, ErrEventTooLong},
		"beyond, in lines":  {"data: 12345\ndata: 12345\n\n", nil, ErrEventTooLong},
	} {
		t.Run(name, func(t *testing.T) {
			for kind, in := range map[string]io.Reader{
				"whole":    strings.NewReader(c.stream),
				"one byte": iotest.OneByteReader(strings.NewReader(c.stream)),
			} {
				events, err := allEvents(NewEventReader(in, 8))
				if !slices.Equal(events, c.events) || !errors.Is(err, c.err) {
					t.Errorf("%s: got %q and %v, want %q and %v", kind, events, err, c.events, c.err)
				}
			}
		})
	}
}

// Whatever the writer writes the reader reads, however the bytes are cut.
func TestEventsSurviveTheStream(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sent := rapid.SliceOf(rapid.StringMatching(`[^\r]{0,40}`)).Draw(t, "events")
		recorder := httptest.NewRecorder()
		w := NewEventWriter(recorder)
		for _, e := range sent {
			if err := w.SendData([]byte(e)); err != nil {
				t.Fatal(err)
			}
		}
		cuts := rapid.SliceOfN(rapid.IntRange(1, 9), 1, 20).Draw(t, "cuts")
		got, err := allEvents(NewEventReader(&cutReader{recorder.Body, cuts, 0}, 0))
		if !slices.Equal(got, sent) || err != io.EOF {
			t.Fatalf("got %q and %v, want %q", got, err, sent)
		}
	})
}

type cutReader struct {
	in   io.Reader
	cuts []int
	next int
}

func (r *cutReader) Read(p []byte) (int, error) {
	n := min(len(p), r.cuts[r.next%len(r.cuts)])
	r.next++
	return r.in.Read(p[:n])
}

func TestReady(t *testing.T) {
	r := NewEventReader(strings.NewReader("data: a\n\ndata: b\r\n\r\ndata: c\n"), 0)
	for _, want := range []bool{false, true, false} { // before the first read, before b, before c
		if r.Ready() != want {
			t.Errorf("ready is %v, want %v", r.Ready(), want)
		}
		_, _ = r.Next()
	}
}

func FuzzEventReader(f *testing.F) {
	f.Add("data: a\r\n\r\n: c\ndata:b\n\n")
	f.Fuzz(func(t *testing.T, stream string) {
		whole, errWhole := allEvents(NewEventReader(strings.NewReader(stream), 64))
		bytewise, errBytewise := allEvents(NewEventReader(iotest.OneByteReader(strings.NewReader(stream)), 64))
		if !slices.Equal(whole, bytewise) || errWhole.Error() != errBytewise.Error() {
			t.Errorf("%q: whole %q, %v; byte by byte %q, %v", stream, whole, errWhole, bytewise, errBytewise)
		}
	})
}
