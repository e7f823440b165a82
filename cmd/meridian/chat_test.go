package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"meridian/run/cell/openaiclient"
	"meridian/serve/openai"
)

// parrot thinks, and says how many messages it has heard and what the last was.
func parrot(t *testing.T, asked *[]openai.ChatRequest) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == openai.PathModels {
			fmt.Fprint(w, `{"object":"list","data":[{"id":"parrot"}]}`)
			return
		}
		var request openai.ChatRequest
		if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
			t.Error(err)
		}
		*asked = append(*asked, request)
		last := request.Messages[len(request.Messages)-1].Content
		if last == "too much" {
			openai.Invalid("messages", "it is too long").WithCode(openai.CodeContextLength).Write(w)
			return
		}
		events := openai.NewEventWriter(w)
		for _, delta := range []string{`{"reasoning_content":"hm"}`, `{"content":"heard "}`, fmt.Sprintf(`{"content":"%d: %s"}`, len(request.Messages), last)} {
			_ = events.SendData(fmt.Appendf(nil, `{"choices":[{"index":0,"delta":%s,"finish_reason":null}]}`, delta))
		}
		if last == "break" {
			return
		}
		_ = events.SendData([]byte(`{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`))
		_ = events.SendData([]byte(openai.Done))
	}))
	t.Cleanup(server.Close)
	return server.URL
}

func chat(t *testing.T, typed string, args ...string) (status int, out, problems string, asked []openai.ChatRequest) {
	t.Helper()
	url := parrot(t, &asked)
	var said, complained bytes.Buffer
	status = run(append([]string{"chat", "--url", url + "/v1"}, args...), &stdio{in: strings.NewReader(typed), out: &said, err: &complained})
	return status, said.String(), complained.String(), asked
}

func TestChatThroughAPipe(t *testing.T) {
	status, out, problems, asked := chat(t, "hello\n\nagain\n/reset\n/think 7\nanew\n/quit\nnever\n")
	if want := "heard 1: hello\nheard 3: again\nheard 1: anew\n"; out != want || status != exitOK || problems != "" {
		t.Errorf("status %d, %q, %q; want %q", status, out, problems, want)
	}
	if len(asked) != 3 || asked[0].ThinkTokens != nil || *asked[2].ThinkTokens != 7 || asked[0].Model != "parrot" || !asked[0].Stream {
		t.Errorf("%+v", asked)
	}
	if history := asked[1].Messages; history[1].Role != "assistant" || history[1].Content != "heard 1: hello" {
		t.Errorf("%+v", history)
	}
}

func TestChatTellsTheModelMore(t *testing.T) {
	_, _, _, asked := chat(t, "hello\n", "--system", "You are a parrot.", "--max-tokens", "5", "--temperature", "0")
	if len(asked) != 1 || asked[0].Messages[0].Role != "system" || *asked[0].MaxTokens != 5 || *asked[0].Temperature != 0 {
		t.Errorf("%+v", asked)
	}
}

func TestChatThatFails(t *testing.T) {
	for typed, want := range map[string]string{
		"too much\nhello\n": "it is too long (/reset begins anew)",
		"break\n":           openaiclient.ErrCut.Error(),
		"/dance\n":          "there is no /dance",
		"/think of me\n":    "/think takes a number of tokens",
	} {
		status, out, problems, _ := chat(t, typed)
		if status != exitFailure || strings.Count(problems, want) != 1 || !strings.Contains(problems, "meridian: 1 of the lines failed") {
			t.Errorf("%q: status %d, %q", typed, status, problems)
		}
		// What was refused is not part of the history.
		if strings.Contains(typed, "hello") && out != "heard 1: hello\n" {
			t.Errorf("%q", out)
		}
	}
}

func TestChatInterrupted(t *testing.T) {
	begun := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_ = openai.NewEventWriter(w).SendData([]byte(`{"choices":[{"delta":{"content":"endless"}}]}`))
		close(begun)
		<-r.Context().Done()
	}))
	defer server.Close()
	signals := make(chan os.Signal)
	lines := make(chan string)
	var out bytes.Buffer
	s := &conversation{client: &openaiclient.Client{URL: server.URL}, out: &out, err: io.Discard, lines: lines, interrupts: signals, asks: true}
	ended := make(chan error)
	go func() { ended <- s.run(context.Background()) }()
	lines <- "go on"
	<-begun
	signals <- os.Interrupt // ends the answer
	signals <- os.Interrupt // at the prompt, leaves
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if len(s.messages) == 2 && s.messages[1].Content != "endless" {
		t.Errorf("%+v", s.messages)
	}
}

func TestSpeech(t *testing.T) {
	for name, c := range map[string]struct {
		dims bool
		want string
	}{
		"to a person":  {true, "\x1b[2mhm, so\x1b[0m\nyes\ufffd[2J!\n"},
		"to a program": {false, "yes\x1b[31m\x1b[2J!\n"},
	} {
		var out bytes.Buffer
		s := &speech{w: &out, dims: c.dims}
		for _, p := range []openaiclient.Piece{{Thought: "hm, "}, {Thought: "so"}, {Text: "yes"}, {Text: "\x1b[31m\x1b[2J!"}} {
			s.piece(p)
		}
		s.end()
		if out.String() != c.want {
			t.Errorf("%s: %q, want %q", name, out.String(), c.want)
		}
	}
}
