package config

import (
	"fmt"
	"strings"
)

// Example is the annotated file that `meridian config init` writes: every field
// with its default. Reading it back gives the defaults.
func Example() string {
	var b strings.Builder
	b.WriteString("# Meridian's configuration. Every field stands here as a comment with its default: take\n" +
		"# away the # of those that are to differ. `meridian config explain FIELD` tells more.\n")
	for _, s := range Schema() {
		b.WriteString("\n")
		comment(&b, s.Doc)
		if s.many() {
			exampleOfMany(&b, s)
			continue
		}
		fmt.Fprintf(&b, "%s\n", s.header())
		for _, f := range s.Fields {
			b.WriteString("\n")
			comment(&b, f.Doc)
			comment(&b, f.constraint())
			fmt.Fprintf(&b, "#%s = %s\n", f.Name, literal(f.Default))
		}
	}
	return b.String()
}

// exampleOfMany lists the fields of a section that has no tables by default.
func exampleOfMany(b *strings.Builder, s Section) {
	fmt.Fprintf(b, "# %s\n", s.header())
	for _, f := range s.Fields {
		fmt.Fprintf(b, "#   %-24s %s\n", f.Name, f.Kind)
	}
}

// constraint says in one line what values a field takes.
func (f Field) constraint() string {
	parts := []string{f.Kind.String()}
	if len(f.Choices) > 0 {
		parts = []string{"one of " + f.choiceList()}
	}
	if f.Unit != "" {
		parts = append(parts, f.Unit)
	}
	if text := f.Range.String(); text != "" {
		parts = append(parts, text)
	}
	if f.Rule != "" {
		parts = append(parts, f.Rule)
	}
	return strings.Join(parts, "; ")
}

func (f Field) choiceList() string {
	var names []string
	for _, c := range f.Choices {
		name := quote(c.Name)
		if c.Refused != "" {
			name += " (not in this build)"
		}
		names = append(names, name)
	}
	return strings.Join(names, ", ")
}

// literal writes a value as TOML.
func literal(value any) string {
	switch v := value.(type) {
	case nil:
		return "not set"
	case float64:
		return floatText(v)
	case string:
		return quote(v)
	case []uint32:
		return displayIDs(v)
	case []string:
		var quoted []string
		for _, s := range v {
			quoted = append(quoted, quote(s))
		}
		return "[" + strings.Join(quoted, ", ") + "]"
	default:
		return fmt.Sprint(v)
	}
}

const commentWidth = 88

func comment(b *strings.Builder, text string) {
	for _, line := range wrap(text, commentWidth-2) {
		fmt.Fprintf(b, "# %s\n", line)
	}
}

func wrap(text string, width int) []string {
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(text) {
		if line != "" && len(line)+1+len(word) > width {
			lines = append(lines, line)
			line = ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	return append(lines, line)
}
