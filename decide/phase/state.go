package phase

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"meridian/kv"
)

// ErrState means that a state is not one of a sequence of this model. Its
// sequence can be followed all the same: begin with its prompt and feed what it
// has written so far.
var ErrState = errors.New("phase: state")

// StateBytes is the size of a State between processes.
const StateBytes = 1 + 1 + 1 + 1 + 8 + 2 + 6 + 8 + 3*8

const stateVersion = 1

// State is a machine without its model: what goes along when a stream is resumed
// elsewhere.
type State struct {
	// Model is a number of the markers that the machine looks for.
	Model uint64
	Phase kv.Phase
	// Tokens counts what was generated, Think the tokens of the thought.
	Tokens, Think int

	opening opening
	at      uint16
	starts  uint64
	answer  int
}

// Export is the state of m.
func (m *Machine) Export() State {
	return State{
		Model: m.model.fingerprint, Phase: m.phase, Tokens: m.tokens, Think: m.think,
		opening: m.opening, at: m.at, starts: m.starts, answer: m.answer,
	}
}

// Resume is the machine that s was exported from. Another process wrote s.
func (m *Model) Resume(s State) (Machine, error) {
	if s.Model != m.fingerprint {
		return Machine{}, fmt.Errorf("%w: of markers %016x, and this model's are %016x", ErrState, s.Model, m.fingerprint)
	}
	machine := Machine{
		model: m, phase: s.Phase, opening: s.opening, at: s.at, starts: s.starts, tokens: s.Tokens, think: s.Think, answer: s.answer,
	}
	if err := machine.check(); err != nil {
		return Machine{}, err
	}
	return machine, nil
}

func (m *Machine) check() error {
	thinkable := m.model.thinks || m.phase != kv.Think && m.opening == closed && m.think == 0
	switch {
	case m.phase > kv.Complete || m.opening > closed || !thinkable || m.phase == kv.Think && m.opening != opened:
		return fmt.Errorf("%w: %v does not follow from how it began", ErrState, m.phase)
	case m.tokens < 0 || m.tokens > math.MaxInt32 || m.think < 0 || m.think > m.tokens || m.answer < 0 || m.answer > m.tokens,
		m.phase == kv.Prefill && m.think != 0, m.phase < kv.Output && m.answer != 0, m.phase >= kv.Output && m.think > m.answer:
		return fmt.Errorf("%w: %d tokens, %d of a thought, answer after %d", ErrState, m.tokens, m.think, m.answer)
	case int(m.at) >= m.positions():
		return fmt.Errorf("%w: position %d within a marker, of %d", ErrState, m.at, m.positions())
	case m.phase == kv.Prefill && m.matched() > m.tokens || m.phase == kv.Think && m.matched() > m.think:
		return fmt.Errorf("%w: %d ids of a marker among %d tokens", ErrState, m.matched(), m.tokens)
	case m.model.channels && m.phase == kv.Prefill && m.at == inThought:
		return fmt.Errorf("%w: within a message of the thought, which has not begun", ErrState)
	case m.model.channels && m.starts > maxFrameTokens+1:
		return fmt.Errorf("%w: %d tokens of a frame", ErrState, m.starts)
	}
	return nil
}

// positions is how many values at may have.
func (m *Machine) positions() int {
	switch {
	case m.phase >= kv.Output || !m.model.thinks:
		return 1
	case m.model.channels:
		return int(inName) + len(m.model.channel.Think) + 1
	case m.phase == kv.Prefill:
		return len(m.model.start.depth)
	}
	return len(m.model.end.depth)
}

// matched is how many of the last tokens began a marker, where those are ids.
func (m *Machine) matched() int {
	switch {
	case m.phase >= kv.Output || !m.model.thinks || m.model.channels || m.model.prose:
		return 0
	case m.phase == kv.Prefill:
		return int(m.model.start.depth[m.at])
	}
	return int(m.model.end.depth[m.at])
}

// AppendBinary appends the StateBytes of s.
func (s State) AppendBinary(to []byte) ([]byte, error) {
	to = append(to, stateVersion, byte(s.Phase), byte(s.opening), 0)
	to = binary.LittleEndian.AppendUint64(to, s.Model)
	to = binary.LittleEndian.AppendUint16(to, s.at)
	to = append(to, 0, 0, 0, 0, 0, 0)
	to = binary.LittleEndian.AppendUint64(to, s.starts)
	for _, n := range [...]int{s.Tokens, s.Think, s.answer} {
		to = binary.LittleEndian.AppendUint64(to, uint64(n))
	}
	return to, nil
}

// ParseState reads what AppendBinary wrote. Whether it fits a model is for
// Resume to say.
func ParseState(from []byte) (State, error) {
	if len(from) != StateBytes || from[0] != stateVersion {
		return State{}, fmt.Errorf("%w: %d bytes, want %d of version %d", ErrState, len(from), StateBytes, stateVersion)
	}
	number := func(at int) int { return int(binary.LittleEndian.Uint64(from[at:])) }
	return State{
		Phase: kv.Phase(from[1]), opening: opening(from[2]), Model: binary.LittleEndian.Uint64(from[4:]),
		at: binary.LittleEndian.Uint16(from[12:]), starts: binary.LittleEndian.Uint64(from[20:]),
		Tokens: number(28), Think: number(36), answer: number(44),
	}, nil
}
