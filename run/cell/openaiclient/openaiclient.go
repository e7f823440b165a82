// Package openaiclient is a client of the OpenAI API, for a person at a terminal and
// for callers that compare answers: it streams or waits, tells thoughts from
// answers, and keeps the ids of tokens where the server tells them.
//
//	Completion, Chat ─► Client ─► POST ─► response or event stream ─► Piece … ─► Answer
package openaiclient

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"meridian/serve/openai"
)

// Client asks one server.
type Client struct {
	// URL is the server's, without /v1.
	URL string
	// Key is sent as a bearer token, if there is one.
	Key string
	// HTTP carries requests; nil is for servers that the system trusts.
	HTTP *http.Client
	// Patience is how long a server may be silent; 0 means a minute.
	Patience time.Duration
}

const defaultPatience = time.Minute

// RequestIDHeader is where the gateway says which record tells of a request.
const RequestIDHeader = "X-Meridian-Request-Id"

// Piece is what one event of a stream adds.
type Piece struct {
	Thought, Text string
}

// Answer is all of one answer.
type Answer struct {
	// RequestID is the gateway's; empty from others.
	RequestID     string
	Thought, Text string
	// PromptTokens and Tokens are there where the request asked for them.
	PromptTokens, Tokens []uint32
	Finish               string
	Usage                *openai.Usage
}

// ErrCut means that a stream ended before the answer did.
var ErrCut = errors.New("the stream ended before the answer did")

// Models lists what the server has.
func (c *Client) Models(ctx context.Context) ([]openai.Model, error) {
	ctx, watch := c.watch(ctx)
	defer watch.stop()
	var list openai.ModelList
	response, err := c.Send(ctx, http.MethodGet, openai.PathModels, nil)
	if err != nil {
		return nil, watch.explain(err)
	}
	defer response.Body.Close()
	if err := json.NewDecoder(response.Body).Decode(&list); err != nil {
		return nil, fmt.Errorf("%s%s: %w", c.URL, openai.PathModels, watch.explain(err))
	}
	return list.Data, nil
}

// Complete asks for a completion. Where the request streams, hear gets each
// piece as it comes; it may be nil.
func (c *Client) Complete(ctx context.Context, r openai.CompletionRequest, hear func(Piece)) (*Answer, error) {
	return c.ask(ctx, openai.PathCompletions, r, r.Stream, hear)
}

// Chat asks for the next message of a chat, likewise.
func (c *Client) Chat(ctx context.Context, r openai.ChatRequest, hear func(Piece)) (*Answer, error) {
	return c.ask(ctx, openai.PathChat, r, r.Stream, hear)
}

func (c *Client) ask(ctx context.Context, path string, request any, stream bool, hear func(Piece)) (*Answer, error) {
	data, err := json.Marshal(request)
	if err != nil {
		return nil, err
	}
	ctx, watch := c.watch(ctx)
	defer watch.stop()
	response, err := c.Send(ctx, http.MethodPost, path, data)
	if err != nil {
		return nil, watch.explain(err)
	}
	defer response.Body.Close()
	a := &Answer{RequestID: response.Header.Get(RequestIDHeader)}
	if stream {
		err = a.readStream(response.Body, watch, hear)
	} else {
		err = a.readWhole(response.Body)
	}
	return a, watch.explain(err)
}

// Send sends JSON, or asks for a page with none. A response comes back only with a good status;
// its body is the caller's to close.
func (c *Client) Send(ctx context.Context, method, path string, data []byte) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(c.URL, "/")+path, bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	if c.Key != "" {
		request.Header.Set("Authorization", "Bearer "+c.Key)
	}
	response, err := cmp.Or(c.HTTP, http.DefaultClient).Do(request)
	if err != nil || response.StatusCode/100 == 2 {
		return response, err
	}
	defer response.Body.Close()
	const maxProblem = 1 << 20
	text, err := io.ReadAll(io.LimitReader(response.Body, maxProblem))
	if err != nil {
		return nil, err
	}
	return nil, openai.ParseError(response.StatusCode, text)
}

