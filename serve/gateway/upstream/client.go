// Package upstream sends what a request becomes to engines: legs, sealed and traced, and what
// their answers and their silence mean. Of what an engine says only what gives nothing of
// another's away is told on.
package upstream

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
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

	"meridian/internal/budget"
	"meridian/kv"
	"meridian/member/trust"
	"meridian/serve/gateway/lifecycle"
	"meridian/serve/gateway/roster"
	"meridian/serve/openai"
)

// errStalled ends a leg whose engine says nothing for too long.
var errStalled = errors.New("the engine said nothing for too long")

// headers of a request's id.
const (
	HeaderRequest = "X-Meridian-Request-Id"
	// HeaderClientRequest is the client's own name for its request, which it gets
	// back; engines, for whom it must be unique, get ours.
	HeaderClientRequest = "X-Request-Id"
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

// Call is one leg on its way. It ends when it is closed, when its context
// ends, or when the engine is silent for longer than it may be.
type Call struct {
	Engine   *roster.Engine
	of       string       // the client's request
	sent     []byte       // the body, as the engine has it
	client   *openai.Body // and as the client sent it; nil where that is the same
	Response *http.Response
	cancel   context.CancelCauseFunc
	ctx      context.Context
	silence  *time.Timer
	logger   *slog.Logger
}

// Leg is what is asked of one engine.
type Leg struct {
	Engine *roster.Engine
	Path   string
	Body   []byte
	Client *openai.Body  // what the body was made of
	ID     string        // what the engine is to call it, which no two legs share
	Of     string        // the id of the client's request; "" where that is id
	Trace  *Trace        // nil for what is of no request
	Traced trust.Trace   // where the leg stands in it
	Silent time.Duration // how long until the first sign of life
}

// Client sends legs to engines.
type Client struct {
	HTTP   *http.Client
	Roster *roster.Roster
	Logger *slog.Logger
}

// NewHTTP keeps connections to engines, as many as requests may run.
func NewHTTP(connections int) *http.Client {
	return &http.Client{Transport: newTransport(connections), CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// Send posts a leg and waits for the head of the answer.
func (u *Client) Send(parent context.Context, l Leg) (*Call, *lifecycle.Trouble) {
	c := u.begin(parent, l.Engine, l.Silent)
	c.of, c.sent, c.client = cmp.Or(l.Of, l.ID), l.Body, l.Client
	request, err := http.NewRequestWithContext(c.ctx, http.MethodPost, l.Engine.URL+l.Path, bytes.NewReader(l.Body))
	if err != nil {
		c.Close()
		return nil, &lifecycle.Trouble{Kind: lifecycle.Lost, Engine: l.Engine.Key, Fault: openai.Unavailable("%v", err)}
	}
	request.Header = http.Header{
		"Content-Type": {"application/json"}, HeaderRequest: {cmp.Or(l.Of, l.ID)}, HeaderClientRequest: {l.ID}, "User-Agent": {"meridian-gateway"},
	}
	if l.Trace != nil {
		l.Trace.onTo(request.Header, l.Traced)
	}
	if rank, is := u.Roster.DataRank(l.Engine); is {
		request.Header.Set(roster.HeaderRank, strconv.Itoa(rank))
	}
	if t := u.do(c, request); t != nil {
		return nil, t
	}
	if c.Response.StatusCode != http.StatusOK {
		t := c.Status()
		c.Close()
		return nil, t
	}
	return c, nil
}

// Pass sends a client's request on as it is, and waits for the head of the answer, whatever
// that says.
func (u *Client) Pass(r *http.Request, body []byte, e *roster.Engine, id string, silent time.Duration) (*Call, *lifecycle.Trouble) {
	c := u.begin(r.Context(), e, silent)
	request, err := http.NewRequestWithContext(c.ctx, r.Method, e.URL+r.URL.RequestURI(), bytes.NewReader(body))
	if err != nil {
		c.Close()
		return nil, &lifecycle.Trouble{Kind: lifecycle.Refused, Reached: true, Fault: openai.Invalid("", "%v", err)}
	}
	request.Header = http.Header{HeaderRequest: {id}, HeaderClientRequest: {id}, "User-Agent": {"meridian-gateway"}}
	for _, name := range []string{"Content-Type", "Accept"} {
		if values := r.Header.Values(name); len(values) > 0 {
			request.Header[name] = values
		}
	}
	if t := u.do(c, request); t != nil {
		return nil, t
	}
	return c, nil
}

// begin is a call of an engine that ends if it is silent for too long.
func (u *Client) begin(parent context.Context, e *roster.Engine, silent time.Duration) *Call {
	c := &Call{Engine: e, logger: u.Logger}
	c.ctx, c.cancel = context.WithCancelCause(parent)
	c.silence = time.AfterFunc(silent, func() { c.cancel(errStalled) })
	return c
}

// do sends a call's request and waits for the head of the answer; where there is none the
// call is closed.
func (u *Client) do(c *Call, request *http.Request) *lifecycle.Trouble {
	if c.Engine.Authorization != "" {
		request.Header.Set("Authorization", c.Engine.Authorization)
	}
	var err error
	if c.Response, err = u.HTTP.Do(request); err != nil {
		t := c.Trouble(err)
		c.Close()
		return t
	}
	return nil
}

// Pause: the time that passes is not the engine's, until Alive is called.
func (c *Call) Pause() { c.silence.Stop() }

// Alive starts the time of silence anew.
func (c *Call) Alive(silent time.Duration) { c.silence.Reset(silent) }

// Close ends the leg, wherever it is.
func (c *Call) Close() {
	c.silence.Stop()
	if c.Response != nil {
		// A body that was read to its end gives its connection back.
		_ = c.Response.Body.Close()
	}
	c.cancel(nil)
}

// Trouble says what an error of the connection means.
func (c *Call) Trouble(err error) *lifecycle.Trouble {
	t := &lifecycle.Trouble{Kind: lifecycle.Lost, Reached: !roster.IsDial(err), Engine: c.Engine.Key}
	id := c.Engine.Name()
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
	c.Engine.Failed.Add(1)
	if c.Engine.MarkFailed(err, t.Fault.Recorded()) {
		c.logger.Warn("an engine was lost", "engine", id, "url", c.Engine.URL, "request", c.of, "error", t.Fault.Recorded())
	}
	return t
}

// words are an error of the connection without what the engine may have put into
// it: an answer that is no HTTP is quoted.
func (c *Call) words(err error) string {
	text := err.Error()
	var asked *url.Error
	if errors.As(err, &asked) {
		text = asked.Err.Error() // who reads it need not know the engine's address
	}
	return cmp.Or(secretsOf(c.sent, c.client, c.Engine.Authorization).said(text), "its answer could not be read")
}

// TooLate is what becomes of an answer that begins when its leg was given up.
func (c *Call) TooLate() *lifecycle.Trouble {
	return &lifecycle.Trouble{Kind: lifecycle.Lost, Reached: true, Withdrawn: true, Engine: c.Engine.Key, Fault: openai.Unavailable("it was given up")}
}

// maxErrorBytes is how much of an engine's refusal is read.
const maxErrorBytes = 64 << 10

// Status says what an answer that is none means.
func (c *Call) Status() *lifecycle.Trouble {
	status := c.Response.StatusCode
	data, err := io.ReadAll(io.LimitReader(c.Response.Body, maxErrorBytes))
	if err != nil {
		return c.Trouble(err)
	}
	fault := c.Complaint(status, data)
	t := &lifecycle.Trouble{Kind: lifecycle.Refused, Reached: true, Engine: c.Engine.Key, Fault: fault, Priority: bytes.Contains(bytes.ToLower(data), []byte("priority"))}
	switch {
	case status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable:
		t.Kind, t.Reached = lifecycle.Busy, false
		fault.RetryAfter = time.Second
		if seconds, err := strconv.Atoi(c.Response.Header.Get("Retry-After")); err == nil && seconds > 0 {
			fault.RetryAfter = time.Duration(min(seconds, 3600)) * time.Second
		}
	case status == http.StatusUnauthorized || status == http.StatusForbidden || status < 400:
		t.Kind = lifecycle.Lost
		t.Fault = openai.Unavailable("engine %s does not let the gateway in: status %d", c.Engine.Name(), status)
	case status >= 500 || status == http.StatusRequestTimeout:
		t.Kind, t.Answered = lifecycle.Lost, true
		t.Fault = openai.Unavailable("%s", fault.Record)
	}
	return t
}

// ReadAll reads an answer that is no stream.
func (c *Call) ReadAll(limit int64) ([]byte, *lifecycle.Trouble) {
	// What an engine says of its answer's length is believed as it comes true.
	size := int64(4 << 10)
	if said := c.Response.ContentLength; said >= 0 {
		size = min(said, 64<<10)
	}
	buffer := bytes.NewBuffer(make([]byte, 0, size+bytes.MinRead))
	n, err := buffer.ReadFrom(io.LimitReader(c.Response.Body, limit+1))
	if err == nil && n > limit {
		err = fmt.Errorf("its answer has more than %d bytes", limit)
	}
	if err != nil {
		return nil, c.Trouble(err)
	}
	return buffer.Bytes(), nil
}

// ReadWhole reads an answer that is no stream. Clients can ask for large ones, so
// they share their memory, as requests do.
func (c *Call) ReadWhole(whole *budget.Held, most int64) *lifecycle.Trouble {
	err := whole.Fill(io.LimitReader(c.Response.Body, most+1), c.Response.ContentLength, most+1)
	switch {
	case errors.Is(err, budget.ErrSpent):
		fault := openai.Unavailable("the gateway is full: answers of %d bytes are being gathered; ask for streams", whole.Budget.Limit).WithCode(openai.CodeOverloaded)
		fault.RetryAfter = openai.EngineRetry
		return &lifecycle.Trouble{Kind: lifecycle.Refused, Reached: true, Answered: true, Engine: c.Engine.Key, Fault: fault}
	case err == nil && int64(len(whole.Data)) > most:
		err = fmt.Errorf("its answer has more than %d bytes", most)
	}
	if err != nil {
		return c.Trouble(err)
	}
	return nil
}

// NotJSON is an engine that answered with what cannot be read.
func NotJSON(e *roster.Engine) *lifecycle.Trouble {
	return &lifecycle.Trouble{Kind: lifecycle.Lost, Reached: true, Engine: e.Key, Fault: openai.Unavailable("engine %s answered with what is no JSON object", e.Name())}
}

// MaxClientID is longer than the ids that clients make.
const MaxClientID = 128

// ClientID is what a client calls its request, or "" where that is nothing that
// could stand in a log.
func ClientID(r *http.Request) string {
	id := r.Header.Get(HeaderClientRequest)
	if len(id) > MaxClientID || strings.ContainsFunc(id, isUnprintable) {
		return ""
	}
	return id
}

func isUnprintable(c rune) bool { return c <= ' ' || c >= 0x7f }

// NewTransfer is an id for a hand-off, or for what engines are asked besides requests.
func NewTransfer() (t kv.ID) {
	rand.Read(t[:])
	return t
}

// MaxPrefillBytes bounds a prefill engine's answer: one token and what it
// offers.
const MaxPrefillBytes = 4 << 20
