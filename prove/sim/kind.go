package sim

import "fmt"

// Kind is which kind of world.
type Kind string

// The kinds of worlds.
const (
	// Agents is real agents that move bytes between one another.
	Agents Kind = "agents"
	// HandOffs is the machines of hand-offs, between engines of many ranks.
	// Which trouble such a world has comes from its seed alone.
	HandOffs Kind = "handoff"
	// Store is the machines of the object cache, over arenas with real bytes. Its
	// trouble, too, comes from the seed alone.
	Store Kind = "store"
)

// Kinds lists them.
func Kinds() []Kind { return []Kind{Agents, HandOffs, Store} }

// ParseKind reads the name of a kind.
func ParseKind(text string) (Kind, error) {
	switch k := Kind(text); k {
	case Agents, HandOffs, Store:
		return k, nil
	}
	return "", fmt.Errorf("sim: no world %q; there is %s, %s, %s", text, Agents, HandOffs, Store)
}
