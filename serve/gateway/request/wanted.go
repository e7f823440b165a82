package request

import "meridian/serve/openai"

// Wanted says which engines a request can use.
type Wanted struct {
	Request *Request
	Avoid   []string // keys of engines
	// Kind, where it is not nil, is the kind that it must be.
	Kind *openai.EngineKind
	// Spare: prefill engines may generate where decode engines are full.
	Spare bool
}
