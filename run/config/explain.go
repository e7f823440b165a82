package config

import (
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
)

// Explain tells about a section ("scheduler"), a field
// ("scheduler.max_think_tokens") or a table of fields ("model.channel"). In a
// named section a name may stand before the field, as in "model.qwen3.source".
// It also tells the value in force in l, which is nil where none could be
// loaded.
func Explain(path string, l *Loaded) (string, error) {
	sectionName, name, _ := strings.Cut(path, ".")
	s, known := findSection(sectionName)
	if !known {
		meant := cmp.Or(strings.Join(withSection(path), " or "), nearest(sectionName, sectionNames()))
		return "", unknownName(path, "section", meant)
	}
	if listed, field, isListed := findListed(path); isListed {
		s, name = listed, field
	}
	if s.Named {
		name = withoutName(s, name, l)
	}
	if f, known := s.field(name); known {
		return explainField(s, f, path, l), nil
	}
	if name == "" || s.hasSubtable(name) {
		return explainTable(s, name), nil
	}
	meant := nearest(name, s.fieldNames())
	if meant != "" {
		meant = s.Name + "." + meant
	}
	return "", unknownName(path, "field", meant)
}

// withSection returns the full names of the fields called name.
func withSection(name string) []string {
	var paths []string
	for _, s := range Schema() {
		if _, known := s.field(name); known {
			paths = append(paths, s.Name+"."+name)
		}
	}
	return paths
}

// withoutName takes the name of a table off a path within a named section. Any
// name will do, unless it looks like a mistyped field.
func withoutName(s Section, path string, l *Loaded) string {
	if _, isField := s.field(path); isField || s.hasSubtable(path) {
		return path
	}
	if l != nil {
		for _, table := range l.tables[s.Name] {
			if rest, found := strings.CutPrefix(s.Name+"."+path+".", table+"."); found {
				return strings.TrimSuffix(rest, ".")
			}
		}
	}
	first, rest, _ := strings.Cut(path, ".")
	if s.hasSubtable(first) || rest == "" && nearest(first, s.fieldNames()) != "" {
		return path
	}
	return rest
}

var listedPath = regexp.MustCompile(`^([a-z_]+\.[a-z_]+)(?:\[\d+\])?(?:\.(.*))?$`)

// findListed reads a path into a listed section: [[gateway.backend]] is
// gateway.backend, its first table gateway.backend[0].
func findListed(path string) (s Section, field string, found bool) {
	match := listedPath.FindStringSubmatch(path)
	if match == nil || !isListed(match[1]) {
		return Section{}, "", false
	}
	s, _ = findSection(match[1])
	return s, match[2], true
}

func unknownName(path, noun, nearest string) error {
	f := Fault{Source: "config explain", Path: path, Reason: "unknown " + noun, Nearest: nearest}
	return &Error{Faults: []Fault{f}}
}

// explainTable lists the fields of a section, or of one table within it.
func explainTable(s Section, table string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", s.header())
	for _, line := range wrap(s.Doc, commentWidth-2) {
		fmt.Fprintf(&b, "  %s\n", line)
	}
	b.WriteString("\n")
	for _, f := range s.Fields {
		if table == "" || strings.HasPrefix(f.Name, table+".") {
			fmt.Fprintf(&b, "  %-30s %s\n", f.Name, literal(f.Default))
		}
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
	if !s.many() || path != s.Name+"."+f.Name {
		row("in force", l.inForce(path))
	}
	return b.String()
}

// inForce tells the value of path and the layer it came from; nothing is told
// of what is not set.
func (l *Loaded) inForce(path string) string {
	if l == nil {
		return "unknown: the configuration cannot be used; `meridian config check` says why"
	}
	set, given := l.settings[path]
	if !given {
		return ""
	}
	return fmt.Sprintf("%s (%s)", literal(set.value), l.where(set.origin))
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
		for _, prefix := range l.prefixes(s) {
			var lines []string
			for _, f := range s.Fields {
				set, given := l.settings[prefix+"."+f.Name]
				if given && (all || set.origin != Default) {
					lines = append(lines, fmt.Sprintf("%-48s # %s", f.Name+" = "+literal(set.value), l.where(set.origin)))
				}
			}
			header := "[" + prefix + "]"
			if s.Listed {
				header = s.header()
			}
			if len(lines) > 0 || s.many() {
				fmt.Fprintf(&b, "%s\n%s\n", header, strings.Join(append(lines, ""), "\n"))
			}
		}
	}
	return b.String()
}

// JSON writes the configuration as nested objects; all is as for TOML.
func (l *Loaded) JSON(all bool) ([]byte, error) {
	tree := make(map[string]any)
	for _, s := range Schema() {
		if s.Listed {
			if list := l.listJSON(s, all); all || len(list) > 0 {
				insert(tree, strings.Split(s.Name, "."), list)
			}
			continue
		}
		for _, prefix := range l.prefixes(s) {
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

// prefixes are the paths of a section's tables.
func (l *Loaded) prefixes(s Section) []string {
	if s.many() {
		return l.tables[s.Name]
	}
	return []string{s.Name}
}

func (l *Loaded) listJSON(s Section, all bool) []map[string]any {
	list := []map[string]any{}
	for _, prefix := range l.prefixes(s) {
		entry := make(map[string]any)
		for _, f := range s.Fields {
			set, given := l.settings[prefix+"."+f.Name]
			if given && (all || set.origin != Default) {
				insert(entry, strings.Split(f.Name, "."), set.value)
			}
		}
		list = append(list, entry)
	}
	return list
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
