package serving

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
)

// stubAnswer is what a stub engine says, and what its clients send to hear it.
type stubAnswer struct {
	name    string
	request []byte // HTTP, whole
	// pieces are written one by one; a stream has one for each token.
	pieces [][]byte
}

const (
	stubPromptBytes = 1024
	stubTokens      = 16
)

var stubAnswers = []stubAnswer{wholeStubAnswer(), streamedStubAnswer()}

func stubRequest(more string) []byte {
	body := fmt.Sprintf(`{"model":"stub","prompt":%q,"max_tokens":%d,"temperature":0%s}`, strings.Repeat("All work. ", stubPromptBytes/10), stubTokens, more)
	return fmt.Appendf(nil, "POST /v1/completions HTTP/1.1\r\nHost: stub\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
}

func wholeStubAnswer() stubAnswer {
	body := fmt.Sprintf(`{"id":"cmpl-1","object":"text_completion","created":1,"model":"stub","choices":[{"index":0,"text":%q,"logprobs":null,"finish_reason":"length"}],`+
		`"usage":{"prompt_tokens":256,"completion_tokens":%d,"total_tokens":272},"meridian":{"engine":"stub","queue_ms":0,"prefill_ms":0,"handoff_ms":0,"kv":"local"}}`,
		strings.Repeat("word ", stubTokens), stubTokens)
	head := fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", len(body))
	return stubAnswer{"whole", stubRequest(""), [][]byte{[]byte(head + body)}}
}

// streamedStubAnswer tells token ids, as a reference engine does when it is
// asked to: the gateway takes them out.
func streamedStubAnswer() stubAnswer {
	a := stubAnswer{name: fmt.Sprintf("stream of %d", stubTokens), request: stubRequest(`,"stream":true`)}
	piece := func(head, event string) {
		data := "data: " + event + "\n\n"
		a.pieces = append(a.pieces, fmt.Appendf(nil, "%s%x\r\n%s\r\n", head, len(data), data))
	}
	head := "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
	for i := range stubTokens {
		finish := "null"
		if i == stubTokens-1 {
			finish = `"length"`
		}
		piece(head, fmt.Sprintf(`{"id":"cmpl-1","object":"text_completion","created":1,"model":"stub","choices":[{"index":0,"text":"word ","logprobs":null,"finish_reason":%s,"token_ids":[%d]}]}`, finish, 100+i))
		head = ""
	}
	piece("", `{"id":"cmpl-1","object":"text_completion","created":1,"model":"stub","choices":[],"meridian":{"engine":"stub","queue_ms":0,"prefill_ms":0,"handoff_ms":0,"kv":"local"}}`)
	piece("", "[DONE]")
	a.pieces = append(a.pieces, []byte("0\r\n\r\n"))
	return a
}

// stubEngine answers by heart. It understands just enough of HTTP to be asked
// by a gateway and by the clients of a measurement.
type stubEngine struct {
	socket net.Listener
	active sync.WaitGroup

	mu     sync.Mutex // protects what follows
	open   map[net.Conn]bool
	closed bool
}

func openStubEngine() (*stubEngine, error) {
	socket, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &stubEngine{socket: socket, open: make(map[net.Conn]bool)}
	s.active.Go(s.accept)
	return s, nil
}

func (s *stubEngine) address() string { return s.socket.Addr().String() }

func (s *stubEngine) accept() {
	for {
		conn, err := s.socket.Accept()
		if err != nil {
			return
		}
		s.mu.Lock()
		if s.closed {
			conn.Close()
		} else {
			s.open[conn] = true
			s.active.Go(func() { s.serve(conn) })
		}
		s.mu.Unlock()
	}
}

func (s *stubEngine) close() error {
	err := s.socket.Close()
	s.mu.Lock()
	s.closed = true
	for conn := range s.open {
		conn.Close()
	}
	s.mu.Unlock()
	s.active.Wait()
	return err
}

func (s *stubEngine) serve(conn net.Conn) {
	defer func() {
		conn.Close()
		s.mu.Lock()
		delete(s.open, conn)
		s.mu.Unlock()
	}()
	in := bufio.NewReaderSize(conn, 8<<10)
	var body []byte
	for {
		path, length, err := readHead(in)
		if err != nil {
			return
		}
		body = append(body[:0], make([]byte, length)...)
		if _, err := io.ReadFull(in, body); err != nil {
			return
		}
		for _, piece := range stubReply(path, body) {
			if _, err := conn.Write(piece); err != nil {
				return
			}
		}
	}
}

func stubReply(path string, body []byte) [][]byte {
	switch {
	case path == "/v1/models":
		return plain(`{"object":"list","data":[{"id":"stub","object":"model","created":1,"owned_by":"meridian"}]}`)
	case path != "/v1/completions":
		return plain(`{"engine":"stub"}`)
	case bytes.Contains(body, []byte(`"stream":true`)):
		return stubAnswers[1].pieces
	}
	return stubAnswers[0].pieces
}

func plain(body string) [][]byte {
	return [][]byte{fmt.Appendf(nil, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)}
}

var errNoHTTP = errors.New("this is no HTTP")

// readHead reads the head of a request or of a response: the second word of
// its first line, and how long its body is; -1 for one in chunks.
func readHead(in *bufio.Reader) (word string, length int, err error) {
	line, err := in.ReadSlice('\n')
	if err != nil {
		return "", 0, err
	}
	words := bytes.Fields(line)
	if len(words) < 2 {
		return "", 0, errNoHTTP
	}
	word = string(words[1])
	for {
		line, err := in.ReadSlice('\n')
		if err != nil {
			return "", 0, err
		}
		line = bytes.TrimSpace(line)
		if len(line) == 0 {
			return word, length, nil
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		switch value = bytes.TrimSpace(value); {
		case bytes.EqualFold(name, []byte("content-length")):
			if length, err = strconv.Atoi(string(value)); err != nil || length < 0 {
				return "", 0, errNoHTTP
			}
		case bytes.EqualFold(name, []byte("transfer-encoding")):
			length = -1
		}
	}
}
