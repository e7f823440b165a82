package load

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"meridian/internal/clip"
	"meridian/prove/replay"
	"meridian/prove/replay/workload"
	"meridian/run/cell/openaiclient"
	"meridian/serve/openai"
)

// heard is what came of one request.
type heard struct {
	chunks         []replay.Chunk
	tokens         int32
	said           bool // something that has text
	id             string
	prompt, cached int32
	err            error
}

// Bounds of what an endpoint may say: a stream has hardly more events than
// tokens, and an error's text is short.
const (
	spareEvents = 256
	maxError    = 64 << 10
	maxUsage    = 1 << 30
	maxID       = 128
)

// ask sends a request and hears its answer to the end.
func (r *run) ask(ctx context.Context, q workload.Request, body []byte) (h heard) {
	ctx, cancel := context.WithTimeout(ctx, r.options.Timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, r.options.URL+r.options.path(), bytes.NewReader(body))
	if err != nil {
		h.err = err
		return h
	}
	request.Header.Set("Content-Type", "application/json")
	if r.options.Key != "" {
		request.Header.Set("Authorization", "Bearer "+r.options.Key)
	}
	response, err := r.options.HTTP.Do(request)
	if err != nil {
		h.err = r.worded(ctx, err)
		return h
	}
	defer response.Body.Close()
	h.id = clip.Text(response.Header.Get(openaiclient.RequestIDHeader), maxID, "")
	if response.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(response.Body, maxError))
		h.err = fmt.Errorf("status %d: %w", response.StatusCode, openai.ParseError(response.StatusCode, text))
		return h
	}
	if err := h.listen(response.Body, r.began, q.Think+q.Output); err != nil {
		h.err = r.worded(ctx, err)
	}
	return h
}

// worded says of a request that ran out of time that it did, and leaves out
// addresses, by which equal problems would differ.
func (r *run) worded(ctx context.Context, err error) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("no whole answer within %v", r.options.Timeout)
	}
	if inner := errors.Unwrap(err); inner != nil && ctx.Err() == nil {
		return inner
	}
	return err
}

// path is the endpoint's.
func (o *Options) path() string {
	if o.Completions {
		return openai.PathCompletions
	}
	return openai.PathChat
}

// listen notes what comes when, until the stream says that it is over. An
// endpoint that says much more than was asked for is not listened to.
func (h *heard) listen(body io.Reader, began time.Time, asked int32) error {
	var c openai.Chunk
	most := 4*int(asked) + spareEvents
	ended := false
	events := openai.NewEventReader(body, openai.MaxEvent)
	for n := 0; ; n++ {
		data, err := events.Next()
		switch {
		case errors.Is(err, io.EOF) && ended: // some say no [DONE]
			return nil
		case errors.Is(err, io.EOF):
			return errors.New("the stream ended before the answer did")
		case err != nil:
			return err
		case string(data) == openai.Done:
			if len(h.chunks) == 0 {
				return errors.New("the answer has no tokens")
			}
			return nil
		case n == most:
			return fmt.Errorf("more than %d events for an answer of %d tokens", most, asked)
		case !c.Parse(data):
			return fmt.Errorf("the stream has %.60q, which is no JSON object", data)
		case c.Fault != nil:
			return openai.ParseError(http.StatusOK, data)
		}
		if h.note(&c, time.Since(began)); h.tokens > asked+spareEvents {
			return fmt.Errorf("%d tokens for an answer of %d", h.tokens, asked)
		}
		ended = ended || c.Ends > 0
	}
}

// note adds what a chunk says.
func (h *heard) note(c *openai.Chunk, at time.Duration) {
	if c.Usage != nil {
		var u openai.Usage
		if json.Unmarshal(c.Usage, &u) == nil {
			h.prompt = int32(min(max(u.PromptTokens, 0), maxUsage))
			if u.PromptDetails != nil {
				h.cached = min(int32(min(max(u.PromptDetails.CachedTokens, 0), maxUsage)), h.prompt)
			}
		}
	}
	tokens := int32(len(c.Tokens))
	if !c.HasTokens && (c.Answered || c.Thought) {
		tokens = 1
	}
	if tokens == 0 {
		return
	}
	// Tokens without text, such as the marks of a thought, are of the kind of what
	// came before, or else of what comes next.
	thought := c.Thought && !c.Answered
	switch hasText := c.Thought || c.Answered; {
	case !hasText && len(h.chunks) > 0:
		thought = h.chunks[len(h.chunks)-1].Thought
	case hasText && !h.said:
		h.said = true
		for i := range h.chunks {
			h.chunks[i].Thought = thought
		}
	}
	h.tokens += tokens
	if c.Thought && c.Answered && tokens > 1 {
		// A thought ended within the chunk, and no endpoint tells where.
		h.chunks = append(h.chunks, replay.Chunk{At: at, Tokens: tokens - 1, Thought: true})
		tokens = 1
	}
	h.chunks = append(h.chunks, replay.Chunk{At: at, Tokens: tokens, Thought: thought})
}
