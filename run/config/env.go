package config

import (
	"maps"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"
)

const envPrefix = "MERIDIAN_"

// environment applies MERIDIAN_SECTION_FIELD variables. One that starts with a
// section's name but names no field is a fault, and so is one that names a field
// behind a mistyped section, because an override that silently does nothing is
// worse than none; other MERIDIAN_ variables belong to other programs.
func (c *checker) environment(environ map[string]string) {
	for _, variable := range slices.Sorted(maps.Keys(environ)) {
		fault := Fault{Source: "environment " + variable}
		s, name, ours := ofSection(variable)
		if !ours {
			if fault.Path, fault.Nearest = mistypedSection(variable); fault.Nearest != "" {
				fault.Reason = "unknown section"
				c.fault(fault, position{})
			}
			continue
		}
		fault.Path = s.Name + "." + quoteKey(strings.ToLower(name))
		fields := make(map[string]Field)
		for _, f := range s.Fields {
			fields[s.EnvName(f.Name)] = f
		}
		f, known := fields[variable]
		switch {
		case s.Named:
			fault.Reason = s.header() + " has no variables; set it in the file"
			c.fault(fault, position{})
		case known:
			c.set(f, s.Name+"."+f.Name, f.fromVariable(environ[variable]), FromEnvironment, fault.Source)
		default:
			fault.Reason, fault.Nearest = "unknown field", nearest(variable, slices.Sorted(maps.Keys(fields)))
			c.fault(fault, position{})
		}
	}
}

// ofSection tells whose variable this is, and what stands behind the section.
// A listed section has none: they would be those of the section that it is in.
func ofSection(variable string) (s Section, name string, ours bool) {
	for _, s := range Schema() {
		prefix := envPrefix + strings.ToUpper(s.Name) + "_"
		if name, ours := strings.CutPrefix(variable, prefix); ours && !s.Listed {
			return s, name, true
		}
	}
	return Section{}, "", false
}

// mistypedSection finds the variable that was meant, or "", for one that ends in
// the name of a field of a section with a similar name.
func mistypedSection(variable string) (path, meant string) {
	for _, s := range Schema() {
		for _, f := range s.Fields {
			typed, ends := strings.CutSuffix(strings.TrimPrefix(variable, envPrefix), "_"+strings.ToUpper(f.Name))
			if ends && !s.many() && nearest(typed, []string{s.Name}) != "" {
				return quoteKey(strings.ToLower(typed)) + "." + f.Name, s.EnvName(f.Name)
			}
		}
	}
	return "", ""
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
