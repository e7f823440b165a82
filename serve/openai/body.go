package openai

import (
	"bytes"
	"encoding/json"
	"fmt"
	"iter"
	"strings"
	"unicode"
)

// Body is the raw JSON of an object of which single members are read, replaced
// or left out. Everything else stays byte for byte: who passes a request on
// must not lose what it does not know.
type Body struct {
	raw     []byte
	members []member
}

// member is one "name": value of an object, by its place in the raw bytes.
type member struct {
	name       []byte
	start, end int // of the whole member, without commas
	value      int // where the value starts; it ends with the member
}

// MaxMembers is how many members a client's body may have. Engines know some
// hundred; whatever looks for one of them looks at this many at most.
const MaxMembers = 512

// ParseBody reads an object that a client sent. It keeps data. Names that come
// twice, or in two spellings that differ only in case, are refused: engines
// disagree about which one counts, and so could be made to see what the gateway
// did not.
func ParseBody(data []byte) (*Body, *Error) {
	b := &Body{raw: data}
	if !json.Valid(data) {
		return nil, Invalid("", "the body is not valid JSON: %s", syntaxProblem(data))
	}
	trimmed := bytes.TrimLeft(data, " \t\r\n")
	if trimmed[0] != '{' {
		return nil, Invalid("", "the body must be a JSON object")
	}
	seen := make(map[string]bool)
	for m := range scanMembers(data) {
		if len(b.members) == MaxMembers {
			return nil, Invalid("", "the body has more than %d members; leave out what no engine knows", MaxMembers)
		}
		b.members = append(b.members, m)
		name := folded(m.name)
		if seen[name] {
			return nil, Invalid(fmt.Sprintf("%.64s", m.name), "%.64q stands in the body twice", m.name)
		}
		seen[name] = true
	}
	return b, nil
}

// folded is one spelling for all names that strings.EqualFold takes for equal.
func folded(name []byte) string {
	return strings.Map(func(r rune) rune {
		least := r
		for other := unicode.SimpleFold(r); other != r; other = unicode.SimpleFold(other) {
			least = min(least, other)
		}
		return least
	}, string(name))
}

// ViewBody is ParseBody for what an engine sent: nothing is checked but that
// it looks like an object.
func ViewBody(data []byte) (Body, bool) {
	trimmed := bytes.TrimSpace(data)
	if len(trimmed) < 2 || trimmed[0] != '{' || trimmed[len(trimmed)-1] != '}' {
		return Body{}, false
	}
	return Body{raw: data, members: appendMembers(nil, data)}, true
}

func syntaxProblem(data []byte) error {
	var any json.RawMessage
	return json.Unmarshal(data, &any)
}

// Get returns the value of a member as it stands there, or nil.
func (b *Body) Get(name string) json.RawMessage {
	for i := range b.members {
		if m := &b.members[i]; string(m.name) == name {
			return json.RawMessage(b.raw[m.value:m.end])
		}
	}
	return nil
}

// Has is true where there is a member of that name, in any case, that is not
// null.
func (b *Body) Has(name string) bool {
	for i := range b.members {
		if m := &b.members[i]; strings.EqualFold(string(m.name), name) && string(b.raw[m.value:m.end]) != "null" {
			return true
		}
	}
	return false
}

// Read decodes a member into v, which stays as it is where there is none.
func (b *Body) Read(name string, v any) *Error {
	raw := b.Get(name)
	if raw == nil {
		return nil
	}
	if err := json.Unmarshal(raw, v); err != nil {
		return Mistyped(name, err)
	}
	return nil
}

// Conversation is a chat as one text that grows at its end from turn to turn: tools
// first, as templates have it, then roles and contents.
func (b *Body) Conversation() []byte {
	messages := b.Get("messages")
	text := append(make([]byte, 0, len(messages)+64), b.Get("tools")...)
	for data := range Elements(messages) {
		var role, content, calls []byte
		for name, value := range Members(data) { // of which the last of a name counts, as for engines
			switch name {
			case "role":
				role = value
			case "content":
				content = value
			case "tool_calls":
				calls = value
			}
		}
		text = append(append(append(text, 0), role...), 0)
		text = append(append(text, content...), calls...)
	}
	return text
}

// Edit says what becomes of one member: its new value, or with nil none.
type Edit struct {
	Name  string
	Value json.RawMessage
}

// With returns the object with edits made; members that are new come last.
// The body itself does not change.
func (b *Body) With(edits ...Edit) []byte {
	if len(edits) == 0 {
		return b.raw
	}
	size := len(b.raw) + 2
	for _, e := range edits {
		size += len(e.Name) + len(e.Value) + 4
	}
	return appendEdited(make([]byte, 0, size), b.raw, b.members, edits)
}

// appendEdited appends an object of which members are known, with edits made.
func appendEdited(to, raw []byte, members []member, edits []Edit) []byte {
	to = append(to, '{')
	empty := true
	begin := func(text []byte) {
		if !empty {
			to = append(to, ',')
		}
		to, empty = append(to, text...), false
	}
	for _, m := range members {
		edit := findEdit(edits, m.name)
		switch {
		case edit == nil:
			begin(raw[m.start:m.end])
		case edit.Value != nil:
			begin(raw[m.start:m.value])
			to = append(to, edit.Value...)
		}
	}
	for _, e := range edits {
		if e.Value != nil && !hasMember(members, e.Name) {
			begin(nil)
			to = append(append(append(to, '"'), e.Name...), `":`...)
			to = append(to, e.Value...)
		}
	}
	return append(to, '}')
}

func findEdit(edits []Edit, name []byte) *Edit {
	for i := range edits {
		if edits[i].Name == string(name) {
			return &edits[i]
		}
	}
	return nil
}

func hasMember(members []member, name string) bool {
	for i := range members {
		if string(members[i].name) == name {
			return true
		}
	}
	return false
}

// Members are the names and raw values of all members.
func (b *Body) Members() iter.Seq2[string, json.RawMessage] {
	return func(yield func(string, json.RawMessage) bool) {
		for i := range b.members {
			if m := &b.members[i]; !yield(string(m.name), json.RawMessage(b.raw[m.value:m.end])) {
				return
			}
		}
	}
}

// IsTrue: a raw member says true.
func IsTrue(raw json.RawMessage) bool { return string(raw) == "true" }

// Quote is a text as JSON has it; &, < and > stay as they are.
func Quote(text string) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(text); err != nil {
		panic(err) // a text
	}
	return bytes.TrimRight(b.Bytes(), "\n")
}
