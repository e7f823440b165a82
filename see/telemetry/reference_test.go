package telemetry

import (
	"fmt"
	"slices"
	"strings"
)

func find(name string) (Metric, bool) {
	i := slices.IndexFunc(catalogue, func(m Metric) bool { return m.Name == name })
	if i < 0 {
		return Metric{}, false
	}
	return catalogue[i], true
}

// Reference is the part of docs/metrics.md that is made from the catalogue.
func Reference() string {
	var b strings.Builder
	for _, m := range catalogue {
		fmt.Fprintf(&b, "### `%s`\n\n%s\n\n| | |\n|---|---|\n| Type | %s |\n| Unit | %s |\n", m.Name, m.Help, m.Type, m.Unit)
		for _, l := range m.Labels {
			values := "any"
			if len(l.Values) > 0 {
				values = "`" + strings.Join(l.Values, "`, `") + "`"
			}
			fmt.Fprintf(&b, "| Label `%s` | %s |\n", l.Name, values)
		}
		producer := "`" + m.Room + "`"
		if m.Planned {
			producer += " (planned: not emitted yet)"
		}
		fmt.Fprintf(&b, "| Produced by | %s |\n| Operator action | %s |\n\n", producer, m.Action)
	}
	return strings.TrimRight(b.String(), "\n") + "\n"
}
