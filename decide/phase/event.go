package phase

// Kind is what happened to a sequence.
type Kind uint8

const (
	// EnterThink: the thought began.
	EnterThink Kind = iota + 1
	// ExitThink: the thought is over; Event.Think says how long it was.
	ExitThink
	// Complete: no token follows.
	Complete
)

var kindNames = [...]string{"unknown kind", "enter_think", "exit_think", "complete"}

func (k Kind) String() string {
	if int(k) >= len(kindNames) {
		return kindNames[0]
	}
	return kindNames[k]
}

// Event is what a committed token caused. A sequence has each kind once at most.
type Event struct {
	// Sequence is the one it happened to; a lone Machine leaves it 0.
	Sequence Sequence
	Kind     Kind
	// At counts the sequence's generated tokens up to the one that caused it.
	At int
	// Think counts the tokens of its thought so far, without its markers.
	Think int
}
