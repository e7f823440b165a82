package phase

import "slices"

// Model is how one model marks its thoughts, ready to be looked for. It does not
// change: all sequences of an engine share it.
type Model struct {
	thinks, opens, prose, channels, disables bool
	// byIDs: markers are ids, not prose and not channels.
	byIDs bool

	start, end *automaton
	channel    Channel
	force      []uint32
	texts      func(id uint32) []byte
	directives *automaton
	// opened and closed are what a prompt may end with.
	opened, closed []Marker
	fingerprint    uint64
}

// NewModel prepares markers. Markers without an End give a model that does not
// think: its sequences are Output from their first token.
func NewModel(m Markers) (*Model, error) {
	if err := m.check(); err != nil {
		return nil, err
	}
	model := &Model{
		thinks: m.Thinks(), opens: m.Opens, prose: m.Prose, channels: !m.Channel.isZero(), disables: m.Disables,
		channel: m.Channel, force: slices.Clone(m.Force), texts: m.Texts,
		opened: m.Start, closed: m.End,
	}
	model.byIDs = !model.prose && !model.channels
	if m.Disables && m.Texts != nil {
		model.directives = newAutomaton([][]uint32{symbols(thinkDirective), symbols(noThinkDirective)}, true)
	}
	if model.channels {
		c := m.Channel
		model.opened = []Marker{{IDs: slices.Concat([]uint32{c.Open}, c.Think, []uint32{c.Message})}}
		model.closed = []Marker{{IDs: slices.Concat([]uint32{c.Open}, c.Answer, []uint32{c.Message})}}
	} else {
		model.start, model.end = newAutomaton(patterns(m.Start, m.Prose), m.Prose), newAutomaton(patterns(m.End, m.Prose), m.Prose)
	}
	if len(model.force) == 0 && model.thinks && !model.channels && len(m.End[0].IDs) > 0 {
		model.force = slices.Clone(m.End[0].IDs)
	}
	model.fingerprint = model.print()
	return model, nil
}

// Thinks says whether sequences of this model may be in Think.
func (m *Model) Thinks() bool { return m.thinks }

// Force is the ids that end a thought when they are put into the stream. Empty
// means that nothing is known to end it. It belongs to the model.
func (m *Model) Force() []uint32 { return m.force }

func patterns(markers []Marker, prose bool) [][]uint32 {
	var all [][]uint32
	for _, m := range markers {
		if prose {
			all = append(all, symbols(m.Text))
		} else {
			all = append(all, m.IDs)
		}
	}
	return all
}

// symbols is the bytes of a text as an automaton reads them.
func symbols(text string) []uint32 {
	out := make([]uint32, len(text))
	for i := range len(text) {
		out[i] = uint32(text[i])
	}
	return out
}

// print is a number that two models share if they look for the same markers, by
// FNV-1a: a state may go from one to the other.
func (m *Model) print() uint64 {
	h := uint64(14695981039346656037)
	add := func(values ...uint32) {
		for _, v := range append(values, uint32(len(values))) {
			for range 4 {
				h = (h ^ uint64(v&0xff)) * 1099511628211
				v >>= 8
			}
		}
	}
	flags := uint32(0)
	for i, set := range []bool{m.thinks, m.opens, m.prose, m.channels, m.disables} {
		if set {
			flags |= 1 << i
		}
	}
	add(flags, uint32(len(m.opened)))
	for _, marker := range slices.Concat(m.opened, m.closed) {
		add(marker.IDs...)
		if m.prose {
			add(symbols(marker.Text)...)
		}
	}
	add(m.channel.Open, m.channel.Message, m.channel.Close)
	return h
}
