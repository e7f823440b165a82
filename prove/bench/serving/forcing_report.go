package serving

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"meridian/prove/bench"
)

// ForcingReport is what a run of RunForcing found.
type ForcingReport struct {
	bench.Head
	Rows []ForcingRow

	options ForcingOptions
}

// ForcingRow is one line of the table: thoughts with one signal after Point tokens.
type ForcingRow struct {
	Signal string `json:"signal"` // empty: none is in the trace
	Point  int    `json:"point"`
	// Without and With are tokens of all thoughts, without a governor and with one.
	Requests int `json:"requests"`
	Without  int `json:"without"`
	With     int `json:"with"`
	// Least and Most are how many tokens after the point thoughts ended; below 0 they were
	// cut short.
	Least int `json:"least_after"`
	Most  int `json:"most_after"`
	// Reasons are why thoughts were ended, by how many; those that ended by themselves are
	// not among them.
	Reasons map[string]int `json:"reasons"`
}

// add counts a thought of so many tokens that would have had full.
func (r *ForcingRow) add(full, tokens int, reason string) {
	after := tokens - r.Point
	if r.Requests == 0 {
		r.Least, r.Most = after, after
	}
	r.Least, r.Most = min(r.Least, after), max(r.Most, after)
	r.Requests++
	r.Without += full
	r.With += tokens
	if reason != "" {
		r.Reasons[reason]++
	}
}

// Saved is the share of the tokens that was not thought.
func (r *ForcingRow) Saved() float64 { return 1 - float64(r.With)/float64(r.Without) }

// ended says why thoughts ended.
func (r *ForcingRow) ended() string {
	var parts []string
	own := r.Requests
	for _, reason := range slices.Sorted(maps.Keys(r.Reasons)) {
		parts = append(parts, fmt.Sprintf("%s %d", reason, r.Reasons[reason]))
		own -= r.Reasons[reason]
	}
	if own > 0 {
		parts = append(parts, fmt.Sprintf("by themselves %d", own))
	}
	return strings.Join(parts, ", ")
}

// WriteJSON writes the rows for programs.
func (r *ForcingReport) WriteJSON(w io.Writer) error {
	return bench.WriteJSON(w, struct {
		Machine string       `json:"machine"`
		Thought int          `json:"thought_tokens"`
		Rows    []ForcingRow `json:"rows"`
	}{bench.Machine(), r.options.Thought, r.Rows})
}

// WriteText writes a table for people, with what is needed to read it.
func (r *ForcingReport) WriteText(w io.Writer) error {
	o := &r.options
	note := fmt.Sprintf("reference engines (tiny) whose thoughts of %d tokens play scripted entropies, one with a governor over the engine door and one without, %d requests a row, at a time; "+
		"entropy.ema_alpha %g, entropy.eat_probe_interval_tokens %d, scheduler.min_think_tokens %d, the rest as by default\n"+
		"every answer has its thought and, behind it, the tokens that an engine alone says after a thought of that length\n"+
		"THERE AFTER: tokens of the thought after which its trace has the signal; ENDED: so many tokens later [min–max]\n\n", o.Thought, o.Requests, o.Alpha, o.Interval, o.MinThink)
	return bench.Write(w, r.Text(), note, bench.Table("SIGNAL\tTHERE AFTER\tTHOUGHT WITHOUT\tWITH\tSAVED\tENDED\tBY", r.Rows, func(row *ForcingRow) string {
		signal, point, ended := "none", "–", "–"
		if row.Signal != "" {
			signal, point, ended = row.Signal, fmt.Sprint(row.Point), fmt.Sprintf("[%d–%d]", row.Least, row.Most)
		}
		return fmt.Sprintf("%s\t%s\t%d\t%d\t%.1f %%\t%s\t%s", signal, point, row.Without, row.With, 100*row.Saved(), ended, row.ended())
	}))
}
