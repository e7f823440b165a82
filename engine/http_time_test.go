package engine

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"meridian/serve/openai"
)

// A client that sends half of a body is not waited for, whether the body is wanted or not.
func TestBodyThatDoesNotEnd(t *testing.T) {
	s := serve(t, join(t, nil, Options{StallTimeout: 100 * time.Millisecond}))
	for path, status := range map[string]string{openai.PathCompletions: "408 Request Timeout", "/nowhere": "404 Not Found"} {
		conn, err := net.Dial("tcp", s.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(conn, "POST "+path+" HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{\"prompt\":"); err != nil {
			t.Fatal(err)
		}
		// The connection is closed: the server does not read on.
		if answer, err := io.ReadAll(conn); err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 "+status) {
			t.Errorf("%s: %v, %s", path, err, answer)
		}
	}
}

// withStall tries with longer and longer stall timeouts: a machine that stands still
// for longer than one looks to the engine like a client that does not read.
func withStall(t *testing.T, try func(stall time.Duration) error) {
	t.Helper()
	var err error
	for _, stall := range []time.Duration{50 * time.Millisecond, 500 * time.Millisecond, 5 * time.Second} {
		if err = try(stall); err == nil {
			return
		}
	}
	t.Error(err)
}

// The time that a body may take is not that of the answer.
func TestAnswerOutlivesTheTimeOfTheBody(t *testing.T) {
	withStall(t, func(stall time.Duration) error {
		s := serve(t, join(t, nil, Options{StallTimeout: stall}))
		r := post(t, s, openai.PathCompletions, `{"prompt":"a","max_tokens":2000,"ignore_eos":true,"stream":true}`)
		began := time.Now()
		said, err := io.ReadAll(r.Body)
		if err != nil || !strings.Contains(string(said), openai.Done) {
			return fmt.Errorf("%w: … %q", err, said[max(0, len(said)-200):])
		}
		if took := time.Since(began); took < stall {
			t.Logf("the answer took %v only, so this tells nothing", took)
		}
		return nil
	})
}

// The time that a client has to read is of one answer, not of a connection.
func TestConnectionsOutliveAnswers(t *testing.T) {
	withStall(t, func(stall time.Duration) error {
		s := serve(t, join(t, nil, Options{StallTimeout: stall}))
		for range 3 {
			for body, status := range map[string]int{`{"prompt":"a","max_tokens":2}`: http.StatusOK, `{"prompt":"a","max_tokens":0}`: http.StatusBadRequest} {
				r := post(t, s, openai.PathCompletions, body)
				if _, err := io.ReadAll(r.Body); err != nil || r.StatusCode != status {
					return fmt.Errorf("%s: status %d, %w", body, r.StatusCode, err)
				}
				time.Sleep(stall + stall/2)
			}
		}
		return nil
	})
}
