package openai

import (
	"encoding/json"
	"iter"
)

// The scanner finds members of objects and elements of lists in JSON that is
// known or hoped to be valid, without decoding what it passes. In JSON that is
// not valid it finds something or nothing, and never leaves the bytes.

// appendMembers appends the members of the object that data starts with.
func appendMembers(members []member, data []byte) []member {
	i := skipSpace(data, 0)
	if i >= len(data) || data[i] != '{' {
		return members
	}
	for i = skipSpace(data, i+1); i < len(data) && data[i] == '"'; i = skipSpace(data, i+1) {
		m := member{start: i}
		nameEnd := skipValue(data, i)
		m.name = memberName(data[i:nameEnd])
		i = skipSpace(data, nameEnd)
		if i >= len(data) || data[i] != ':' {
			return members
		}
		m.value = skipSpace(data, i+1)
		m.end = skipValue(data, m.value)
		members = append(members, m)
		i = skipSpace(data, m.end)
		if i >= len(data) || data[i] != ',' {
			return members
		}
	}
	return members
}

// span is a stretch of bytes.
type span struct{ start, end int }

// appendElements appends the elements of the list that data starts with.
func appendElements(elements []span, data []byte) []span {
	i := skipSpace(data, 0)
	if i >= len(data) || data[i] != '[' {
		return elements
	}
	for i = skipSpace(data, i+1); i < len(data) && data[i] != ']'; i = skipSpace(data, i+1) {
		end := skipValue(data, i)
		elements = append(elements, span{i, end})
		i = skipSpace(data, end)
		if i >= len(data) || data[i] != ',' {
			return elements
		}
	}
	return elements
}

// Elements are the elements of a JSON list, raw.
func Elements(list []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for _, e := range appendElements(nil, list) {
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
