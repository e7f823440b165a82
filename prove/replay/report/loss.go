package report

import (
	"fmt"
	"slices"
	"strings"
)

// lossTable is what the subject lost to some of the others: by metric, with the
// loads as columns. It has no rows where nothing was lost.
func (r *Report) lossTable(others []string) table {
	t := table{Head: []string{"Metric", "Against"}}
	for _, load := range r.Loads {
		t.Head = append(t.Head, "Load "+loadText(load))
	}
	for _, m := range r.Metrics {
		for _, other := range others {
			row, lost := []cell{plain(m.Title), plain(other)}, false
			for _, load := range r.Loads {
				d := r.deltaOf(load, m.Name, other)
				if d == nil || d.Verdict != Loss {
					row = append(row, plain("·"))
					continue
				}
				row, lost = append(row, deltaCell(m, d)), true
			}
			if lost {
				t.Rows = append(t.Rows, row)
			}
		}
	}
	return t
}

// tally counts the verdicts of comparisons with some of the others, in all
// metrics or in those named.
func (r *Report) tally(others, metrics []string) (counts map[Verdict]int, all int) {
	counts = make(map[Verdict]int)
	for _, d := range r.Deltas {
		if slices.Contains(others, d.Against) && (metrics == nil || slices.Contains(metrics, d.Metric)) {
			counts[d.Verdict]++
		}
	}
	return counts, counts[Win] + counts[Flat] + counts[Loss]
}

// lossText says in a few sentences where the subject loses.
func (r *Report) lossText() string {
	peers := r.peers()
	switch {
	case len(r.others()) == 0:
		return fmt.Sprintf("Only %s was replayed: there is no other to lose to.", r.Subject)
	case len(r.Seeds) < 2:
		return "One seed has no interval, so nothing is called a win or a loss: replay with more --seeds."
	case len(peers) == 0:
		return "No other policy does the same work."
	}
	judged, allJudged := r.tally(peers, Judged)
	counts, all := r.tally(peers, nil)
	text := fmt.Sprintf("In what policies are judged by, %s wins %d of %d comparisons and loses %d", r.Subject, judged[Win], allJudged, judged[Loss])
	if lost := r.judgedLosses(peers); len(lost) > 0 {
		text += ": " + strings.Join(lost, "; ")
	}
	text += fmt.Sprintf(". In all metrics it wins %d of %d and loses %d.", counts[Win], all, counts[Loss])
	if short := r.shorteners(); len(short) > 0 {
		text += fmt.Sprintf(" Comparisons with %s are not among these.", strings.Join(short, ", "))
	}
	return text
}

// shortLossText is about those who do less work.
func (r *Report) shortLossText() string {
	short := r.shorteners()
	if len(short) == 0 || len(r.Seeds) < 2 {
		return ""
	}
	counts, all := r.tally(short, nil)
	return fmt.Sprintf("Apart, because they end thoughts and so do less work, for other answers: against %s, %s wins %d of %d comparisons in all metrics and loses %d.",
		strings.Join(short, ", "), r.Subject, counts[Win], all, counts[Loss])
}

// judgedLosses names what was lost of what is judged, with the loads at which it was.
func (r *Report) judgedLosses(others []string) []string {
	var lost []string
	for _, name := range Judged {
		m := metricOf(r.Metrics, name)
		for _, other := range others {
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
