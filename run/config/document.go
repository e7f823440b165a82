package config

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
)

// position is a place in a file; the zero position is "nowhere".
type position struct{ line, column int }

// deepestPath is how many parts the longest path of the schema has:
// model.NAME.channel.open. What lies deeper is part of something unknown.
const deepestPath = 4

// document is a parsed file: its values, and where each key and value stands,
// as deep as the schema goes.
type document struct {
	source string
	values map[string]any
	keys   map[string]position // by dotted path
	places map[string]position // of the value, by dotted path
	// lines are the offsets at which lines start.
	lines []int
	// lists counts the tables of each list of tables, while they are located.
	lists map[string]int
}

// parseDocument reads TOML. What is no TOML, or defines a key twice, is one
// fault: past it nothing in the file can be trusted to mean what it says.
func parseDocument(source string, data []byte) (*document, []Fault) {
	// A newline is one character, on whichever system the file was written.
	data = bytes.ReplaceAll(data, []byte("\r\n"), []byte("\n"))
	d := &document{
		source: source, values: make(map[string]any),
		keys: make(map[string]position), places: make(map[string]position), lists: make(map[string]int),
	}
	if err := toml.Unmarshal(data, &d.values); err != nil {
		fault := Fault{Source: source, Reason: "not valid TOML: " + strings.TrimPrefix(err.Error(), "toml: ")}
		var decode *toml.DecodeError
		if errors.As(err, &decode) {
			fault.Line, fault.Column = decode.Position()
		}
		return nil, []Fault{fault}
	}
	d.locate(data)
	if where, reason := overLimit("", d.values, 0); reason != "" {
		place := d.at(where)
		return nil, []Fault{{Source: source, Line: place.line, Column: place.column, Reason: "not valid TOML: " + reason}}
	}
	return d, nil
}

// locate notes where every key and value stands. The values themselves come
// from the decoder; this walk only ever adds line numbers.
func (d *document) locate(data []byte) {
	d.lines = []int{0}
	for i, c := range data {
		if c == '\n' {
			d.lines = append(d.lines, i+1)
		}
	}
	var p unstable.Parser
	p.Reset(data)
	var table branch
	for p.NextExpression() {
		switch e := p.Expression(); e.Kind {
		case unstable.Table:
			table = d.locateKey(branch{}, e.Key())
		case unstable.ArrayTable:
			table = d.locateList(e.Key())
		case unstable.KeyValue:
			d.locateKeyValue(table, e)
		}
	}
}

// branch is a dotted path and how many parts it has. One that is deeper than
// the schema has lost its path, and is not followed.
type branch struct {
	path  string
	parts int
}

func (b branch) lost() bool { return b.parts > deepestPath }

// locateList notes the place of another table of a list, and returns its path.
func (d *document) locateList(key unstable.Iterator) branch {
	var place position
	for parts := key; parts.Next(); {
		place = d.startOf(parts.Node())
	}
	list := d.locateKey(branch{}, key)
	if list.lost() {
		return list
	}
	n := d.lists[list.path]
	d.lists[list.path]++
	list.path = fmt.Sprintf("%s[%d]", list.path, n)
	d.keys[list.path] = place
	return list
}

func (d *document) locateKeyValue(table branch, e *unstable.Node) {
	at := d.locateKey(table, e.Key())
	if at.lost() {
		return
	}
	value := e.Value()
	d.places[at.path] = d.keys[at.path]
	if value.Raw.Length > 0 {
		d.places[at.path] = d.startOf(value)
	}
	index := 0
	for children := value.Children(); children.Next(); {
		child := children.Node()
		switch {
		case value.Kind == unstable.InlineTable && child.Kind == unstable.KeyValue:
			d.locateKeyValue(at, child)
		case value.Kind == unstable.Array && child.Kind != unstable.Comment:
			if child.Raw.Length > 0 {
				d.places[fmt.Sprintf("%s[%d]", at.path, index)] = d.startOf(child)
			}
			index++
		}
	}
}

// locateKey notes the place of each part of a key the first time it is seen,
// and returns what it leads to. A part that is a list of tables means its last.
func (d *document) locateKey(at branch, key unstable.Iterator) branch {
	for key.Next() {
		if at.parts++; at.lost() {
			return at
		}
		if n := d.lists[at.path]; n > 0 {
			at.path = fmt.Sprintf("%s[%d]", at.path, n-1)
		}
		at.path = joinKey(at.path, string(key.Node().Data))
		if d.keys[at.path] == (position{}) {
			d.keys[at.path] = d.startOf(key.Node())
		}
	}
	return at
}

// joinKey leaves the end of an far too long key out: paths that repeat it
// would fill the memory before it is refused.
func joinKey(path, key string) string {
	key = quoteKey(key[:min(len(key), maxKeyBytes)])
	if path == "" {
		return key
	}
	return path + "." + key
}

func (d *document) startOf(n *unstable.Node) position {
	offset := int(n.Raw.Offset)
	line, starts := slices.BinarySearch(d.lines, offset)
	if !starts {
		line--
	}
	return position{line + 1, offset - d.lines[line] + 1}
}

// key returns where the last part of path stands, or what it is in.
func (d *document) key(path string) position {
	if place, known := d.keys[path]; known {
		return place
	}
	return d.at(path)
}

// at returns where the value of path stands, or its key where it has none.
func (d *document) at(path string) position {
	if place, known := d.places[path]; known {
		return place
	}
	if place, known := d.keys[path]; known {
		return place
	}
	if i := strings.LastIndexAny(path, ".["); i > 0 {
		return d.at(path[:i])
	}
	return position{}
}
