package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"meridian/serve/openai"
)

// Handler is the engine's HTTP face: the OpenAI API, /tokenize, /move, /health and /stats.
func (e *Engine) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+openai.PathModels, e.serveModels)
	mux.HandleFunc("POST "+openai.PathCompletions, e.serveCompletions)
	mux.HandleFunc("POST "+openai.PathChat, e.serveChat)
	mux.HandleFunc("POST /tokenize", e.serveTokenize)
	mux.HandleFunc("POST "+openai.PathMove, e.serveMove)
	mux.HandleFunc("GET /health", e.serveHealth)
	mux.HandleFunc("GET /stats", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, e.Stats()) })
	for path, method := range map[string]string{
		openai.PathModels: http.MethodGet, openai.PathCompletions: http.MethodPost, openai.PathChat: http.MethodPost, openai.PathMove: http.MethodPost, "/health": http.MethodGet, "/stats": http.MethodGet,
	} {
		mux.HandleFunc(path, openai.OnlyBy(method))
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		problem := openai.Invalid("", "nothing is served at %s %s", r.Method, r.URL.Path)
		problem.Type, problem.Status = openai.TypeNotFound, http.StatusNotFound
		problem.Write(w)
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// The deadline of an answer before, on the same connection, is not this
		// one's. That of the body stays, whichever handler reads it, until all of it is here.
		control := http.NewResponseController(w)
		_ = control.SetWriteDeadline(time.Time{})
		_ = control.SetReadDeadline(time.Now().Add(e.options.StallTimeout))
		mux.ServeHTTP(w, r)
	})
}

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // the client may have gone
}

func (e *Engine) serveHealth(w http.ResponseWriter, _ *http.Request) {
	if e.Closing() {
		openai.Unavailable("the engine is shutting down").WithCode(openai.CodeDraining).Write(w)
		return
	}
	writeJSON(w, map[string]string{"status": "ok"})
}

// ScriptedReasoning labels answers whose thoughts are not the model's idea.
const ScriptedReasoning = "scripted-reasoning"

// fingerprint says what made an answer.
func (e *Engine) fingerprint() string {
	text := "meridian-reference " + e.source.scope.Model + " " + e.source.scope.Revision
	if e.options.Reasoning {
		text += " " + ScriptedReasoning
	}
	return text
}

func (e *Engine) serveModels(w http.ResponseWriter, _ *http.Request) {
	type entry struct {
		openai.Model
		SystemFingerprint string `json:"system_fingerprint"`
	}
	writeJSON(w, struct {
		Object string  `json:"object"`
		Data   []entry `json:"data"`
	}{openai.ObjectList, []entry{{
		openai.Model{
			ID: e.options.ServedName, Object: openai.ObjectModel, Created: e.started.Unix(), OwnedBy: openai.OwnedByMeridian,
			MaxModelLen: e.maxContext(),
		}, e.fingerprint(),
	}}})
}

// read decodes a body into v.
func (e *Engine) read(w http.ResponseWriter, r *http.Request, v any) *openai.Error {
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, e.options.MaxBodyBytes))
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		problem := openai.Invalid("", "the body is larger than %d bytes", tooLarge.Limit)
		problem.Status = http.StatusRequestEntityTooLarge
		return problem
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		problem := openai.Invalid("", "the body was not complete after %v", e.options.StallTimeout)
		problem.Status = http.StatusRequestTimeout
		return problem
	}
	if err != nil {
		return openai.Invalid("", "the body could not be read: %v", err)
	}
	// From here on reading means waiting for the client to hang up.
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
	if err := json.Unmarshal(data, v); err != nil {
		return openai.Mistyped("", err, embedded...)
	}
	return nil
}

// embedded are the structs that stand in the path of a member by their Go names.
var embedded = []string{"ChatRequest", "CompletionRequest", "Sampling", "extras"}

// problemOf tells a client why a request was refused or failed.
func problemOf(err error) *openai.Error {
	switch {
	case errors.Is(err, ErrTooLong):
		return openai.Invalid("", "%v", err).WithCode(openai.CodeContextLength)
	case errors.Is(err, ErrInvalid):
		return openai.Invalid("", "%v", err)
	case errors.Is(err, ErrBusy):
		return openai.Overloaded(time.Second, "%v", err)
	case errors.Is(err, ErrClosed):
		return openai.Unavailable("%v", err)
	}
	return &openai.Error{Message: err.Error(), Type: openai.TypeServer, Status: http.StatusInternalServerError}
}

// answer submits a request and writes what comes of it.
func (e *Engine) answer(w http.ResponseWriter, r *http.Request, request Request, p *response) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	request.ID = requestID(r.Header)
	stream, err := e.Submit(ctx, request)
	if err != nil {
		problemOf(err).Write(w)
		return
	}
	p.request = &request
	if p.streamed {
		e.stream(ctx, w, stream, p)
		return
	}
	err = p.collect(ctx, stream)
	if ctx.Err() != nil {
		return // the client is gone
	}
	if err != nil {
		problemOf(err).Write(w)
		return
	}
	result := stream.Result()
	e.allowWrite(w)
	writeJSON(w, p.whole(result))
	if request.Offer != nil && r.Context().Err() != nil {
		e.Withdraw(*request.Offer)
	}
}

// maxRequestID is longer than the ids that clients make.
const maxRequestID = 128

// requestID is what a gateway, or else a client, calls a request; "" where that is
// nothing that could stand in a log.
func requestID(h http.Header) string {
	id := cmp.Or(h.Get("X-Meridian-Request-Id"), h.Get("X-Request-Id"))
	if len(id) > maxRequestID || strings.ContainsFunc(id, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
		return ""
	}
	return id
}

// allowWrite gives a client some time to read what is written next.
func (e *Engine) allowWrite(w http.ResponseWriter) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(e.options.StallTimeout)) // else it has no deadline
}

// stream writes chunks as they come. The last one waits for the report.
func (e *Engine) stream(ctx context.Context, w http.ResponseWriter, stream *Stream, p *response) {
	events := openai.NewEventWriter(w)
	var buffer []byte
	begun := false
	send := func() bool {
		if len(buffer) == 0 {
			return true
		}
		e.allowWrite(w)
		err := events.SendAll(buffer)
		buffer, begun = buffer[:0], true
		return err == nil
	}
	for {
		outputs, err := stream.Next(ctx)
		switch {
		case errors.Is(err, io.EOF):
			buffer = p.appendEnd(buffer, stream.Result())
			buffer = openai.AppendEvent(buffer, []byte(openai.Done))
			if !send() && p.request.Move != nil {
				e.Withdraw(p.request.Move.Transfer)
			}
			return
		case ctx.Err() != nil:
			return
		case err != nil && !begun:
			problemOf(err).Write(w)
			return
		case err != nil:
			e.allowWrite(w)
			_ = events.Fault(problemOf(err)) // the stream ends either way
			return
		}
		for i := range outputs {
			buffer = p.appendOutput(buffer, &outputs[i])
		}
		if !send() {
			return
		}
	}
}
