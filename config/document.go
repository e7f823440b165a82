package config

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
)

// position is a place in a file; the zero position is "nowhere".
type position struct{ line, column int }

// document is a parsed file: its values, and where each key and value stands.
type document struct {
	source string
	values map[string]any
	keys   map[string]position // by dotted path
	places map[string]position // of the value, by dotted path
	// lists counts the tables of each list of tables, while they are located.
	lists map[string]int
}

// parseDocument reads TOML. What is no TOML, or defines a key twice, is one
// fault: past it nothing in the file can be trusted to mean what it says.
func parseDocument(source string, data []byte) (*document, []Fault) {
	// A newline is one character, whoever wrote the file.
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
	return d, nil
}

// locate notes where every key and value stands. The values themselves come
// from the decoder; this walk only ever adds line numbers.
func (d *document) locate(data []byte) {
	var p unstable.Parser
	p.Reset(data)
	table := ""
	for p.NextExpression() {
		switch e := p.Expression(); e.Kind {
		case unstable.Table:
			table = d.locateKey(&p, "", e.Key())
		case unstable.ArrayTable:
			table = d.locateList(&p, e.Key())
		case unstable.KeyValue:
			d.locateKeyValue(&p, table, e)
		}
	}
}

// locateList notes the place of another table of a list, and returns its path.
func (d *document) locateList(p *unstable.Parser, key unstable.Iterator) string {
	var place position
	for parts := key; parts.Next(); {
		place = startOf(p, parts.Node())
	}
	list := d.locateKey(p, "", key)
	path := fmt.Sprintf("%s[%d]", list, d.lists[list])
	d.lists[list]++
	d.keys[path] = place
	return path
}

func (d *document) locateKeyValue(p *unstable.Parser, table string, e *unstable.Node) {
	path := d.locateKey(p, table, e.Key())
	value := e.Value()
	d.places[path] = d.keys[path]
	if value.Raw.Length > 0 {
		d.places[path] = startOf(p, value)
	}
	index := 0
	for children := value.Children(); children.Next(); {
		child := children.Node()
		switch {
		case value.Kind == unstable.InlineTable && child.Kind == unstable.KeyValue:
			d.locateKeyValue(p, path, child)
		case value.Kind == unstable.Array && child.Kind != unstable.Comment:
			if child.Raw.Length > 0 {
				d.places[fmt.Sprintf("%s[%d]", path, index)] = startOf(p, child)
			}
			index++
		}
	}
}

// locateKey notes the place of each part of a key the first time it is seen,
// and returns the dotted path. A part that is a list of tables means its last.
func (d *document) locateKey(p *unstable.Parser, path string, key unstable.Iterator) string {
	for key.Next() {
		if n := d.lists[path]; n > 0 {
			path = fmt.Sprintf("%s[%d]", path, n-1)
		}
		part := quoteKey(string(key.Node().Data))
		if path == "" {
			path = part
		} else {
			path += "." + part
		}
		if d.keys[path] == (position{}) {
			d.keys[path] = startOf(p, key.Node())
		}
	}
	return path
}

func startOf(p *unstable.Parser, n *unstable.Node) position {
	start := p.Shape(n.Raw).Start
	return position{start.Line, start.Column}
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
