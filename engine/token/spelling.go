package token

import (
	"encoding/hex"
	"fmt"
	"strings"
)

// spelling undoes what a vocabulary does to the text of its tokens.
type spelling struct {
	byteLevel    bool
	spaceMark    string // stands for a space
	byteFallback bool   // <0x0A> stands for a byte
	stripFirst   bool
}

func (t *Tokenizer) readDecoder(f *tokenizerFile) error {
	var s spelling
	if err := s.read(f.Decoder); err != nil {
		return err
	}
	t.stripFirst = s.stripFirst
	for text, id := range t.merges.ids {
		t.setText(id, s.plain(text))
	}
	return nil
}

func (t *Tokenizer) setText(id uint32, text []byte) {
	if missing := int(id) + 1 - len(t.texts); missing > 0 {
		t.texts = append(t.texts, make([][]byte, missing)...)
	}
	t.texts[id] = text
}

func (s *spelling) read(d *stage) error {
	if d == nil {
		return nil
	}
	switch d.Type {
	case "ByteLevel":
		s.byteLevel = true
	case "Sequence":
		for i := range d.Decoders {
			if err := s.read(&d.Decoders[i]); err != nil {
				return err
			}
		}
	case "Replace":
		if d.Pattern == nil || d.Pattern.String == nil || d.Content != " " {
			return fmt.Errorf("%w: a decoder that replaces anything but a mark by a space", ErrUnsupported)
		}
		s.spaceMark = *d.Pattern.String
	case "Metaspace":
		m := d.metaspace()
		s.spaceMark, s.stripFirst = m.replacement, m.prepend != "never"
	case "ByteFallback":
		s.byteFallback = true
	case "Fuse":
	case "Strip":
		s.stripFirst = s.stripFirst || d.Start > 0
	default:
		return fmt.Errorf("%w: a decoder of type %q", ErrUnsupported, d.Type)
	}
	return nil
}

// plain is what an entry of the vocabulary stands for.
func (s *spelling) plain(text string) []byte {
	if s.byteLevel {
		out := make([]byte, 0, len(text))
		for _, r := range text {
			c, known := runeBytes[r]
			if !known {
				return []byte(text) // an entry that no byte is spelled by
			}
			out = append(out, c)
		}
		return out
	}
	if s.byteFallback && len(text) == 6 && strings.HasPrefix(text, "<0x") && text[5] == '>' {
		if c, err := hex.DecodeString(text[3:5]); err == nil {
			return c
		}
	}
	if s.spaceMark != "" {
		text = strings.ReplaceAll(text, s.spaceMark, " ")
	}
	return []byte(text)
}

var runeBytes = func() map[rune]byte {
	back := make(map[rune]byte, 256)
	for c, r := range byteRunes {
		back[r] = byte(c)
	}
	return back
}()

func (t *Tokenizer) readAdded(f *tokenizerFile) error {
	var raw, normalized []addedToken
	for _, a := range f.AddedTokens {
		if a.Content == "" || a.ID > maxID {
			return fmt.Errorf("added token %d: it has no content, or its id is above %d", a.ID, maxID)
		}
		token := addedToken{
			id: a.ID, text: a.Content, special: a.Special, stripLeft: a.LStrip, stripRight: a.RStrip, singleWord: a.SingleWord,
		}
		t.setText(a.ID, []byte(a.Content))
		if a.Special {
			t.special[a.ID] = true
		}
		if !a.Normalized {
			raw = append(raw, token)
			continue
		}
		for _, change := range t.normalize {
			token.text = change(token.text)
		}
		normalized = append(normalized, token)
	}
	t.raw, t.normalized = newScanner(raw), newScanner(normalized)
	return nil
}
