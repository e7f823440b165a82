package phase

import (
	"errors"
	"fmt"
	"slices"
)

// ErrMarkers means that markers cannot be looked for.
var ErrMarkers = errors.New("phase: markers")

const (
	// maxMarkers of a kind, and maxMarkerLength of ids or bytes each: several
	// times what models have, and little enough for a table.
	maxMarkers      = 16
	maxMarkerLength = 64
)

// Marker is one way a thought may start or end: a sequence of token ids where
// they are known, and its text where that was given.
type Marker struct {
	IDs  []uint32
	Text string
}

// Markers is how a model marks its thoughts, and what is a habit of its family.
// No End means that the model does not mark thoughts at all.
type Markers struct {
	Start, End []Marker
	// Channel is set for models whose messages name a channel; Start and End are
	// then what people read.
	Channel Channel
	// Opens: a stream without a start marker is a thought from its first token,
	// since the chat template wrote the marker (DeepSeek-R1).
	Opens bool
	// Prose: texts are looked for, whatever tokens spell them; needs Texts.
	Prose bool
	// Disables: the directive /no_think in a prompt is honoured.
	Disables bool
	// Force is what ends a thought that goes on for too long: the first end
	// marker, unless it is given.
	Force []uint32
	// Texts returns what a token stands for, as token.Tokenizer does. Without it
	// prose cannot be read, nor a directive in a prompt.
	Texts func(id uint32) []byte
}

// Channel is how gpt-oss keeps thoughts apart: Open Think Message … Close. Zero
// means that a model has no channels.
type Channel struct {
	Open, Message, Close uint32
	// Think and Answer are the ids of the channels' names.
	Think, Answer []uint32
}

func (c Channel) isZero() bool { return c.Open == 0 && c.Message == 0 && len(c.Think) == 0 }

// Thinks says whether the model marks thoughts.
func (m *Markers) Thinks() bool { return len(m.End) > 0 || !m.Channel.isZero() }

// check says what of m cannot be looked for.
func (m *Markers) check() error {
	if len(m.Start) > maxMarkers || len(m.End) > maxMarkers {
		return fmt.Errorf("%w: more than %d of a kind", ErrMarkers, maxMarkers)
	}
	if m.Prose && m.Texts == nil {
		return fmt.Errorf("%w: prose is read with the model's tokenizer; name its tokenizer.json", ErrMarkers)
	}
	if !m.Channel.isZero() {
		return m.Channel.check()
	}
	for _, marker := range slices.Concat(m.Start, m.End) {
		length := len(marker.IDs)
		if m.Prose {
			length = len(marker.Text)
		}
		if length == 0 {
			return fmt.Errorf("%w: %q has no token ids; name the model's tokenizer.json", ErrMarkers, marker.Text)
		}
		if length > maxMarkerLength {
			return fmt.Errorf("%w: one is %d long, at most %d", ErrMarkers, length, maxMarkerLength)
		}
	}
	return m.apart()
}

// apart refuses an end marker within a start marker: whether a thought had begun
// or ended would depend on which of them is looked for.
func (m *Markers) apart() error {
	for _, start := range patterns(m.Start, m.Prose) {
		for _, end := range patterns(m.End, m.Prose) {
			for i := range len(start) - len(end) + 1 {
				if slices.Equal(start[i:i+len(end)], end) {
					return fmt.Errorf("%w: an end marker stands within a start marker, %v in %v", ErrMarkers, end, start)
				}
			}
		}
	}
	return nil
}

func (c Channel) check() error {
	if len(c.Think) == 0 || len(c.Think) > maxMarkerLength || len(c.Answer) == 0 || len(c.Answer) > maxMarkerLength {
		return fmt.Errorf("%w: a channel's name has %d and %d ids; name the model's tokenizer.json", ErrMarkers, len(c.Think), len(c.Answer))
	}
	if c.Open == c.Message || slices.Equal(c.Think, c.Answer) {
		return fmt.Errorf("%w: open and message of a channel, and the names of thought and answer, must differ", ErrMarkers)
	}
	return nil
}
