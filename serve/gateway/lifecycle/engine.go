package lifecycle

import (
	"meridian/decide/placement"
	"meridian/serve/openai"
)

// Engine is what a life knows of an engine that has one of its legs.
type Engine struct {
	Key        string
	Name       string // as people call it
	Kind       openai.EngineKind
	MaxContext int
	Phases     placement.Phases // that it is meant to generate
	Shares     bool             // it keeps prefixes in the cell
	Unit       int              // tokens that its caches keep at a time
	// Home: the directory tells its agent; Stray: it has lost that.
	Home, Stray bool
}

// redeems: a promise can be made by it, or to it.
func (e Engine) redeems() bool { return e.Home && !e.Stray }

// Client is whether the client waits for the answer still.
type Client struct {
	Gone bool   // its request has ended
	Why  string // it does not wait any more, "" while it does
}
