package config

import (
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// setting is a value that passed its own check, and where it came from.
type setting struct {
	value  any
	origin Origin
}

// checker gathers settings and faults from one layer after another.
type checker struct {
	document *document
	settings map[string]setting // by dotted path
	// tables are the paths of the tables of sections that can have several, by
	// section: of named ones sorted, of listed ones in the file's order.
	tables map[string][]string
	faults []Fault
	// broken paths had a fault; rules that need them stay silent.
	broken map[string]bool
}

func newChecker() *checker {
	c := &checker{settings: make(map[string]setting), broken: make(map[string]bool), tables: make(map[string][]string)}
	for _, s := range Schema() {
		if !s.many() {
			c.setDefaults(s, s.Name)
		}
	}
	return c
}

func (c *checker) setDefaults(s Section, prefix string) {
	for _, f := range s.Fields {
		if f.Default != nil {
			c.settings[prefix+"."+f.Name] = setting{value: f.Default, origin: Default}
		}
	}
}

func (c *checker) fault(f Fault, place position) {
	f.Line, f.Column = place.line, place.column
	c.faults = append(c.faults, f)
	c.broken[f.Path] = true
}

// file checks every value of the document against the schema.
func (c *checker) file() {
	d, names := c.document, sectionNames()
	for _, name := range slices.Sorted(maps.Keys(d.values)) {
		path := quoteKey(name)
		section, known := findSection(name)
		if !known || section.Listed {
			c.fault(Fault{Path: path, Source: d.source, Reason: "unknown section", Nearest: nearest(name, names)}, d.keys[path])
			continue
		}
		table, ok := c.table(path, d.values[name])
		switch {
		case !ok:
		case section.Named:
			for _, entry := range slices.Sorted(maps.Keys(table)) {
				entryPath := path + "." + quoteKey(entry)
				if fields, ok := c.table(entryPath, table[entry]); ok {
					c.newTable(section, entryPath, fields)
				}
			}
		default:
			c.fields(section, path, "", table)
		}
	}
}

func (c *checker) newTable(s Section, path string, fields map[string]any) {
	c.tables[s.Name] = append(c.tables[s.Name], path)
	c.setDefaults(s, path)
	c.fields(s, path, "", fields)
}

// list checks the tables of a listed section.
func (c *checker) list(s Section, value any) {
	tables, isList := value.([]any)
	if !isList {
		c.fault(Fault{Path: s.Name, Source: c.document.source, Reason: "must be a list of tables: " + s.header(), Given: display(value)}, c.document.at(s.Name))
		return
	}
	for i, entry := range tables {
		path := fmt.Sprintf("%s[%d]", s.Name, i)
		if fields, ok := c.table(path, entry); ok {
			c.newTable(s, path, fields)
		}
	}
}

func (c *checker) table(path string, value any) (map[string]any, bool) {
	table, ok := value.(map[string]any)
	if !ok {
		c.fault(Fault{Path: path, Source: c.document.source, Reason: "must be a table", Given: display(value)}, c.document.at(path))
	}
	return table, ok
}

// fields checks the keys of one table. prefix is the path of a table within the
// section, such as "channel.", or empty.
func (c *checker) fields(s Section, path, prefix string, table map[string]any) {
	for _, key := range slices.Sorted(maps.Keys(table)) {
		name := prefix + key
		keyPath := path + "." + prefix + quoteKey(key)
		field, known := s.field(name)
		switch {
		case known && !strings.Contains(key, "."):
			c.set(field, keyPath, table[key], FromFile, c.document.source)
		case isListed(keyPath):
			section, _ := findSection(keyPath)
			c.list(section, table[key])
		case s.hasSubtable(name) && !strings.Contains(key, "."):
			if inner, ok := c.table(keyPath, table[key]); ok {
				c.fields(s, path, name+".", inner)
			}
		default:
			c.fault(Fault{
				Path: keyPath, Source: c.document.source, Reason: "unknown field",
				Nearest: strings.TrimPrefix(nearest(name, s.fieldNames()), prefix),
			}, c.document.key(keyPath))
		}
	}
}

// set checks one value and, if it is good, makes it the field's setting.
func (c *checker) set(f Field, path string, value any, origin Origin, source string) {
	normal, problems := f.check(value)
	for _, p := range problems {
		var place position
		if origin == FromFile {
			place = c.document.at(path + p.suffix())
		}
		c.fault(Fault{Path: path + p.suffix(), Source: source, Reason: p.reason, Given: display(p.given), Nearest: p.nearest}, place)
		c.broken[path] = true
	}
	if len(problems) == 0 {
		c.settings[path] = setting{value: normal, origin: origin}
	}
}

func sectionNames() []string {
	var names []string
	for _, s := range Schema() {
		if !s.Listed {
			names = append(names, s.Name)
		}
	}
	return names
}

func (s Section) fieldNames() []string {
	var names []string
	for _, f := range s.Fields {
		names = append(names, f.Name)
	}
	return names
}

func isListed(path string) bool {
	s, known := findSection(path)
	return known && s.Listed
}

func (s Section) hasSubtable(name string) bool {
	return slices.ContainsFunc(s.Fields, func(f Field) bool { return strings.HasPrefix(f.Name, name+".") })
}

// problem is what is wrong with a value, or with one element of a list.
type problem struct {
	index   int // of the element, or -1
	reason  string
	given   any
	nearest string
}

func (p problem) suffix() string {
	if p.index < 0 {
		return ""
	}
	return fmt.Sprintf("[%d]", p.index)
}

// check returns value in the Go type of the field's kind.
func (f Field) check(value any) (any, []problem) {
	bad := func(reason string) (any, []problem) {
		return nil, []problem{{index: -1, reason: reason, given: value}}
	}
	switch v := value.(type) {
	case bool:
		if f.Kind == Bool {
			return v, nil
		}
	case int64:
		switch {
		case f.Kind == Float:
			return f.inRange(float64(v), value, float64(v))
		case f.Kind == Int || f.Kind == Size:
			return f.inRange(float64(v), value, v)
		}
	case float64:
		if f.Kind == Float {
			return f.inRange(v, value, v)
		}
	case string:
		switch f.Kind {
		case Text:
			if v == "" {
				return bad("must not be empty")
			}
			return v, nil
		case Enum:
			return f.choice(v)
		case Size:
			if v == Auto {
				return v, nil
			}
		case Endpoint:
			if !hasPort(endpointPattern, v) {
				return bad("must be an http or https URL with a host")
			}
			return v, nil
		case Listen:
			if v == "" || hasPort(listenPattern, v) {
				return v, nil
			}
			return bad("must be host:port with a port from 0 to 65535, or empty")
		case Publisher:
			if v == Auto || v == None || hasPort(publisherPattern, v) {
				return v, nil
			}
			return bad("must be tcp://host:port, ipc:///path, " + quote(Auto) + " or " + quote(None))
		}
	case []any:
		switch f.Kind {
		case Tokens:
			return checkList(v, tokenID)
		case Texts:
			return checkList(v, markerText)
		case UserIDs:
			return checkList(v, userID)
		case Paths:
			return checkPaths(v)
		case Enums:
			return f.choices(v)
		}
	}
	return bad("must be " + article(f.Kind.String()))
}

func (f Field) inRange(v float64, given, normal any) (any, []problem) {
	if f.Range.Contains(v) {
		return normal, nil
	}
	reason := "must be " + f.Range.String()
	if math.IsNaN(v) || math.IsInf(v, 0) {
		reason = strings.TrimSpace("must be a finite number " + f.Range.String())
	}
	return nil, []problem{{index: -1, reason: reason, given: given}}
}

func (f Field) choice(v string) (any, []problem) {
	var names, quoted []string
	for _, c := range f.Choices {
		switch {
		case c.Name == v && c.Refused != "":
			return nil, []problem{{index: -1, reason: c.Refused, given: v}}
		case c.Name == v:
			return v, nil
		case c.Refused == "":
			names = append(names, c.Name)
			quoted = append(quoted, quote(c.Name))
		}
	}
	return nil, []problem{{index: -1, reason: "must be one of " + strings.Join(quoted, ", "), given: v, nearest: nearest(v, names)}}
}

// choices takes a list of choices, in an order of its own.
func (f Field) choices(list []any) (any, []problem) {
	if len(list) == 0 {
		return nil, []problem{{index: -1, reason: "must not be empty", given: list}}
	}
	names := make([]string, len(list))
	seen := make(map[string]bool)
	var problems []problem
	for i, element := range list {
		names[i], _ = element.(string)
		_, bad := f.choice(names[i])
		if len(bad) == 0 && seen[names[i]] {
			bad = []problem{{reason: "must not stand there twice"}}
		}
		seen[names[i]] = true
		for _, p := range bad {
			p.index, p.given = i, element
			problems = append(problems, p)
		}
	}
	return names, problems
}

// checkList converts every element, or says what is wrong with each bad one.
func checkList[T any](list []any, convert func(any) (T, string)) (any, []problem) {
	out := make([]T, 0, len(list))
	var problems []problem
	for i, element := range list {
		v, reason := convert(element)
		if reason != "" {
			problems = append(problems, problem{index: i, reason: reason, given: element})
		}
		out = append(out, v)
	}
	return out, problems
}

func tokenID(element any) (uint32, string) {
	id, ok := element.(int64)
	if !ok || id < 0 || id > math.MaxUint32 {
		return 0, "must be a token id from 0 to 4294967295"
	}
	return uint32(id), ""
}

func userID(element any) (uint32, string) {
	id, ok := element.(int64)
	if !ok || id < 0 || id >= math.MaxUint32 {
		return 0, "must be a user id from 0 to 4294967294"
	}
	return uint32(id), ""
}

func markerText(element any) (string, string) {
	text, ok := element.(string)
	if !ok || text == "" {
		return "", "must be a text that is not empty"
	}
	return text, ""
}

// checkPaths takes paths, each once.
func checkPaths(list []any) (any, []problem) {
	seen := make(map[string]bool)
	return checkList(list, func(element any) (string, string) {
		path, _ := element.(string)
		switch {
		case !pathPattern.MatchString(path):
			return "", "must be the path of one endpoint, such as /tokenize"
		case seen[path]:
			return "", "must not stand there twice"
		}
		seen[path] = true
		return path, ""
	})
}

// These grammars are small on purpose: the same expressions judge in Python, and
// two URL libraries would not agree on the corners. A last group is the port.
var (
	endpointPattern = regexp.MustCompile(`^https?://(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::0*([0-9]{1,5}))?(?:/[!$&->@-~]*)?$`)
	listenPattern   = regexp.MustCompile(`^(?:\[[^\[\]]*\]|[^:\[\]]*):0*([0-9]{1,5})$`)
	// publisherPattern has no port for a path of the system.
	publisherPattern = regexp.MustCompile(`^(?:tcp://(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+|\*):0*([0-9]{1,5})|ipc://[!-~]+)$`)
	pathPattern      = regexp.MustCompile(`^(?:/[A-Za-z0-9._~-]+)+$`)
)

func hasPort(pattern *regexp.Regexp, text string) bool {
	match := pattern.FindStringSubmatch(text)
	if match == nil {
		return false
	}
	port, err := strconv.Atoi("0" + match[1])
	return err == nil && port <= math.MaxUint16
}

func article(noun string) string {
	if strings.ContainsRune("aeiou", rune(noun[0])) {
		return "an " + noun
	}
	return "a " + noun
}