// event is a chunk or a whole response of either endpoint.
type event struct {
	Choices []struct {
		Text    string  `json:"text"`
		Delta   message `json:"delta"`
		Message message `json:"message"`

		FinishReason   *string  `json:"finish_reason"`
		TokenIDs       []uint32 `json:"token_ids"`
		PromptTokenIDs []uint32 `json:"prompt_token_ids"`
	} `json:"choices"`
	PromptTokenIDs []uint32        `json:"prompt_token_ids"`
	Usage          *openai.Usage   `json:"usage"`
	Error          json.RawMessage `json:"error"`
}

type message struct {
	Content          string `json:"content"`
	ReasoningContent string `json:"reasoning_content"`
	Reasoning        string `json:"reasoning"` // as vLLM calls it
}

// thought is what the message has of one, under either name: some servers send both.
func (m *message) thought() string { return cmp.Or(m.ReasoningContent, m.Reasoning) }

// add takes an event into the answer and returns what it adds. Of several
// answers only the first is kept.
func (a *Answer) add(data []byte) (Piece, error) {
	var e event
	if err := json.Unmarshal(data, &e); err != nil {
		return Piece{}, fmt.Errorf("the server sent %.100q: %w", data, err)
	}
	if len(e.Error) > 0 && string(e.Error) != "null" {
		return Piece{}, openai.ParseError(http.StatusOK, data)
	}
	if e.PromptTokenIDs != nil {
		a.PromptTokens = e.PromptTokenIDs
	}
	if e.Usage != nil {
		a.Usage = e.Usage
	}
	if len(e.Choices) == 0 {
		return Piece{}, nil
	}
	first := &e.Choices[0]
	if first.PromptTokenIDs != nil {
		a.PromptTokens = first.PromptTokenIDs
	}
	if first.FinishReason != nil {
		a.Finish = *first.FinishReason
	}
	p := Piece{Thought: first.Delta.thought() + first.Message.thought(), Text: first.Text + first.Delta.Content + first.Message.Content}
	a.Tokens = append(a.Tokens, first.TokenIDs...)
	a.Thought, a.Text = a.Thought+p.Thought, a.Text+p.Text
	return p, nil
}

func (a *Answer) readWhole(body io.Reader) error {
	data, err := io.ReadAll(io.LimitReader(body, openai.MaxEvent))
	if err == nil {
		_, err = a.add(data)
	}
	if err == nil && a.Finish == "" {
		err = ErrCut
	}
	return err
}

func (a *Answer) readStream(body io.Reader, w *watch, hear func(Piece)) error {
	for events := openai.NewEventReader(body, 0); ; {
		data, err := events.Next()
		if err != nil {
			if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
				err = ErrCut
			}
			return err
		}
		w.heard()
		if string(data) == openai.Done {
			if a.Finish == "" {
				return ErrCut
			}
			return nil
		}
		p, err := a.add(data)
		if err != nil {
			return err
		}
		if hear != nil && p != (Piece{}) {
			hear(p)
		}
	}
}

// watch ends a request whose server has fallen silent.
type watch struct {
	patience time.Duration
	timer    *time.Timer
	cancel   context.CancelCauseFunc
	ctx      context.Context
}

var errSilent = errors.New("the server has said nothing")

func (c *Client) watch(ctx context.Context) (context.Context, *watch) {
	w := &watch{patience: cmp.Or(c.Patience, defaultPatience)}
	w.ctx, w.cancel = context.WithCancelCause(ctx)
	w.timer = time.AfterFunc(w.patience, func() { w.cancel(fmt.Errorf("%w for %v", errSilent, w.patience)) })
	return w.ctx, w
}

func (w *watch) heard() { w.timer.Reset(w.patience) }

func (w *watch) stop() {
	w.timer.Stop()
	w.cancel(nil)
}

// explain says why a request was given up.
func (w *watch) explain(err error) error {
	if err != nil && w.ctx.Err() != nil {
		return context.Cause(w.ctx)
	}
	return err
}
