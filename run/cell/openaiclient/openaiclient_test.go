package openaiclient

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"meridian/serve/openai"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.Cleanup(func(int) { http.DefaultClient.CloseIdleConnections() }))
}

// serve answers every request with a text, as a stream or at once.
func serve(t *testing.T, status int, text string) *Client {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body map[string]any
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil && r.Method == http.MethodPost {
			t.Error(err)
		}
		w.Header().Set(RequestIDHeader, "r-1")
		w.WriteHeader(status)
		fmt.Fprint(w, text)
	}))
	t.Cleanup(server.Close)
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	return &Client{URL: server.URL}
}

func streamed(events ...string) string {
	var text []byte
	for _, e := range events {
		text = openai.AppendEvent(text, []byte(e))
	}
	return string(text)
}

func TestStreamedChat(t *testing.T) {
	c := serve(t, http.StatusOK, streamed(
		`{"choices":[{"delta":{"role":"assistant"},"finish_reason":null,"token_ids":[]}],"prompt_token_ids":[1,2]}`,
		`{"choices":[{"delta":{"reasoning_content":"hm"},"finish_reason":null,"token_ids":[3,4]}]}`,
		`{"choices":[{"delta":{"content":"yes"},"finish_reason":null,"token_ids":[5]}]}`,
		`{"choices":[{"delta":{"content":"!"},"finish_reason":"stop","token_ids":[6]}]}`,
		`{"choices":[],"usage":{"prompt_tokens":2,"completion_tokens":4,"total_tokens":6}}`, openai.Done,
	))
	var heard []Piece
	a, err := c.Chat(t.Context(), openai.ChatRequest{Sampling: openai.Sampling{Stream: true}}, func(p Piece) { heard = append(heard, p) })
	if err != nil {
		t.Fatal(err)
	}
	if a.Thought != "hm" || a.Text != "yes!" || a.Finish != "stop" || a.RequestID != "r-1" || a.Usage.CompletionTokens != 4 {
		t.Errorf("%+v", a)
	}
	if !slices.Equal(a.PromptTokens, []uint32{1, 2}) || !slices.Equal(a.Tokens, []uint32{3, 4, 5, 6}) {
		t.Errorf("tokens %v, of the prompt %v", a.Tokens, a.PromptTokens)
	}
	if want := []Piece{{Thought: "hm"}, {Text: "yes"}, {Text: "!"}}; !slices.Equal(heard, want) {
		t.Errorf("heard %v", heard)
	}
}

func TestWholeAnswers(t *testing.T) {
	c := serve(t, http.StatusOK, `{"choices":[{"text":"ab","finish_reason":"length","token_ids":[7,8],"prompt_token_ids":[1]}]}`)
	a, err := c.Complete(t.Context(), openai.CompletionRequest{}, nil)
	if err != nil || a.Text != "ab" || a.Finish != "length" || !slices.Equal(a.Tokens, []uint32{7, 8}) || !slices.Equal(a.PromptTokens, []uint32{1}) {
		t.Errorf("%+v, %v", a, err)
	}
	c = serve(t, http.StatusOK, `{"choices":[{"message":{"content":"b","reasoning":"a"},"finish_reason":"stop","token_ids":[7]}],"prompt_token_ids":[1]}`)
	a, err = c.Chat(t.Context(), openai.ChatRequest{}, nil)
	if err != nil || a.Text != "b" || a.Thought != "a" || !slices.Equal(a.PromptTokens, []uint32{1}) {
		t.Errorf("%+v, %v", a, err)
	}
}

func TestModels(t *testing.T) {
	c := serve(t, http.StatusOK, `{"object":"list","data":[{"id":"small","max_model_len":2048}]}`)
	models, err := c.Models(t.Context())
	if err != nil || len(models) != 1 || models[0].ID != "small" || models[0].MaxModelLen != 2048 {
		t.Errorf("%+v, %v", models, err)
	}
}

