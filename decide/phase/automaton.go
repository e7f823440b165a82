package phase

// automaton finds markers in a stream of symbols, which are token ids or bytes.
// It is the automaton of Aho and Corasick as a full table: one lookup a symbol.
type automaton struct {
	bytes  *[256]uint16      // class of a byte; nil where symbols are ids
	ids    map[uint32]uint16 // class of an id that stands in a marker; others have 0
	filter [16]uint64        // of ids: which of 1024 remainders stand in a marker
	width  int               // classes
	next   []uint16          // by state and class
	depth  []uint8           // by state: symbols that have matched
	found  []uint8           // by state: length of the longest marker that ends here
	symbol []uint32          // by state: the one that leads to it from parent
	parent []uint16
}

// newAutomaton takes at most maxMarkers patterns of at most maxMarkerLength
// symbols, so that states and classes are few.
func newAutomaton(patterns [][]uint32, ofBytes bool) *automaton {
	a := &automaton{ids: make(map[uint32]uint16), width: 1, depth: []uint8{0}, found: []uint8{0}, symbol: []uint32{0}, parent: []uint16{0}}
	for _, p := range patterns {
		for _, s := range p {
			if _, known := a.ids[s]; !known {
				a.ids[s] = uint16(a.width)
				a.filter[s>>6&15] |= 1 << (s & 63)
				a.width++
			}
		}
	}
	a.next = make([]uint16, a.width)
	for _, p := range patterns {
		a.add(p)
	}
	a.complete()
	if ofBytes {
		a.bytes = new([256]uint16)
		for s, class := range a.ids {
			a.bytes[s] = class
		}
	}
	return a
}

// add puts a pattern into the tree, in which 0 means no child.
func (a *automaton) add(pattern []uint32) {
	state := uint16(0)
	for _, s := range pattern {
		edge := int(state)*a.width + int(a.ids[s])
		if a.next[edge] == 0 {
			child := uint16(len(a.depth))
			a.next[edge] = child
			a.next = append(a.next, make([]uint16, a.width)...)
			a.depth = append(a.depth, a.depth[state]+1)
			a.found = append(a.found, 0)
			a.symbol = append(a.symbol, s)
			a.parent = append(a.parent, state)
		}
		state = a.next[edge]
	}
	a.found[state] = uint8(len(pattern))
}

// complete fills the missing edges: after a mismatch the longest end of what
// was read that begins a marker counts.
func (a *automaton) complete() {
	fail := make([]uint16, len(a.depth))
	queue := []uint16{0}
	for len(queue) > 0 {
		state := queue[0]
		queue = queue[1:]
		a.found[state] = max(a.found[state], a.found[fail[state]])
		for class := range a.width {
			edge := int(state)*a.width + class
			back := uint16(0)
			if state != 0 {
				back = a.next[int(fail[state])*a.width+class]
			}
			if child := a.next[edge]; child != 0 {
				fail[child] = back
				queue = append(queue, child)
			} else {
				a.next[edge] = back
			}
		}
	}
}

// absent says that an id surely stands in no marker; most such ids it knows.
func (a *automaton) absent(id uint32) bool { return a.filter[id>>6&15]>>(id&63)&1 == 0 }

// step is the state after a symbol.
func (a *automaton) step(state uint16, symbol uint32) uint16 {
	class := uint16(0)
	switch {
	case a.bytes != nil:
		class = a.bytes[symbol]
	case !a.absent(symbol):
		class = a.ids[symbol]
	}
	if class == 0 {
		return 0 // it stands in no marker
	}
	return a.next[int(state)*a.width+int(class)]
}

// path is the symbols that have matched in a state, in order.
func (a *automaton) path(state uint16, into *[maxMarkerLength]uint32) []uint32 {
	length := int(a.depth[state])
	for i := length; i > 0; i-- {
		into[i-1] = a.symbol[state]
		state = a.parent[state]
	}
	return into[:length]
}
