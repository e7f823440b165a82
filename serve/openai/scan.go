package openai

import (
	"encoding/json"
	"iter"
)

// The scanner finds members of objects and elements of lists in JSON that is
// known or hoped to be valid, without decoding what it passes. In JSON that is
// not valid it finds something or nothing, and never leaves the bytes.

// scanMembers finds the members of the object that data starts with.
func scanMembers(data []byte) iter.Seq[member] {
	return func(yield func(member) bool) {
		i := skipSpace(data, 0)
		if i >= len(data) || data[i] != '{' {
			return
		}
		for i = skipSpace(data, i+1); i < len(data) && data[i] == '"'; i = skipSpace(data, i+1) {
			m := member{start: i}
			nameEnd := skipValue(data, i)
			m.name = memberName(data[i:nameEnd])
			i = skipSpace(data, nameEnd)
			if i >= len(data) || data[i] != ':' {
				return
			}
			m.value = skipSpace(data, i+1)
			m.end = skipValue(data, m.value)
			if !yield(m) {
				return
			}
			i = skipSpace(data, m.end)
			if i >= len(data) || data[i] != ',' {
				return
			}
		}
	}
}

func appendMembers(members []member, data []byte) []member {
	for m := range scanMembers(data) {
		members = append(members, m)
	}
	return members
}

// Members are the names and raw values of a JSON object's members, found one by
// one: nothing is kept of an object that has many.
func Members(object []byte) iter.Seq2[string, []byte] {
	return func(yield func(string, []byte) bool) {
		for m := range scanMembers(object) {
			if !yield(string(m.name), object[m.value:m.end]) {
				return
			}
		}
	}
}

// MembersAnywhere are the names of all members at every depth, each with what
// follows from its value on. It passes over data once, however deep it is.
func MembersAnywhere(data []byte) iter.Seq2[string, []byte] {
	return func(yield func(string, []byte) bool) {
		for i := 0; i < len(data); i++ {
			if data[i] != '"' {
				continue
			}
			end := skipText(data, i)
			at := skipSpace(data, end)
			if at < len(data) && data[at] == ':' && !yield(string(memberName(data[i:end])), data[skipSpace(data, at+1):]) {
				return
			}
			i = end - 1
		}
	}
}

// span is a stretch of bytes.
type span struct{ start, end int }

// scanElements finds the elements of the list that data starts with.
func scanElements(data []byte) iter.Seq[span] {
	return func(yield func(span) bool) {
		i := skipSpace(data, 0)
		if i >= len(data) || data[i] != '[' {
			return
		}
		for i = skipSpace(data, i+1); i < len(data) && data[i] != ']'; i = skipSpace(data, i+1) {
			end := skipValue(data, i)
			if !yield(span{i, end}) {
				return
			}
			i = skipSpace(data, end)
			if i >= len(data) || data[i] != ',' {
				return
			}
		}
	}
}

func appendElements(elements []span, data []byte) []span {
	for e := range scanElements(data) {
		elements = append(elements, e)
	}
	return elements
}

// Elements are the elements of a JSON list, raw, found one by one.
func Elements(list []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for e := range scanElements(list) {
			if !yield(list[e.start:e.end]) {
				return
			}
		}
	}
}

func memberName(quoted []byte) []byte {
	if len(quoted) < 2 {
		return nil
	}
	inner := quoted[1 : len(quoted)-1]
	for _, c := range inner {
		if c == '\\' || c >= 0x80 {
			var name string
			_ = json.Unmarshal(quoted, &name) // what is no text has no name
			return []byte(name)
		}
	}
	return inner
}

func skipSpace(data []byte, i int) int {
	for i < len(data) && (data[i] == ' ' || data[i] == '\n' || data[i] == '\t' || data[i] == '\r') {
		i++
	}
	return i
}

// skipValue returns where the value that starts at i ends.
func skipValue(data []byte, i int) int {
	depth := 0
	for i < len(data) {
		switch data[i] {
		case '"':
			i = skipText(data, i)
			if depth == 0 {
				return i
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			depth--
			if depth < 0 {
				return i
			}
			if depth == 0 {
				return i + 1
			}
		case ',', ' ', '\n', '\t', '\r':
			if depth == 0 {
				return i
			}
		}
		i++
	}
	return i
}

// skipText returns where the text whose quote stands at i ends.
func skipText(data []byte, i int) int {
	for i++; i < len(data); i++ {
		switch data[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(data)
}
