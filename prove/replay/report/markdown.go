package report

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"unicode"
)

// WriteMarkdown writes report.md.
func (r *Report) WriteMarkdown(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\n\n%s\n\n", escapeMarkdown(r.title()), howToRead)
	b.WriteString("## In short\n\n")
	r.shortTable().markdown(&b)
	for _, note := range r.notes() {
		fmt.Fprintf(&b, "\n%s\n", escapeMarkdown(note))
	}
	fmt.Fprintf(&b, "\n## Where %s loses\n\n%s\n\n", escapeMarkdown(r.Subject), escapeMarkdown(r.lossText()))
	r.lossTable(r.peers()).section(&b)
	if text := r.shortLossText(); text != "" {
		fmt.Fprintf(&b, "%s\n\n", escapeMarkdown(text))
		r.lossTable(r.shorteners()).section(&b)
	}
	if text := r.leadText(); text != "" {
		fmt.Fprintf(&b, "## Where the lead comes from\n\n%s\n\n%s\n\n", escapeMarkdown(text), leadHow)
		r.leadTable().section(&b)
	}
	fmt.Fprintf(&b, "## Pareto\n\n%s\n\n", paretoText)
	r.paretoTable().markdown(&b)
	for _, load := range r.Loads {
		fmt.Fprintf(&b, "\n## Everything at load %s\n\n", loadText(load))
		r.deltaTable(load).markdown(&b)
	}
	b.WriteString("\n## How this was made\n\n")
	r.aboutTable().markdown(&b)
	fmt.Fprintf(&b, "\n```\n%s\n```\n", strings.ReplaceAll(r.Command, "```", ""))
	_, err := io.WriteString(w, b.String())
	return err
}

// WriteSummary writes the short answer as plain text.
func (r *Report) WriteSummary(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\n", r.title())
	t := r.shortTable() // without intervals: a terminal is not that wide
	table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, strings.Join(t.Head, "\t"))
	for _, row := range t.Rows {
		fields := make([]string, len(row))
		for i, c := range row {
			fields[i] = strings.TrimSpace(c.Text + " " + string(c.Verdict))
		}
		fmt.Fprintln(table, strings.Join(fields, "\t"))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for _, text := range append(r.notes(), r.lossText()) {
		fmt.Fprintf(&b, "\n%s\n", text)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// title names policies and workload.
func (r *Report) title() string {
	if others := r.others(); len(others) > 0 {
		return fmt.Sprintf("%s against %s on %s", r.Subject, strings.Join(others, ", "), r.Workload.Name)
	}
	return fmt.Sprintf("%s on %s", r.Subject, r.Workload.Name)
}

const (
	howToRead = "Figures are means over seeds, with their 95 % t interval in brackets; differences are of runs with the same requests, seed by seed. " +
		"WIN and LOSS stand only where the interval of the difference excludes zero and the difference is at least 0.1 %, or 0.1 percentage points (pp); " +
		"of percentiles and slowdown at least 1 %, of QoE 0.01. All else is FLAT. Of comparisons of equal policies about one in twenty is called WIN or LOSS by chance. " +
		"Load 1 is what the modelled engines serve of this workload under stock when there is always one more request waiting."
	leadHow    = "Each field: how much of the distance the setting closes; then the policy without it → with it; and the subject."
	paretoText = "A policy is beaten where another loses to it in nothing that is judged, as far as intervals tell, and wins something."
)

// WriteMarkdown writes a comparison for people: what was won and lost, or all.
func (c *Comparison) WriteMarkdown(w io.Writer, all bool) error {
	var b strings.Builder
	fmt.Fprintf(&b, "# B against A\n\nA: `%s`, commit %s\nB: `%s`, commit %s\n\n",
		escapeMarkdown(c.A.Command), escapeMarkdown(c.A.Commit), escapeMarkdown(c.B.Command), escapeMarkdown(c.B.Commit))
	if c.Paired {
		b.WriteString("Both had the same requests: differences are of each seed.\n\n")
	} else {
		b.WriteString("The requests were not the same (workload, window or seeds differ): each side scatters by itself.\n\n")
	}
	fmt.Fprintf(&b, "B wins %d, loses %d, and is even in %d.\n\n", c.Count(Win), c.Count(Loss), c.Count(Flat))
	t := table{Head: []string{"Load", "Policy", "Metric", "A", "B", "Difference"}}
	for _, change := range c.Changes {
		if !all && change.Verdict != Win && change.Verdict != Loss {
			continue
		}
		m := metricOf(Metrics, change.Metric)
		t.Rows = append(t.Rows, []cell{
			plain(loadText(change.Load)), plain(change.Policy), plain(m.Title), plain(m.Unit.withInterval(change.A)), plain(m.Unit.withInterval(change.B)),
			deltaCell(m, &Delta{Change: change.Change, Relative: change.Relative, Verdict: change.Verdict}),
		})
	}
	if len(t.Rows) > 0 {
		t.markdown(&b)
	}
	for _, lone := range c.Lone {
		fmt.Fprintf(&b, "\n%s.\n", escapeMarkdown(lone))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// WriteJSON writes a comparison for programs.
func (c *Comparison) WriteJSON(w io.Writer) error { return writeJSON(w, c) }

// section writes a table that may be empty, and the line after it.
func (t table) section(b *strings.Builder) {
	if len(t.Rows) > 0 {
		t.markdown(b)
		b.WriteString("\n")
	}
}

func (t table) markdown(b *strings.Builder) {
	line := func(fields []string) { fmt.Fprintf(b, "| %s |\n", strings.Join(fields, " | ")) }
	head := make([]string, len(t.Head))
	for i, h := range t.Head {
		head[i] = escapeMarkdown(h)
	}
	line(head)
	b.WriteString("|" + strings.Repeat("---|", len(t.Head)) + "\n")
	for _, row := range t.Rows {
		fields := make([]string, len(row))
		for i, c := range row {
			fields[i] = escapeMarkdown(strings.TrimSpace(c.Text + " " + c.Detail))
			switch c.Verdict {
			case Win, Loss:
				fields[i] += " **" + string(c.Verdict) + "**"
			case Flat:
				fields[i] += " FLAT"
			}
		}
		line(fields)
	}
}

// escapeMarkdown keeps names of policies and workloads, which may come from a
// file of another's making, from being markup or orders to a terminal.
func escapeMarkdown(s string) string {
	s = strings.Map(func(c rune) rune {
		if unicode.IsControl(c) {
			return ' '
		}
		return c
	}, s)
	return strings.NewReplacer("|", `\|`, "<", "&lt;", "*", `\*`, "`", "'").Replace(s)
}
