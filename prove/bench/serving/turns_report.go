package serving

import (
	"fmt"
	"io"
	"time"

	"meridian/prove/bench"
)

// TurnsReport is what a run of RunTurns found.
type TurnsReport struct {
	bench.Head
	Rows []TurnsRow

	options TurnsOptions
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
	Gained float64     `json:"cached_tokens_gained"`
	Cold   bench.Score `json:"ttft_ms_without"`
	Warm   bench.Score `json:"ttft_ms_with"`
	// Ratio is with beside without, chat by chat: below 1 it is sooner.
	Ratio bench.Score `json:"ratio"`
}

func turnsRow(answer int, cold, warm []secondTurn) TurnsRow {
	column := func(turns []secondTurn, value func(secondTurn) float64) bench.Score {
		var all []float64
		for _, turn := range turns {
			all = append(all, value(turn))
		}
		return bench.NewScore(all)
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
		Cold: column(cold, first), Warm: column(warm, first), Ratio: bench.NewScore(ratios),
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
	o := &r.options
	note := fmt.Sprintf("two reference engines (%s, scripted thoughts) that keep prefixes; questions of %d tokens, thoughts of %d; second turns, with gateway.warm_next_turn and without, of the same chats under two salts: "+
		"equal tokens; TTFT in ms and RATIO: median [min–max] of %d chats; CACHED: tokens of PROMPT that were not computed\n\n", o.Model, o.Question, o.Thought, o.Rounds)
	return bench.Write(w, r.Text(), note, bench.Table("ANSWER\tPROMPT\tCACHED WITHOUT\tWITH\tTTFT WITHOUT\tWITH\tRATIO", r.Rows, func(row *TurnsRow) string {
		return fmt.Sprintf("%d\t%.0f\t%.0f\t%.0f\t%s\t%s\t%s", row.Answer, row.Prompt, row.ColdCached, row.WarmCached, row.Cold.In(2), row.Warm.In(2), row.Ratio.In(2))
	}))
}
