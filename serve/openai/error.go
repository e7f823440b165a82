package openai

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// Types of errors, as OpenAI's clients tell them apart.
const (
	TypeInvalid     = "invalid_request_error"
	TypeAuth        = "authentication_error"
	TypeNotFound    = "not_found_error"
	TypeRateLimit   = "rate_limit_error"
	TypeServer      = "server_error"
	TypeUnavailable = "service_unavailable_error"
)

// Codes of errors that programs act on.
const (
	CodeContextLength = "context_length_exceeded"
	CodeModelNotFound = "model_not_found"
	CodeInvalidKey    = "invalid_api_key"
	CodeOverloaded    = "overloaded"
	CodeEngineLost    = "engine_lost"
	CodeDraining      = "draining" // of an engine that ends, and lets what runs finish or leave
)

// Statuses by which rooms decide that speak no HTTP.
const (
	StatusOK                  = http.StatusOK
	StatusInternalServerError = http.StatusInternalServerError
	StatusGatewayTimeout      = http.StatusGatewayTimeout
)

// EngineRetry is how soon engines that were lost may be back.
const EngineRetry = time.Second

// Error is the error object of the API, and an error.
type Error struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"`
	Code    *string `json:"code"`

	// Status is the HTTP status it goes with, RetryAfter what a client should
	// wait, if anything.
	Status     int           `json:"-"`
	RetryAfter time.Duration `json:"-"`
	// Record is what may be kept of it, where Message quotes an engine; "" where
	// Message may be.
	Record string `json:"-"`
}

// Recorded is what may be kept of the error.
func (e *Error) Recorded() string { return cmp.Or(e.Record, e.Message) }

func (e *Error) Error() string { return e.Message }

// Invalid refuses what a client sent; param is the member that is wrong, or "".
func Invalid(param, format string, args ...any) *Error {
	e := &Error{Message: fmt.Sprintf(format, args...), Type: TypeInvalid, Status: http.StatusBadRequest}
	if param != "" {
		e.Param = &param
	}
	return e
}

// WithCode names the error for programs.
func (e *Error) WithCode(code string) *Error {
	e.Code = &code
	return e
}

// HasCode tells whether an answer's body is an error with that code.
func HasCode(body []byte, code string) bool {
	var answer struct{ Error *Error }
	return json.Unmarshal(body, &answer) == nil && answer.Error != nil && answer.Error.Code != nil && *answer.Error.Code == code
}

// Overloaded asks to come back later.
func Overloaded(after time.Duration, format string, args ...any) *Error {
	e := &Error{Message: fmt.Sprintf(format, args...), Type: TypeRateLimit, Status: http.StatusTooManyRequests, RetryAfter: after}
	return e.WithCode(CodeOverloaded)
}

// Unavailable says that the request could be served elsewhere or later.
func Unavailable(format string, args ...any) *Error {
	return &Error{Message: fmt.Sprintf(format, args...), Type: TypeUnavailable, Status: http.StatusServiceUnavailable}
}

// UnknownModel refuses a model that no engine serves.
func UnknownModel(model string, served []string) *Error {
	e := Invalid("model", "the model %.256q does not exist; there is %q", model, served)
	e.Type, e.Status = TypeNotFound, http.StatusNotFound
	return e.WithCode(CodeModelNotFound)
}

// JSON is the object that clients get: {"error": {…}}.
func (e *Error) JSON() []byte {
	data, err := json.Marshal(map[string]*Error{"error": e})
	if err != nil {
		panic(err) // texts and pointers to texts
	}
	return data
}

// Write answers a request with the error.
func (e *Error) Write(w http.ResponseWriter) {
	if e.RetryAfter > 0 {
		seconds := int((e.RetryAfter + time.Second - 1) / time.Second)
		w.Header().Set("Retry-After", strconv.Itoa(seconds))
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(e.Status)
	_, _ = w.Write(append(e.JSON(), '\n')) // the client may have gone
}

// ParseError reads the error object of a response, in any of the forms that
// engines send. What is none becomes one, with the status and the text.
func ParseError(status int, body []byte) *Error {
	var wrapped struct {
		Error json.RawMessage `json:"error"`
	}
	raw := json.RawMessage(body)
	if json.Unmarshal(body, &wrapped) == nil && len(wrapped.Error) > 0 {
		raw = wrapped.Error
	}
	var e struct {
		Message string  `json:"message"`
		Type    string  `json:"type"`
		Param   *string `json:"param"`
		Code    any     `json:"code"` // a text, or with vLLM the status
	}
	if json.Unmarshal(raw, &e) != nil || e.Message == "" {
		text := string(body)
		if len(text) > 200 {
			text = text[:200] + "…"
		}
		return &Error{Message: fmt.Sprintf("the engine answered with status %d: %q", status, text), Type: TypeServer, Status: status}
	}
	parsed := &Error{Message: e.Message, Type: e.Type, Param: e.Param, Status: status}
	if code, isText := e.Code.(string); isText {
		parsed.Code = &code
	}
	return parsed
}
