package report

import (
	"fmt"
	"slices"
	"strings"
)

// table is what report.md and report.html both show.
type table struct {
	Head []string
	Rows [][]cell
}

// cell is one field: a text, what stands smaller below it, and the verdict that
// colours it.
type cell struct {
	Text, Detail string
	Verdict      Verdict
}

func plain(text string) cell { return cell{Text: text} }

// figureCell is a metric's value, or a dash where there is none.
func figureCell(m Metric, p *Point) cell {
	if p == nil || p.value(m.Name) == nil {
		return plain("–")
	}
	i := p.value(m.Name).Interval
	return cell{Text: m.Unit.text(i.Mean), Detail: m.Unit.intervalText(i)}
}

// deltaCell is a difference as tables show it.
func deltaCell(m Metric, d *Delta) cell {
	if d == nil {
		return plain("–")
	}
	text, interval := changeText(m, d.Change, d.Relative)
	return cell{Text: text, Detail: interval, Verdict: d.Verdict}
}

// deltaOf finds one comparison of the subject.
func (r *Report) deltaOf(load float64, metric, against string) *Delta {
	for i := range r.Deltas {
		if d := &r.Deltas[i]; d.Load == load && d.Metric == metric && d.Against == against {
			return d
		}
	}
	return nil
}

// others are the policies that the subject is compared with: first its peers,
// then those that do less work.
func (r *Report) others() []string { return append(r.peers(), r.shorteners()...) }

// shortTable is the short answer, at every load, against everybody.
func (r *Report) shortTable() table {
	t := table{Head: append([]string{"Metric", "Load", r.Subject}, r.againstHeads()...)}
	for _, name := range Short {
		m := metricOf(r.Metrics, name)
		for _, load := range r.Loads {
			if row := r.deltaRow(m, load); row != nil {
				t.Rows = append(t.Rows, append([]cell{plain(m.Title), plain(loadText(load))}, row...))
			}
		}
	}
	return t
}

func (r *Report) againstHeads() []string {
	var heads []string
	for _, other := range r.others() {
		heads = append(heads, "against "+r.labelled(other))
	}
	return heads
}

// deltaTable is every metric at one load.
func (r *Report) deltaTable(load float64) table {
	t := table{Head: append([]string{"Metric", r.Subject}, r.againstHeads()...)}
	for _, m := range r.Metrics {
		if row := r.deltaRow(m, load); row != nil {
			t.Rows = append(t.Rows, append([]cell{plain(m.Title)}, row...))
		}
	}
	return t
}

// deltaRow is the subject's value and its distance from everybody, or nothing
// where it was not measured.
func (r *Report) deltaRow(m Metric, load float64) []cell {
	p := r.Point(r.Subject, load)
	if p == nil || p.value(m.Name) == nil {
		return nil
	}
	row := []cell{figureCell(m, p)}
	for _, other := range r.others() {
		row = append(row, deltaCell(m, r.deltaOf(load, m.Name, other)))
	}
	return row
}

// paretoTable is what every policy reaches in what is judged, and who beats it.
func (r *Report) paretoTable() table {
	t := table{Head: []string{"Load", "Policy"}}
	for _, name := range Judged {
		m := metricOf(r.Metrics, name)
		t.Head = append(t.Head, m.Title)
	}
	t.Head = append(t.Head, "Front")
	for _, load := range r.Loads {
		for _, policy := range append([]string{r.Subject}, r.others()...) {
			row := []cell{plain(loadText(load)), plain(r.labelled(policy))}
			for _, name := range Judged {
				m := metricOf(r.Metrics, name)
				row = append(row, figureCell(m, r.Point(policy, load)))
			}
			t.Rows = append(t.Rows, append(row, plain(r.frontText(policy, load))))
		}
	}
	return t
}

func (r *Report) frontText(policy string, load float64) string {
	i := slices.IndexFunc(r.Standings, func(s Standing) bool { return s.Policy == policy && s.Load == load })
	switch {
	case r.shortens(policy):
		return "apart: less work"
	case i >= 0 && len(r.Standings[i].DominatedBy) > 0:
		return "beaten by " + strings.Join(r.Standings[i].DominatedBy, ", ")
	}
	return "on it"
}

// aboutTable is how the report was made.
func (r *Report) aboutTable() table {
	w := r.Workload
	label := w.Label
	if w.Synthetic {
		label += " (synthetic)"
	}
	seeds := make([]string, len(r.Seeds))
	for i, s := range r.Seeds {
		seeds[i] = fmt.Sprint(s)
	}
	facts := []Fact{
		{"Workload", fmt.Sprintf("%s: %s", w.Name, label)},
		{"Licence of its data", w.Licence},
		{"Window", fmt.Sprintf("%s from %s on", hoursText(w.DurationS), hoursText(w.FromS))},
		{"Requests at load 1", PerSecond.text(w.RateAt1)},
		{"Seeds", strings.Join(seeds, ", ")},
		{"Intervals", fmt.Sprintf("Student's t over seeds, %s where seeds scatter normally", Share.text(r.Confidence))},
	}
	facts = append(facts, r.Engine...)
	facts = append(facts, Fact{"Built by", fmt.Sprintf("meridian %s, commit %s", r.Build, r.Commit)})
	t := table{Head: []string{"", ""}}
	for _, f := range facts {
		if f.Value != "" {
			t.Rows = append(t.Rows, []cell{plain(f.Name), plain(f.Value)})
		}
	}
	return t
}

func hoursText(seconds float64) string {
	if seconds < 3600 && seconds > 0 {
		return digits(seconds, 4) + " s"
	}
	return digits(seconds/3600, 3) + " h"
}

// metricTable says what each metric is.
func (r *Report) metricTable() table {
	t := table{Head: []string{"Metric", "In report.json", "Better", "What it is"}}
	for _, m := range r.Metrics {
		t.Rows = append(t.Rows, []cell{plain(m.Title), plain(m.Name), plain(string(m.Better)), plain(m.Means)})
	}
	return t
}
