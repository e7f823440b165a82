package openai

// EngineKind is what an engine understands beyond the API.
type EngineKind uint8

// The kinds that there are.
const (
	KindOther EngineKind = iota
	KindVLLM
	KindMeridian
)

// String is the kind as people read it.
func (k EngineKind) String() string { return [...]string{"other", "vllm", "meridian"}[k] }
