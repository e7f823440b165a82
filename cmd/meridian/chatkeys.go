package main

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	keyEscape = 0x1b

	pasteBegins = "\x1b[200~"
	pasteEnds   = "\x1b[201~"

	// longestSequence bounds what is waited for after an Escape; no key of any
	// terminal sends more.
	longestSequence = 16
)

// What has no place on a line is shown on it by its symbol, and is itself again in
// the message: a pasted text is one message, however many lines it has.
var (
	symbols     = map[rune]string{'\n': "␤", '\t': "␉"}
	fromSymbols = strings.NewReplacer("␤", "\n", "␉", "\t")
)

// sequences are the keys for which a line editor listens, and what the one of
// golang.org/x/term takes for them. All other sequences are dropped: it would wait
// for a letter after an Escape, and take what is typed next for the end of a key.
var sequences = map[string]string{
	"\x1b[A": "\x1b[A", "\x1b[B": "\x1b[B", "\x1b[C": "\x1b[C", "\x1b[D": "\x1b[D", // arrows
	"\x1bOA": "\x1b[A", "\x1bOB": "\x1b[B", "\x1bOC": "\x1b[C", "\x1bOD": "\x1b[D",
	"\x1b[H": "\x01", "\x1bOH": "\x01", "\x1b[1~": "\x01", "\x1b[7~": "\x01", // Home
	"\x1b[F": "\x05", "\x1bOF": "\x05", "\x1b[4~": "\x05", "\x1b[8~": "\x05", // End
	"\x1b[3~":   "\x1b[3~",                                                   // Delete
	"\x1b[1;3C": "\x1b[1;3C", "\x1b[1;5C": "\x1b[1;3C", "\x1bf": "\x1b[1;3C", // a word to the right
	"\x1b[1;3D": "\x1b[1;3D", "\x1b[1;5D": "\x1b[1;3D", "\x1bb": "\x1b[1;3D", // and to the left
	"\x1b\x7f": "\x17", // Alt-Backspace
}

// keyReader is between a terminal and the line editor: it hands over only what the
// editor understands, makes one line of a paste, and has Ctrl-C empty the line,
// where the editor would end.
type keyReader struct {
	from io.Reader

	raw     []byte // typed, not yet understood
	keys    []byte // for the editor
	pasting bool
	pasted  int  // bytes since the line began
	tooLong bool // what was pasted since the line began is more than longestMessage; the rest of it is dropped
	cr      bool // the last of a paste was a carriage return: a line feed after it is the same end of a line
}

// lineBegins forgets what was pasted into the line before.
func (k *keyReader) lineBegins() { k.pasted, k.tooLong = 0, false }

func (k *keyReader) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, errors.New("the line editor waits for the end of a key that has none")
	}
	for len(k.keys) == 0 {
		var typed [256]byte
		n, err := k.from.Read(typed[:])
		k.raw = append(k.raw, typed[:n]...)
		k.translate()
		if err != nil && len(k.keys) == 0 {
			return 0, err
		}
	}
	n := copy(p, k.keys)
	k.keys = k.keys[n:]
	return n, nil
}

// translate understands as much as has been typed in full.
func (k *keyReader) translate() {
	for len(k.raw) > 0 {
		n := 0
		switch {
		case k.pasting:
			n = k.paste()
		case k.raw[0] == keyEscape:
			n = k.escape()
		default:
			n = k.plain()
		}
		if n == 0 {
			return // the rest of it is yet to come
		}
		k.raw = k.raw[n:]
	}
	k.raw = nil
}

// plain is a key that is no sequence.
func (k *keyReader) plain() int {
	const endOfLine, eraseToBegin = 0x05, 0x15
	if !utf8.FullRune(k.raw) {
		return 0
	}
	r, n := utf8.DecodeRune(k.raw)
	switch r {
	case 0x03: // Ctrl-C
		k.keys = append(k.keys, endOfLine, eraseToBegin)
	case utf8.RuneError: // the editor would wait for its end
		k.keys = append(k.keys, '?')
	default:
		k.keys = append(k.keys, k.raw[:n]...)
	}
	return n
}

// escape is a key that is a sequence, or Escape alone, which does nothing.
func (k *keyReader) escape() int {
	if len(k.raw) == 1 {
		return 0
	}
	end := 2
	switch second := k.raw[1]; {
	case second == '[' || second == 'O':
		for end < len(k.raw) && end <= longestSequence && k.raw[end] >= ' ' && k.raw[end] < '@' {
			end++
		}
		if end > longestSequence {
			return end
		}
		if end == len(k.raw) {
			return 0
		}
		if k.raw[end] < ' ' || k.raw[end] > '~' {
			return end // a sequence that was broken off; the key after it counts
		}
		end++
	case second < ' ' || second >= utf8.RuneSelf:
		return 1
	}
	sequence := string(k.raw[:end])
	if sequence == pasteBegins {
		k.pasting = true
		k.keys = append(k.keys, sequence...)
	}
	k.keys = append(k.keys, sequences[sequence]...)
	return end
}

// paste is a character of what is pasted: it is text, whatever key it would be.
func (k *keyReader) paste() int {
	if bytes.HasPrefix(k.raw, []byte(pasteEnds)) {
		k.pasting, k.cr = false, false
		k.keys = append(k.keys, pasteEnds...)
		return len(pasteEnds)
	}
	if strings.HasPrefix(pasteEnds, string(k.raw)) || !utf8.FullRune(k.raw) {
		return 0
	}
	r, n := utf8.DecodeRune(k.raw)
	afterReturn := k.cr
	if k.cr = r == '\r'; k.cr {
		r = '\n'
	} else if r == '\n' && afterReturn {
		return n
	}
	text := string(r)
	switch symbol, has := symbols[r]; {
	case has:
		text = symbol
	case unicode.IsControl(r): // it would drive the terminal
		text = ""
	case r == utf8.RuneError:
		text = "?"
	}
	if k.pasted += len(text); k.pasted > longestMessage {
		k.tooLong = true
		return n
	}
	k.keys = append(k.keys, text...)
	return n
}
