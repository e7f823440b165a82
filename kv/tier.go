package kv

import "fmt"

// Tier says how soon a block may leave memory: lower leaves first. The values
// are on the wire (docs/wire.md) and never change.
type Tier uint8

const (
	// ThinkComplete blocks hold reasoning that has ended.
	ThinkComplete Tier = 0
	// ThinkActive blocks hold reasoning that still goes on.
	ThinkActive Tier = 1
	// OutputCritical blocks hold what a user is reading right now.
	OutputCritical Tier = 2
)

var tierNames = [...]string{
	ThinkComplete:  "think_complete",
	ThinkActive:    "think_active",
	OutputCritical: "output_critical",
}

// Tiers lists every tier in the order in which they leave memory.
func Tiers() []Tier { return []Tier{ThinkComplete, ThinkActive, OutputCritical} }

// Valid reports whether t is one of the three tiers.
func (t Tier) Valid() bool { return int(t) < len(tierNames) }

func (t Tier) String() string {
	if !t.Valid() {
		return fmt.Sprintf("tier(%d)", uint8(t))
	}
	return tierNames[t]
}

// ParseTier reads the name that String writes.
func ParseTier(name string) (Tier, error) {
	for t, known := range tierNames {
		if known == name {
			return Tier(t), nil
		}
	}
	return 0, fmt.Errorf("kv: unknown tier %q: use think_complete, think_active or output_critical", name)
}
