package report

import (
	"fmt"
	"slices"
	"strings"
)

// lead is how much of the subject's lead over a policy a mere setting of that
// policy closes.
type lead struct {
	variant Variant
	metric  Metric
	load    float64
	// base, set and ours are the metric of the policy, of its variant, and of the
	// subject.
	base, set, ours float64
	// leads: the subject wins against the policy; else there is nothing to close.
	leads bool
}

// closed is the part of the distance that the setting closes: 1 is all of it.
func (l lead) closed() float64 { return (l.base - l.set) / (l.base - l.ours) }

// leads are all that the report's variants tell.
func (r *Report) leads() []lead {
	var all []lead
	for _, v := range r.Variants {
		if v.Policy == r.Subject || v.Name == r.Subject || !slices.Contains(r.Policies, v.Policy) {
			continue
		}
		for _, name := range Judged {
			m := metricOf(r.Metrics, name)
			for _, load := range r.Loads {
				figure := func(policy string) *Value {
					if p := r.Point(policy, load); p != nil {
						return p.value(name)
					}
					return nil
				}
				base, set, ours, d := figure(v.Policy), figure(v.Name), figure(r.Subject), r.deltaOf(load, name, v.Policy)
				if base != nil && set != nil && ours != nil && d != nil {
					all = append(all, lead{v, m, load, base.Mean, set.Mean, ours.Mean, d.Verdict == Win})
				}
			}
		}
	}
	return all
}

// leadText says where the subject's lead comes from, as far as variants tell.
func (r *Report) leadText() string {
	tail := metricOf(r.Metrics, TailTTFVT)
	all := r.leads()
	var sentences []string
	for _, v := range r.Variants {
		var closed []string
		known := false
		for _, l := range all {
			if l.variant != v || l.metric.Name != TailTTFVT {
				continue
			}
			known = true
			if l.leads {
				closed = append(closed, fmt.Sprintf("%s at load %s", wholePercent(l.closed()), loadText(l.load)))
			}
		}
		if !known {
			continue
		}
		text := fmt.Sprintf("%s is %s with %s. ", v.Name, v.Policy, v.Settings)
		if len(closed) > 0 {
			text += fmt.Sprintf("Of the lead of %s over %s in %s this setting alone closes %s.", r.Subject, v.Policy, tail.Title, strings.Join(closed, ", "))
		} else {
			text += fmt.Sprintf("Over %s, %s has no sure lead in %s.", v.Policy, r.Subject, tail.Title)
		}
		sentences = append(sentences, text)
	}
	return strings.Join(sentences, " ")
}

// leadTable has a row for each variant and metric, and the loads as columns.
func (r *Report) leadTable() table {
	t := table{Head: []string{"Variant", "Metric"}}
	for _, load := range r.Loads {
		t.Head = append(t.Head, "Load "+loadText(load))
	}
	for _, l := range r.leads() {
		last := len(t.Rows) - 1
		if last < 0 || t.Rows[last][0].Text != l.variant.Name || t.Rows[last][1].Text != l.metric.Title {
			t.Rows = append(t.Rows, []cell{{Text: l.variant.Name, Detail: l.variant.Settings}, plain(l.metric.Title)})
			last++
		}
		for len(t.Rows[last]) < 2+slices.Index(r.Loads, l.load) {
			t.Rows[last] = append(t.Rows[last], plain("–")) // not measured there
		}
		text := "no lead"
		if l.leads {
			text = wholePercent(l.closed()) + " closed"
		}
		unit := l.metric.Unit
		t.Rows[last] = append(t.Rows[last], cell{Text: text, Detail: fmt.Sprintf("%s → %s; %s", unit.text(l.base), unit.text(l.set), unit.text(l.ours))})
	}
	for i, row := range t.Rows {
		for len(row) < len(t.Head) {
			row = append(row, plain("–"))
		}
		t.Rows[i] = row
	}
	return t
}

// wholePercent writes a part without digits behind the point.
func wholePercent(x float64) string {
	return strings.Replace(fmt.Sprintf("%.0f %%", 100*x), "-", "−", 1)
}
