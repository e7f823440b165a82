package serving

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"meridian/prove/bench"
)

// TurnsReport is what a run of RunTurns found.
type TurnsReport struct {
	Rows []TurnsRow

	options TurnsOptions
	date    time.Time
}

// TurnsRow is one line of the table. Times are in milliseconds, of a second turn's first
// token.
type TurnsRow struct {
	Answer int `json:"answer_tokens"`
	// Prompt is how long the second turn's prompt is, and the others how much of it
	// its engine did not compute; medians.
	Prompt     float64 `json:"prompt_tokens"`
	ColdCached float64 `json:"cached_tokens_without"`
	WarmCached float64 `json:"cached_tokens_with"`
	// Gained is how many more of them there are.
	Gained float64 `json:"cached_tokens_gained"`
	Cold   Spread  `json:"ttft_ms_without"`
	Warm   Spread  `json:"ttft_ms_with"`
	// Ratio is with beside without, chat by chat: below 1 it is sooner.
	Ratio Spread `json:"ratio"`
}

// Spread is what several chats gave.
type Spread struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

func (s Spread) String() string { return fmt.Sprintf("%.2f [%.2f–%.2f]", s.Median, s.Min, s.Max) }

func turnsRow(answer int, cold, warm []secondTurn) TurnsRow {
	column := func(turns []secondTurn, value func(secondTurn) float64) Spread {
		var all []float64
		for _, turn := range turns {
			all = append(all, value(turn))
		}
		return Spread(bench.NewFigure(all))
	}
	first := func(t secondTurn) float64 { return float64(t.first) / float64(time.Millisecond) }
	cached := func(t secondTurn) float64 { return float64(t.cached) }
	var ratios []float64
	for i := range warm {
		ratios = append(ratios, first(warm[i])/first(cold[i]))
	}
	row := TurnsRow{
		Answer: answer, Prompt: column(warm, func(t secondTurn) float64 { return float64(t.prompt) }).Median,
		ColdCached: column(cold, cached).Median, WarmCached: column(warm, cached).Median,
		Cold: column(cold, first), Warm: column(warm, first), Ratio: Spread(bench.NewFigure(ratios)),
	}
	row.Gained = row.WarmCached - row.ColdCached
	return row
}

// WriteJSON writes the rows for programs.
func (r *TurnsReport) WriteJSON(w io.Writer) error {
	return bench.WriteJSON(w, struct {
		Machine string     `json:"machine"`
		Model   string     `json:"model"`
		Rows    []TurnsRow `json:"rows"`
	}{bench.Machine(), r.options.Model, r.Rows})
}

// WriteText writes a table for people, with what is needed to read it.
func (r *TurnsReport) WriteText(w io.Writer) error {
	var b strings.Builder
	o := &r.options
	b.WriteString(bench.Heading(o.Version, r.date))
	fmt.Fprintf(&b, "two reference engines (%s, scripted thoughts) that keep prefixes; questions of %d tokens, thoughts of %d; second turns, with gateway.warm_next_turn and without, of the same chats under two salts: "+
		"equal tokens; TTFT in ms and RATIO: median [min–max] of %d chats; CACHED: tokens of PROMPT that were not computed\n\n", o.Model, o.Question, o.Thought, o.Rounds)
	if _, err := io.WriteString(w, b.String()); err != nil {
		return err
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "ANSWER\tPROMPT\tCACHED WITHOUT\tWITH\tTTFT WITHOUT\tWITH\tRATIO")
	for _, row := range r.Rows {
		fmt.Fprintf(table, "%d\t%.0f\t%.0f\t%.0f\t%s\t%s\t%s\n", row.Answer, row.Prompt, row.ColdCached, row.WarmCached, row.Cold, row.Warm, row.Ratio)
	}
	return table.Flush()
}
