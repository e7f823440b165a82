package config

import (
	"encoding/json"
	"fmt"
	"strings"
)

// Reference is the part of docs/configuration.md that is made from the schema.
func Reference() string {
	var b strings.Builder
	for _, s := range Schema() {
		fmt.Fprintf(&b, "## `%s`\n\n%s\n\n", s.header(), markdown(s.Doc))
		for _, f := range s.Fields {
			fmt.Fprintf(&b, "### `%s`\n\n%s", f.Name, markdown(f.Doc))
			if f.Tune != "" {
				fmt.Fprintf(&b, " %s", markdown(f.Tune))
			}
			b.WriteString("\n\n| | |\n|---|---|\n")
			row := func(name, text string) {
				if text != "" {
					fmt.Fprintf(&b, "| %s | %s |\n", name, text)
				}
			}
			row("Type", f.Kind.String())
			if len(f.Choices) > 0 {
				row("One of", f.choiceList())
			}
			row("Unit", f.Unit)
			row("Range", f.Range.String())
			row("Rule", markdown(f.Rule))
			row("Default", "`"+literal(f.Default)+"`")
			if env := s.EnvName(f.Name); env != "" {
				row("Environment", "`"+env+"`")
			}
			b.WriteString("\n")
		}
	}
	return strings.TrimRight(b.String(), "\n") + "\n"
}

// markdown keeps the angle brackets and bars of plain text from being markup.
func markdown(text string) string {
	return strings.NewReplacer("<", `\<`, "|", `\|`, "*", `\*`).Replace(text)
}

// SchemaJSON is what validation in another language needs of the schema.
func SchemaJSON() []byte {
	type jsonField struct {
		Name    string `json:"name"`
		Kind    Kind   `json:"kind"`
		Default any    `json:"default"`
		Range
		Choices []Choice `json:"choices,omitempty"`
	}
	type jsonSection struct {
		Name   string      `json:"name"`
		Named  bool        `json:"named"`
		Listed bool        `json:"listed"`
		Fields []jsonField `json:"fields"`
	}
	var sections []jsonSection
	for _, s := range Schema() {
		js := jsonSection{Name: s.Name, Named: s.Named, Listed: s.Listed}
		for _, f := range s.Fields {
			js.Fields = append(js.Fields, jsonField{f.Name, f.Kind, f.Default, f.Range, f.Choices})
		}
		sections = append(sections, js)
	}
	out, err := json.MarshalIndent(map[string]any{"sections": sections}, "", " ")
	if err != nil {
		panic(err) // the schema is a constant of this package
	}
	return append(out, '\n')
}
