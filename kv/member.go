package kv

import (
	"cmp"
	"fmt"
)

// Member is one start of an agent of the cell: when it starts again, its name
// stays and its incarnation does not.
type Member struct {
	Name        string
	Incarnation ID
}

func (m Member) String() string { return fmt.Sprintf("%s (%.8s)", m.Name, m.Incarnation) }

// Compare orders members.
func (m Member) Compare(other Member) int {
	return cmp.Or(cmp.Compare(m.Name, other.Name), m.Incarnation.Compare(other.Incarnation))
}
