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

// cell is one field: a text, and the verdict that colours it.
type cell struct {
	Text    string
	Verdict Verdict
}

func plain(text string) cell { return cell{Text: text} }

// deltaCell is a difference as tables show it.
func deltaCell(m Metric, d *Delta) cell {
	if d == nil {
		return plain("–")
	}
	return cell{Text: changeText(m, d.Change, d.Relative), Verdict: d.Verdict}
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

// others are the policies that the subject is compared with.
func (r *Report) others() []string {
	var names []string
	for _, p := range r.Policies {
		if p != r.Subject {
			names = append(names, p)
		}
	}
	return names
}

// judgedTable is the short answer: what is judged, at every load, against everybody.
func (r *Report) judgedTable() table {
	t := table{Head: []string{"Metric", "Load", r.Subject}}
	for _, other := range r.others() {
		t.Head = append(t.Head, "against "+other)
	}
	for _, name := range Judged {
		m, _ := metricOf(r.Metrics, name)
		for _, load := range r.Loads {
			if row := r.deltaRow(m, load); row != nil {
				t.Rows = append(t.Rows, append([]cell{plain(m.Title), plain(loadText(load))}, row...))
			}
		}
	}
	return t
}

// deltaTable is every metric at one load.
func (r *Report) deltaTable(load float64) table {
	t := table{Head: []string{"Metric", r.Subject}}
	for _, other := range r.others() {
		t.Head = append(t.Head, "against "+other)
	}
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
	row := []cell{plain(m.Unit.withInterval(p.value(m.Name).Interval))}
	for _, other := range r.others() {
		row = append(row, deltaCell(m, r.deltaOf(load, m.Name, other)))
	}
	return row
}

// paretoTable is what every policy reaches in what is judged, and who beats it.
func (r *Report) paretoTable() table {
	t := table{Head: []string{"Load", "Policy"}}
	for _, name := range Judged {
		m, _ := metricOf(r.Metrics, name)
		t.Head = append(t.Head, m.Title)
	}
	t.Head = append(t.Head, "Front")
	for _, s := range r.Standings {
		p := r.Point(s.Policy, s.Load)
		row := []cell{plain(loadText(s.Load)), plain(s.Policy)}
		for _, name := range Judged {
			m, _ := metricOf(r.Metrics, name)
			if v := p.value(name); v != nil {
				row = append(row, plain(m.Unit.withInterval(v.Interval)))
				continue
			}
			row = append(row, plain("–"))
		}
		front := "on it"
		if len(s.DominatedBy) > 0 {
			front = "beaten by " + strings.Join(s.DominatedBy, ", ")
		}
		t.Rows = append(t.Rows, append(row, plain(front)))
	}
	return t
}

// lostTo is what the subject lost to one other policy: metrics by loads.
type lostTo struct {
	Title string
	Table table
}

// lossTables has one for each policy that the subject lost anything to.
func (r *Report) lossTables() []lostTo {
	var tables []lostTo
	for _, other := range r.others() {
		t := table{Head: []string{"Metric"}}
		for _, load := range r.Loads {
			t.Head = append(t.Head, "Load "+loadText(load))
		}
		count := 0
		for _, m := range r.Metrics {
			row, lost := []cell{plain(m.Title)}, 0
			for _, load := range r.Loads {
				d := r.deltaOf(load, m.Name, other)
				if d == nil || d.Verdict != Loss {
					row = append(row, plain("·"))
					continue
				}
				row, lost = append(row, deltaCell(m, d)), lost+1
			}
			if lost > 0 {
				t.Rows, count = append(t.Rows, row), count+lost
			}
		}
		if count > 0 {
			tables = append(tables, lostTo{fmt.Sprintf("Against %s: %d", other, count), t})
		}
	}
	return tables
}

// lossText says in a few sentences where the subject loses.
func (r *Report) lossText() string {
	counts, judged := map[Verdict]int{}, map[Verdict]int{}
	for _, d := range r.Deltas {
		counts[d.Verdict]++
		if slices.Contains(Judged, d.Metric) {
			judged[d.Verdict]++
		}
	}
	all := func(c map[Verdict]int) int { return c[Win] + c[Flat] + c[Loss] }
	switch {
	case len(r.others()) == 0:
		return fmt.Sprintf("Only %s was replayed: there is nobody to lose to.", r.Subject)
	case len(r.Seeds) < 2:
		return "One seed has no interval, so nothing is called a win or a loss: replay with more --seeds."
	}
	text := fmt.Sprintf("In what policies are judged by, %s wins %d of %d comparisons and loses %d", r.Subject, judged[Win], all(judged), judged[Loss])
	if lost := r.judgedLosses(); len(lost) > 0 {
		text += ": " + strings.Join(lost, "; ")
	}
	return text + fmt.Sprintf(". In all metrics it wins %d of %d and loses %d.", counts[Win], all(counts), counts[Loss])
}

// judgedLosses names what was lost of what is judged, with the loads at which it was.
func (r *Report) judgedLosses() []string {
	var lost []string
	for _, name := range Judged {
		m, _ := metricOf(r.Metrics, name)
		for _, other := range r.others() {
			var loads []string
			for _, load := range r.Loads {
				if d := r.deltaOf(load, name, other); d != nil && d.Verdict == Loss {
					loads = append(loads, loadText(load))
				}
			}
			if len(loads) > 0 {
				lost = append(lost, fmt.Sprintf("%s against %s at load %s", m.Title, other, strings.Join(loads, ", ")))
			}
		}
	}
	return lost
}

// noteworthy is the part of think tokens from which on a policy is said to have
// thought less.
const noteworthy = 0.001

// notes say what must be known to compare policies fairly.
func (r *Report) notes() []string {
	var notes []string
	for _, policy := range r.Policies {
		most := 0.0
		for _, load := range r.Loads {
			if v := r.Point(policy, load).value("thought_saved"); v != nil {
				most = max(most, v.Mean)
			}
		}
		if most >= noteworthy {
			notes = append(notes, fmt.Sprintf("%s ends thoughts: up to %s of the tokens that were to be thought were not. It does less work than the others, for other answers, "+
				"so its latencies and its throughput are not of the same thing.", policy, Share.text(most)))
		}
	}
	return notes
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
