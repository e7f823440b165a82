package upstream

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"iter"
	"strings"
	"unicode"

	"meridian/internal/clip"
	"meridian/serve/openai"
)

// secrets are what the gateway itself put into a request to an engine: tickets,
// legs, tokens of answers. Engines quote requests in their complaints, and the
// gateway passes on no complaint that has a part of them in it, in whatever form
// the engine quotes.
type secrets struct {
	names []string // of members that the client did not send
	texts []string // letters and digits of values
}

// partBytes is how many letters and digits of a secret make a part that gives it
// away. Shorter ones are words and numbers that everybody uses.
const partBytes = 12

// ourMembers are names that mean nothing to a client that did not send them.
var ourMembers = []string{"kv_transfer_params", "return_token_ids", "resume_token_ids"}

// secretsOf finds out what of a request's body is not as the client sent it. client
// is nil where the body is all the client's own.
func secretsOf(sent []byte, client *openai.Body, authorization string) *secrets {
	s := &secrets{}
	s.hide(strings.TrimPrefix(authorization, "Bearer "))
	body, isObject := openai.ViewBody(sent)
	if client == nil || !isObject {
		return s
	}
	for name, value := range body.Members() {
		if string(client.Get(name)) != string(value) {
			s.hide(string(value))
			s.hideDecoded(string(value))
		}
	}
	for _, name := range ourMembers {
		if !client.Has(name) {
			s.names = append(s.names, name)
		}
	}
	return s
}

// hide takes in a text of which no part may be told.
func (s *secrets) hide(text string) {
	if text = lettersAndDigits(text); len(text) >= partBytes {
		s.texts = append(s.texts, text)
	}
}

// hideDecoded takes in what the strings of a JSON value are in base64, as programs
// print bytes: in hex, and as a literal of Python.
func (s *secrets) hideDecoded(value string) {
	for text := range strings.SplitSeq(value, `"`) {
		plain, err := base64.StdEncoding.DecodeString(strings.ReplaceAll(text, `\/`, "/"))
		if err != nil || len(plain) < partBytes {
			continue
		}
		s.hide(hex.EncodeToString(plain))
		var literal strings.Builder
		for _, b := range plain {
			if b >= ' ' && b <= '~' {
				literal.WriteByte(b)
			} else {
				fmt.Fprintf(&literal, `\x%02x`, b)
			}
		}
		s.hide(literal.String())
	}
}

// toldBy tells whether a text gives something away.
func (s *secrets) toldBy(text string) bool {
	if strings.Contains(text, "meridian_") {
		return true
	}
	for _, name := range s.names {
		if strings.Contains(text, name) {
			return true
		}
	}
	parts := make(map[string]bool) // of the text, which is short beside what is hidden
	for part := range partsOf(lettersAndDigits(text)) {
		parts[part] = true
	}
	for _, hidden := range s.texts {
		for part := range partsOf(hidden) {
			if parts[part] {
				return true
			}
		}
	}
	return false
}

func partsOf(text string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for i := 0; i+partBytes <= len(text) && yield(text[i:i+partBytes]); i++ {
		}
	}
}

// lettersAndDigits is a text without what quoting and escaping adds to it.
func lettersAndDigits(text string) string {
	return strings.Map(func(r rune) rune {
		if r < unicode.MaxASCII && (unicode.IsLetter(r) || unicode.IsDigit(r)) {
			return r
		}
		return -1
	}, text)
}

// MaxSaid is how much of an engine's words a client is told, in bytes.
const MaxSaid = 1 << 10

// said is an engine's text as a client may see it, "" where it may not.
func (s *secrets) said(text string) string {
	if s.toldBy(text) {
		return ""
	}
	return clip.Plain(text, MaxSaid)
}

// word is a text of an engine that programs compare, as a code or a type; nil where
// it is more than that.
func (s *secrets) word(text *string) *string {
	if text == nil || len(*text) > 64 || s.toldBy(*text) || strings.ContainsFunc(*text, func(r rune) bool {
		return r > unicode.MaxASCII || !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("_-.", r)
	}) {
		return nil
	}
	return text
}

// Complaint is an error that an engine answered with, as the client may see it and
// as records may keep it: an engine quotes prompts, too, so a record has no word of
// the engine's but its code.
func (c *Call) Complaint(status int, body []byte) *openai.Error {
	s := secretsOf(c.sent, c.client, c.Engine.Authorization)
	fault := openai.ParseError(status, body)
	kind := s.word(&fault.Type)
	fault.Code, fault.Record = s.word(fault.Code), fmt.Sprintf("engine %s answered with status %d", c.Engine.Name(), status)
	if fault.Code != nil {
		fault.Record += ", code " + *fault.Code
	}
	if fault.Param != nil && (len(*fault.Param) > 255 || s.toldBy(*fault.Param)) {
		fault.Param = nil
	}
	switch {
	case kind != nil && *kind != "":
	case status >= 500:
		fault.Type = openai.TypeServer
	default:
		fault.Type = openai.TypeInvalid
	}
	if fault.Message = s.said(fault.Message); fault.Message == "" {
		fault.Message = fmt.Sprintf("the engine refused the request with status %d; its words quote what is not the client's", status)
	}
	return fault
}