func TestBrokenAnswers(t *testing.T) {
	whole, stream := openai.ChatRequest{}, openai.ChatRequest{Sampling: openai.Sampling{Stream: true}}
	piece := `{"choices":[{"delta":{"content":"half"},"finish_reason":null}]}`
	for name, c := range map[string]struct {
		request openai.ChatRequest
		status  int
		text    string
		want    string
	}{
		"refused":               {whole, http.StatusBadRequest, `{"error":{"message":"no such thing","type":"invalid_request_error"}}`, "no such thing"},
		"not the API":           {whole, http.StatusNotFound, "nginx", "status 404"},
		"no JSON":               {whole, http.StatusOK, "<html>", "the server sent"},
		"whole without end":     {whole, http.StatusOK, `{"choices":[]}`, ErrCut.Error()},
		"stream without end":    {stream, http.StatusOK, streamed(piece), ErrCut.Error()},
		"stream cut in event":   {stream, http.StatusOK, "data: {", ErrCut.Error()},
		"stream done too early": {stream, http.StatusOK, streamed(piece, openai.Done), ErrCut.Error()},
		"error in the stream":   {stream, http.StatusOK, streamed(piece, `{"error":{"message":"engine lost"}}`), "engine lost"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := serve(t, c.status, c.text).Chat(t.Context(), c.request, nil)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

func TestSilentServerIsNotWaitedForForever(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // else the end of the connection is not seen
		<-r.Context().Done()
	}))
	defer server.Close() // which waits until the client has left
	c := &Client{URL: server.URL, Patience: 50 * time.Millisecond}
	_, err := c.Chat(t.Context(), openai.ChatRequest{Sampling: openai.Sampling{Stream: true}}, nil)
	if !errors.Is(err, errSilent) {
		t.Error(err)
	}
}

func TestSilentServerIsNotWaitedForForItsModels(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	defer server.Close()
	if _, err := (&Client{URL: server.URL, Patience: 50 * time.Millisecond}).Models(t.Context()); !errors.Is(err, errSilent) {
		t.Error(err)
	}
}

// A server with a certificate that no authority signed is trusted by a client that
// has its file, under any name; another one is not.
func TestTrusting(t *testing.T) {
	shows := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"data":[{"id":"small"}]}`)
	}))
	shows.Config.ErrorLog = log.New(io.Discard, "", 0) // of clients that do not trust it
	shows.StartTLS()
	defer shows.Close()
	file := filepath.Join(t.TempDir(), "gateway.crt")
	shown := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: shows.Certificate().Raw})
	if err := os.WriteFile(file, append([]byte("a comment\n"), shown...), 0o600); err != nil {
		t.Fatal(err)
	}
	certificate, err := ReadCertificate(file)
	if err != nil {
		t.Fatal(err)
	}
	ask := func(c *http.Client) error {
		_, port, _ := net.SplitHostPort(shows.Listener.Addr().String())
		_, err := (&Client{URL: "https://localhost:" + port, HTTP: c}).Models(t.Context()) // the certificate has no such name
		if c != nil {
			c.CloseIdleConnections()
		}
		return err
	}
	if err := ask(Trusting(certificate)); err != nil {
		t.Error(err)
	}
	if err := ask(nil); err == nil {
		t.Error("the system trusts a certificate of a test")
	}
	if err := ask(Trusting(another(t))); err == nil || !strings.Contains(err.Error(), "does not show the certificate") {
		t.Error(err)
	}
	if err := os.WriteFile(file, []byte("nothing"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadCertificate(file); err == nil || !strings.Contains(err.Error(), "there is no certificate in "+file) {
		t.Error(err)
	}
}

// another is a certificate that signed itself.
func another(t *testing.T) *x509.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := x509.ParseCertificate(raw)
	if err != nil {
		t.Fatal(err)
	}
	return certificate
}

func TestCancelReachesTheServer(t *testing.T) {
	gone := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		fmt.Fprint(w, streamed(`{"choices":[{"delta":{"content":"x"}}]}`))
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		close(gone)
	}))
	defer server.Close()
	ctx, cancel := context.WithCancel(t.Context())
	a, err := (&Client{URL: server.URL, Key: "secret"}).Chat(ctx, openai.ChatRequest{Sampling: openai.Sampling{Stream: true}}, func(Piece) { cancel() })
	if !errors.Is(err, context.Canceled) || a.Text != "x" {
		t.Errorf("%+v, %v", a, err)
	}
	<-gone
}
