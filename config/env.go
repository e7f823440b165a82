package config

import (
	"maps"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"
)

const envPrefix = "MERIDIAN_"

// environment applies MERIDIAN_SECTION_FIELD variables. A variable that starts
// with a section's name but names no field is a fault, because an override that
// silently does nothing is worse than none; other MERIDIAN_ variables belong to
// somebody else.
func (c *checker) environment(environ map[string]string) {
	for _, s := range Schema() {
		if s.Listed {
			continue // its variables would be those of the section that it is in
		}
		prefix := envPrefix + strings.ToUpper(s.Name) + "_"
		byVariable := make(map[string]Field)
		for _, f := range s.Fields {
			byVariable[s.EnvName(f.Name)] = f
		}
		for _, variable := range slices.Sorted(maps.Keys(environ)) {
			rest, ours := strings.CutPrefix(variable, prefix)
			if !ours {
				continue
			}
			source := "environment " + variable
			path := s.Name + "." + quoteKey(strings.ToLower(rest))
			f, known := byVariable[variable]
			switch {
			case known:
				c.set(f, s.Name+"."+f.Name, f.fromVariable(environ[variable]), FromEnvironment, source)
			case s.Named:
				c.fault(Fault{Path: path, Source: source, Reason: s.header() + " has no variables; set it in the file"}, position{})
			default:
				meant := nearest(variable, slices.Sorted(maps.Keys(byVariable)))
				c.fault(Fault{Path: path, Source: source, Reason: "unknown field", Nearest: meant}, position{})
			}
		}
	}
}

// fromVariable reads a variable's text as the field's kind; choices stand there
// with commas between. Text that is not what the kind needs stays text, and the
// check then says so.
func (f Field) fromVariable(text string) any {
	switch f.Kind {
	case Bool, Int, Float, Size:
		if strings.ContainsAny(text, "\r\n") {
			return text
		}
		var doc struct{ V any }
		if toml.Unmarshal([]byte("V = "+strings.TrimSpace(text)), &doc) == nil {
			return doc.V
		}
	case UserIDs:
		var doc struct{ V []any }
		if !strings.ContainsAny(text, "\r\n#") && toml.Unmarshal([]byte("V = ["+text+"]"), &doc) == nil {
			return doc.V
		}
	case Enums, Paths:
		list := []any{}
		if text == "" && f.Kind == Paths {
			return list
		}
		for name := range strings.SplitSeq(text, ",") {
			list = append(list, name)
		}
		return list
	}
	return text
}
