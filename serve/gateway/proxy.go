package gateway

import (
	"cmp"
	"io"
	"net/http"
	"slices"
	"strings"

	"meridian/internal/budget"
	"meridian/serve/gateway/edge"
	"meridian/serve/gateway/lifecycle"
	"meridian/serve/gateway/request"
	"meridian/serve/gateway/roster"
	"meridian/serve/gateway/upstream"
	"meridian/serve/openai"
)

// ProxyPaths are the endpoints of engines that are passed on where nothing else
// is said: those that leave nothing behind at the engine and change nothing
// there, so that any engine can answer.
var ProxyPaths = []string{
	"/tokenize", "/detokenize", "/version",
	"/v1/embeddings", "/v1/responses", "/v1/messages", "/v1/messages/count_tokens",
	"/pooling", "/classify", "/score", "/v1/score", "/rerank", "/v1/rerank", "/v2/rerank",
}

// proxiedRequest is a request that the gateway passes on without knowing what it is for.
type proxiedRequest struct {
	g     *Gateway
	r     *http.Request
	out   *edge.Writer
	body  budget.Held
	model string
}

// pass serves an endpoint that only engines know: one engine gets the request as
// it is, and its answer goes back as it is.
func (g *Gateway) pass(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodPost {
		unknownEndpoint(g.options.ProxyPaths)(w, r)
		return
	}
	id := upstream.NewTransfer().String()
	w.Header().Set(upstream.HeaderRequest, id)
	w.Header().Set(upstream.HeaderClientRequest, cmp.Or(upstream.ClientID(r), id))
	p := &proxiedRequest{g: g, r: r, out: edge.NewWriter(w, r, g.options.ClientTimeout), body: g.admission.Body()}
	defer p.body.Release()
	ended := &g.count.passed[1] // also by an answer that breaks off, which is a panic
	defer func() { ended.Add(1) }()
	fault := p.admit()
	if fault == nil {
		defer g.admission.Leave()
		fault = p.run(id)
	}
	if fault != nil {
		p.out.Renew()
		fault.Write(w)
		return
	}
	ended = &g.count.passed[0]
}

// admit reads and checks the request, and waits for its turn.
func (p *proxiedRequest) admit() *openai.Error {
	if fault := p.take(); fault != nil {
		return fault
	}
	return p.g.admission.Enter(p.r.Context())
}

// take reads and checks the request, in one of the places for that.
func (p *proxiedRequest) take() *openai.Error {
	if fault := p.g.beginReading(); fault != nil {
		return fault
	}
	defer p.g.admission.DoneReading()
	switch {
	case p.r.Method == http.MethodGet && p.r.ContentLength != 0:
		return openai.Invalid("", "a GET has no body; leave it out")
	case p.r.Method == http.MethodPost:
		if fault := p.g.admission.ReadBody(&p.body, p.r, p.out); fault != nil {
			return fault
		}
		body, fault := openai.ParseBody(p.body.Data)
		if fault != nil {
			return fault
		}
		// The gateway does not know where such an endpoint has what.
		for name, rest := range openai.MembersAnywhere(p.body.Data) {
			if fault := request.RefuseTransfer(name, rest); fault != nil {
				return fault
			}
		}
		if fault := refuseMemory(body); fault != nil {
			return fault
		}
		if fault := body.Read("model", &p.model); fault != nil {
			return fault
		}
		if fault := request.CheckModel(p.model); fault != nil {
			return fault
		}
	}
	served := p.g.roster.Models()
	if p.model != "" && len(served) > 0 && !slices.Contains(served, p.model) && !p.g.roster.ServedOnce(p.model) {
		return openai.UnknownModel(p.model, served)
	}
	return nil
}

// refuseMemory: what an engine is to remember would be at that engine alone, and
// the next request may come to another.
func refuseMemory(body *openai.Body) *openai.Error {
	if body.Has("previous_response_id") {
		return openai.Invalid("previous_response_id", "engines behind the gateway remember no responses; send the whole conversation as input")
	}
	if body.Has("background") && string(body.Get("background")) != "false" { // engines take 1 and "yes" for true
		return openai.Invalid("background", "engines behind the gateway remember no responses; ask without background, or for a stream")
	}
	return nil
}

// passTries is how many engines are asked. Only those that cannot have seen the
// request are followed by another: the gateway does not know what it does.
const passTries = 3

func (p *proxiedRequest) run(id string) *openai.Error {
	var avoid []string
	for {
		e := p.g.roster.LeastBusy(p.model, avoid)
		if e == nil {
			fault := openai.Unavailable("no engine can be asked for %s now", p.r.URL.Path).WithCode(openai.CodeEngineLost)
			fault.RetryAfter = openai.EngineRetry
			return fault
		}
		trouble := p.send(e, id)
		if trouble == nil {
			return nil
		}
		p.g.roster.Hurry()
		if avoid = append(avoid, e.Key); trouble.Reached || len(avoid) == passTries {
			return trouble.Fault
		}
	}
}

// send has one engine answer.
func (p *proxiedRequest) send(e *roster.Engine, id string) *lifecycle.Trouble {
	e.Running.Add(1)
	defer e.Running.Add(-1)
	c, trouble := p.g.upstream.Pass(p.r, p.body.Data, e, id, p.g.options.AnswerTimeout)
	if trouble != nil {
		return trouble
	}
	defer c.Close()
	switch c.Response.StatusCode {
	case http.StatusUnauthorized, http.StatusForbidden:
		return c.Status()
	case http.StatusNotFound, http.StatusMethodNotAllowed:
		return p.unknown(c)
	}
	if status := c.Response.StatusCode; status < 200 || status > 599 {
		return &lifecycle.Trouble{Kind: lifecycle.Lost, Reached: true, Engine: e.Key, Fault: openai.Unavailable("engine %s answered with status %d, which is none", e.Name(), status)}
	}
	e.Served.Add(1)
	p.relay(c)
	return nil
}

// unknown: the engine does not have the endpoint, or not what is asked for there.
func (p *proxiedRequest) unknown(c *upstream.Call) *lifecycle.Trouble {
	t := c.Status()
	if t.Fault.Type == openai.TypeServer { // it said nothing that clients understand
		t.Fault = openai.Invalid("", "engine %s does not know %s %s", c.Engine.Name(), p.r.Method, p.r.URL.Path)
		t.Fault.Type, t.Fault.Status = openai.TypeNotFound, http.StatusNotFound
	}
	return t
}

// relay brings the answer back, piece by piece. What breaks off in the middle
// breaks off for the client, too.
func (p *proxiedRequest) relay(c *upstream.Call) {
	header := p.out.To.Header()
	for _, name := range []string{"Content-Type", "Content-Length", "Cache-Control", "Retry-After"} {
		if values := c.Response.Header.Values(name); len(values) > 0 {
			header[name] = values
		}
	}
	p.out.To.WriteHeader(c.Response.StatusCode)
	streamed := strings.HasPrefix(c.Response.Header.Get("Content-Type"), openai.EventStream)
	piece := make([]byte, 32<<10)
	for {
		n, err := c.Response.Body.Read(piece)
		c.Pause() // from here on it is the client's time
		p.out.Write(piece[:n])
		if streamed && n > 0 {
			p.out.Flush()
		}
		if err == io.EOF {
			p.out.Flush()
		}
		p.out.Rest()
		if err == io.EOF || p.out.Err != nil {
			return
		}
		if err != nil {
			c.Trouble(err)
			panic(http.ErrAbortHandler) // the only way to say that it is not the end
		}
		c.Alive(p.g.options.StallTimeout)
	}
}
