package lifecycle

import "slices"

// Overlap is what two engines say of one answer: what the client has from the lost
// one beyond the last point at which another can go on. That point is a token whose text is complete: an engine that
// is given half a character as the end of its prompt says the whole prompt again
// with the other half. When an answer goes on elsewhere, the next
// engine says the overlap once more; the relay compares it and leaves it out.
type Overlap struct {
	Tokens []uint32
	Text   []byte
}

// IsEmpty: nothing is said twice.
func (o *Overlap) IsEmpty() bool { return len(o.Tokens) == 0 && len(o.Text) == 0 }

// Clone can be taken from while the overlap stays.
func (o *Overlap) Clone() Overlap { return Overlap{slices.Clone(o.Tokens), slices.Clone(o.Text)} }

// Repeat takes what an engine says, and returns what of it is new. ok is false
// where it says something else than was said before.
func (o *Overlap) Repeat(tokens []uint32, text string) (newTokens []uint32, newText string, ok bool) {
	n := min(len(tokens), len(o.Tokens))
	if !slices.Equal(tokens[:n], o.Tokens[:n]) {
		return nil, "", false
	}
	m := min(len(text), len(o.Text))
	if string(o.Text[:m]) != text[:m] {
		return nil, "", false
	}
	o.Tokens, o.Text = o.Tokens[n:], o.Text[m:]
	return tokens[n:], text[m:], true
}
