package config

import (
	"encoding/json"
	"fmt"
	"strings"
)

// Explain tells about a field ("scheduler.max_think_tokens"), a section
// ("scheduler") or a field of a named section ("model.qwen3.source" or
// "model.source"). With a configuration it also tells the value in force.
func Explain(path string, l *Loaded) (string, error) {
	sectionName, rest, _ := strings.Cut(path, ".")
	s, known := findSection(sectionName)
	if !known {
		return "", unknownName(path, "section", nearest(sectionName, sectionNames()))
	}
	if rest == "" {
		return explainSection(s), nil
	}
	name := rest
	if _, direct := s.field(name); s.Named && !direct {
		_, name, _ = strings.Cut(rest, ".")
		if name == "" && len(strings.Split(rest, ".")) == 1 && l != nil && l.hasModel(rest) {
			return explainSection(s), nil
		}
	}
	f, known := s.field(name)
	if !known {
		hint := nearest(name, s.fieldNames())
		if hint != "" {
			hint = s.Name + "." + hint
		}
		return "", unknownName(path, "field", hint)
	}
	return explainField(s, f, path, l), nil
}

func (l *Loaded) hasModel(name string) bool { _, known := l.Model[name]; return known }

func unknownName(path, noun, nearest string) error {
	f := Fault{Source: "config explain", Path: path, Reason: "unknown " + noun, Nearest: nearest}
	return &Error{Faults: []Fault{f}}
}

func explainSection(s Section) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", s.header())
	for _, line := range wrap(s.Doc, commentWidth-2) {
		fmt.Fprintf(&b, "  %s\n", line)
	}
	b.WriteString("\n")
	for _, f := range s.Fields {
		fmt.Fprintf(&b, "  %-30s %s\n", f.Name, literal(f.Default))
	}
	return b.String()
}

func explainField(s Section, f Field, path string, l *Loaded) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", path)
	for _, text := range []string{f.Doc, f.Tune} {
		if text == "" {
			continue
		}
		for _, line := range wrap(text, commentWidth-2) {
			fmt.Fprintf(&b, "  %s\n", line)
		}
	}
	b.WriteString("\n")
	row := func(name, text string) {
		if text != "" {
			fmt.Fprintf(&b, "  %-12s %s\n", name, text)
		}
	}
	row("type", f.Kind.String())
	if len(f.Choices) > 0 {
		row("one of", f.choiceList())
	}
	row("unit", f.Unit)
	row("range", f.Range.String())
	row("rule", f.Rule)
	row("default", literal(f.Default))
	row("environment", s.EnvName(f.Name))
	if l != nil {
		if set, given := l.settings[path]; given {
			row("in force", fmt.Sprintf("%s (%s)", literal(set.value), l.where(set.origin)))
		}
	}
	return b.String()
}

// where names a layer as a person would look for it.
func (l *Loaded) where(origin Origin) string {
	if origin == FromFile {
		return l.File
	}
	return string(origin)
}

// TOML writes the configuration: what was set, or with all every field in
// force, each with the layer it came from.
func (l *Loaded) TOML(all bool) string {
	var b strings.Builder
	for _, s := range Schema() {
		prefixes := []string{s.Name}
		if s.Named {
			prefixes = l.models
		}
		for _, prefix := range prefixes {
			var lines []string
			for _, f := range s.Fields {
				set, given := l.settings[prefix+"."+f.Name]
				if given && (all || set.origin != Default) {
					lines = append(lines, fmt.Sprintf("%-48s # %s", f.Name+" = "+literal(set.value), l.where(set.origin)))
				}
			}
			if len(lines) > 0 || s.Named {
				fmt.Fprintf(&b, "[%s]\n%s\n", prefix, strings.Join(append(lines, ""), "\n"))
			}
		}
	}
	return b.String()
}

// JSON writes the configuration as nested objects; all is as for TOML.
func (l *Loaded) JSON(all bool) ([]byte, error) {
	tree := make(map[string]any)
	for _, s := range Schema() {
		prefixes := []string{s.Name}
		if s.Named {
			prefixes = l.models
		}
		for _, prefix := range prefixes {
			for _, f := range s.Fields {
				set, given := l.settings[prefix+"."+f.Name]
				if given && (all || set.origin != Default) {
					keys := []string{s.Name}
					if s.Named {
						keys = append(keys, unquoteKey(strings.TrimPrefix(prefix, s.Name+".")))
					}
					insert(tree, append(keys, strings.Split(f.Name, ".")...), set.value)
				}
			}
		}
	}
	return json.MarshalIndent(tree, "", "  ")
}

func insert(tree map[string]any, keys []string, value any) {
	for _, k := range keys[:len(keys)-1] {
		inner, ok := tree[k].(map[string]any)
		if !ok {
			inner = make(map[string]any)
			tree[k] = inner
		}
		tree = inner
	}
	tree[keys[len(keys)-1]] = value
}
