package gateway

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"meridian/member/trust"
	"meridian/serve/gateway/lifecycle"
	"meridian/serve/gateway/roster"
	"meridian/serve/openai"
)

// errStalled ends a leg whose engine says nothing for too long.
var errStalled = errors.New("the engine said nothing for too long")

// headers of a request's id.
const (
	headerRequest = "X-Meridian-Request-Id"
	// headerClientRequest is the client's own name for its request, which it gets
	// back; engines, for whom it must be unique, get ours.
	headerClientRequest = "X-Request-Id"
)

// engineIdle is how long a connection to an engine is kept without a request. It is
// shorter than engines keep theirs, 5 s for vLLM: a request that is sent while the
// other side closes would be taken for the engine's death.
const engineIdle = 2 * time.Second

// newTransport is for engines: connections are kept, as many as requests may
// run, and no proxy of the environment comes between.
func newTransport(connections int) *http.Transport {
	return &http.Transport{
		DialContext:            (&net.Dialer{Timeout: 2 * time.Second, KeepAlive: 15 * time.Second}).DialContext,
		MaxIdleConns:           0,
		MaxIdleConnsPerHost:    connections,
		IdleConnTimeout:        engineIdle,
		TLSHandshakeTimeout:    5 * time.Second,
		DisableCompression:     true,
		ForceAttemptHTTP2:      true,
		MaxResponseHeaderBytes: 64 << 10,
		WriteBufferSize:        8 << 10,
		ReadBufferSize:         8 << 10,
	}
}

// call is one leg on its way. It ends when it is closed, when its context
// ends, or when the engine is silent for longer than it may be.
type call struct {
	engine   *roster.Engine
	of       string       // the client's request
	sent     []byte       // the body, as the engine has it
	client   *openai.Body // and as the client sent it; nil where that is the same
	response *http.Response
	cancel   context.CancelCauseFunc
	ctx      context.Context
	silence  *time.Timer
	logger   *slog.Logger
}

// leg is what is asked of one engine.
type leg struct {
	engine *roster.Engine
	path   string
	body   []byte
	client *openai.Body  // what the body was made of
	id     string        // what the engine is to call it, which no two legs share
	of     string        // the id of the client's request; "" where that is id
	trace  *tracing      // nil for what is of no request
	traced trust.Trace   // where the leg stands in it
	silent time.Duration // how long until the first sign of life
}

// send posts a leg and waits for the head of the answer.
func (g *Gateway) send(parent context.Context, l leg) (*call, *lifecycle.Trouble) {
	ctx, cancel := context.WithCancelCause(parent)
	c := &call{engine: l.engine, of: cmp.Or(l.of, l.id), sent: l.body, client: l.client, ctx: ctx, cancel: cancel, logger: g.options.Logger}
	c.silence = time.AfterFunc(l.silent, func() { cancel(errStalled) })
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, l.engine.URL+l.path, bytes.NewReader(l.body))
	if err != nil {
		c.close()
		return nil, &lifecycle.Trouble{Kind: lifecycle.Lost, Engine: l.engine.Key, Fault: openai.Unavailable("%v", err)}
	}
	request.Header = http.Header{
		"Content-Type": {"application/json"}, headerRequest: {cmp.Or(l.of, l.id)}, headerClientRequest: {l.id}, "User-Agent": {"meridian-gateway"},
	}
	if l.trace != nil {
		l.trace.onTo(request.Header, l.traced)
	}
	if l.engine.Authorization != "" {
		request.Header.Set("Authorization", l.engine.Authorization)
	}
	if rank, is := g.roster.DataRank(l.engine); is {
		request.Header.Set(roster.HeaderRank, strconv.Itoa(rank))
	}
	c.response, err = g.client.Do(request)
	if err != nil {
		t := c.trouble(err)
		c.close()
		return nil, t
	}
	if c.response.StatusCode != http.StatusOK {
		t := c.status()
		c.close()
		return nil, t
	}
	return c, nil
}

// alive starts the time of silence anew.
func (c *call) alive(silent time.Duration) { c.silence.Reset(silent) }

func (c *call) close() {
	c.silence.Stop()
	if c.response != nil {
		// A body that was read to its end gives its connection back.
		_ = c.response.Body.Close()
	}
	c.cancel(nil)
}

