package main

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// newTable aligns columns, with tabs between them, under headings; "" is none.
func newTable(out io.Writer, headings string) *tabwriter.Writer {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	if headings != "" {
		fmt.Fprintln(table, headings)
	}
	return table
}
