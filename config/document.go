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
}

// parseDocument reads TOML. What is no TOML, or defines a key twice, is one
// fault: past it nothing in the file can be trusted to mean what it says.
func parseDocument(source string, data []byte) (*document, []Fault) {
	// A newline is one character, whoever wrote the file.
	data = bytes.ReplaceAll(data, []byte("\r\n"), []byte("\n"))
	d := &document{
		source: source, values: make(map[string]any),
		keys: make(map[string]position), places: make(map[string]position),
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
	var table []string
	for p.NextExpression() {
		switch e := p.Expression(); e.Kind {
		case unstable.Table, unstable.ArrayTable:
			table = d.locateKey(&p, nil, e.Key())
		case unstable.KeyValue:
			d.locateKeyValue(&p, table, e)
		}
	}
}

func (d *document) locateKeyValue(p *unstable.Parser, table []string, e *unstable.Node) {
	path := d.locateKey(p, table, e.Key())
	value := e.Value()
	dotted := dottedPath(path)
	d.places[dotted] = d.keys[dotted]
	if value.Raw.Length > 0 {
		d.places[dotted] = startOf(p, value)
	}
	index := 0
	for children := value.Children(); children.Next(); {
		child := children.Node()
		switch {
		case value.Kind == unstable.InlineTable && child.Kind == unstable.KeyValue:
			d.locateKeyValue(p, path, child)
		case value.Kind == unstable.Array && child.Kind != unstable.Comment:
			if child.Raw.Length > 0 {
				d.places[fmt.Sprintf("%s[%d]", dotted, index)] = startOf(p, child)
			}
			index++
		}
	}
}

// locateKey notes the place of each part of a key the first time it is seen.
func (d *document) locateKey(p *unstable.Parser, prefix []string, key unstable.Iterator) []string {
	path := append([]string(nil), prefix...)
	for key.Next() {
		path = append(path, string(key.Node().Data))
		if dotted := dottedPath(path); d.keys[dotted] == (position{}) {
			d.keys[dotted] = startOf(p, key.Node())
		}
	}
	return path
}

func startOf(p *unstable.Parser, n *unstable.Node) position {
	start := p.Shape(n.Raw).Start
	return position{start.Line, start.Column}
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