// trouble says what an error of the connection means.
func (c *call) trouble(err error) *lifecycle.Trouble {
	t := &lifecycle.Trouble{Kind: lifecycle.Lost, Reached: !roster.IsDial(err), Engine: c.engine.Key}
	id := c.engine.Name()
	switch {
	case errors.Is(context.Cause(c.ctx), errStalled):
		t.Fault = &openai.Error{Message: fmt.Sprintf("engine %s: %v", id, errStalled), Type: openai.TypeServer, Status: http.StatusGatewayTimeout}
	case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		t.Fault = openai.Unavailable("engine %s closed the connection", id)
	case roster.IsDial(err):
		t.Fault = openai.Unavailable("engine %s cannot be reached", id)
		t.Fault.Record = fmt.Sprintf("engine %s: %s", id, c.words(err)) // with its address, which is no client's concern
	default:
		t.Fault = openai.Unavailable("engine %s: %s", id, c.words(err))
	}
	if c.ctx.Err() != nil && !errors.Is(context.Cause(c.ctx), errStalled) {
		t.Withdrawn = true
		return t
	}
	c.engine.Failed.Add(1)
	if c.engine.MarkFailed(err, t.Fault.Recorded()) {
		c.logger.Warn("an engine was lost", "engine", id, "url", c.engine.URL, "request", c.of, "error", t.Fault.Recorded())
	}
	return t
}

// words are an error of the connection without what the engine may have put into
// it: an answer that is no HTTP is quoted.
func (c *call) words(err error) string {
	text := err.Error()
	var asked *url.Error
	if errors.As(err, &asked) {
		text = asked.Err.Error() // who reads it need not know the engine's address
	}
	return cmp.Or(secretsOf(c.sent, c.client, c.engine.Authorization).said(text), "its answer could not be read")
}

// tooLate is what becomes of an answer that begins when its leg was given up.
func (c *call) tooLate() *lifecycle.Trouble {
	return &lifecycle.Trouble{Kind: lifecycle.Lost, Reached: true, Withdrawn: true, Engine: c.engine.Key, Fault: openai.Unavailable("it was given up")}
}

// maxErrorBytes is how much of an engine's refusal is read.
const maxErrorBytes = 64 << 10

// status says what an answer that is none means.
func (c *call) status() *lifecycle.Trouble {
	status := c.response.StatusCode
	data, err := io.ReadAll(io.LimitReader(c.response.Body, maxErrorBytes))
	if err != nil {
		return c.trouble(err)
	}
	fault := c.complaint(status, data)
	t := &lifecycle.Trouble{Kind: lifecycle.Refused, Reached: true, Engine: c.engine.Key, Fault: fault, Priority: bytes.Contains(bytes.ToLower(data), []byte("priority"))}
	switch {
	case status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable:
		t.Kind, t.Reached = lifecycle.Busy, false
		fault.RetryAfter = time.Second
		if seconds, err := strconv.Atoi(c.response.Header.Get("Retry-After")); err == nil && seconds > 0 {
			fault.RetryAfter = time.Duration(min(seconds, 3600)) * time.Second
		}
	case status == http.StatusUnauthorized || status == http.StatusForbidden || status < 400:
		t.Kind = lifecycle.Lost
		t.Fault = openai.Unavailable("engine %s does not let the gateway in: status %d", c.engine.Name(), status)
	case status >= 500 || status == http.StatusRequestTimeout:
		t.Kind, t.Answered = lifecycle.Lost, true
		t.Fault = openai.Unavailable("%s", fault.Record)
	}
	return t
}

// readAll reads an answer that is no stream.
func (c *call) readAll(limit int64) ([]byte, *lifecycle.Trouble) {
	// What an engine says of its answer's length is believed as it comes true.
	size := int64(4 << 10)
	if said := c.response.ContentLength; said >= 0 {
		size = min(said, 64<<10)
	}
	buffer := bytes.NewBuffer(make([]byte, 0, size+bytes.MinRead))
	n, err := buffer.ReadFrom(io.LimitReader(c.response.Body, limit+1))
	if err == nil && n > limit {
		err = fmt.Errorf("its answer has more than %d bytes", limit)
	}
	if err != nil {
		return nil, c.trouble(err)
	}
	return buffer.Bytes(), nil
}

// maxClientID is longer than the ids that clients make.
const maxClientID = 128

// clientID is what a client calls its request, or "" where that is nothing that
// could stand in a log.
func clientID(r *http.Request) string {
	id := r.Header.Get(headerClientRequest)
	if len(id) > maxClientID || strings.ContainsFunc(id, isUnprintable) {
		return ""
	}
	return id
}

func isUnprintable(c rune) bool { return c <= ' ' || c >= 0x7f }
