package serving

import (
	"fmt"
	"io"
	"time"

	"meridian/prove/bench"
)

// MovesReport is what a run of RunMoves found.
type MovesReport struct {
	bench.Head
	Rows []MovesRow

	options MovesOptions
}

// MovesRow is one line of the table: the longest wait between two tokens, in milliseconds.
type MovesRow struct {
	Prompt  int       `json:"prompt_tokens"`
	Stays   MovesWait `json:"stays_ms"`
	Moves   MovesWait `json:"moves_ms"`
	Resumes MovesWait `json:"resumes_ms"`
	// Ratio is the median of those that move beside that of those that are resumed: below 1
	// moving is shorter.
	Ratio float64 `json:"ratio"`
}

// MovesWait is of several answers. With fewer than a hundred, P99 is the longest.
type MovesWait struct {
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
}

func (w MovesWait) String() string { return fmt.Sprintf("%.1f / %.1f", w.P50, w.P99) }

func movesRow(prompt int, waits map[string][]time.Duration) MovesRow {
	of := func(side string) MovesWait {
		return MovesWait{bench.Rounded(bench.Percentile(waits[side], 50) / 1000), bench.Rounded(bench.Percentile(waits[side], 99) / 1000)}
	}
	row := MovesRow{Prompt: prompt, Stays: of(movesStay), Moves: of(movesMove), Resumes: of(movesResume)}
	row.Ratio = bench.Rounded(row.Moves.P50 / row.Resumes.P50)
	return row
}

// WriteJSON writes the rows for programs.
func (r *MovesReport) WriteJSON(w io.Writer) error {
	return bench.WriteJSON(w, struct {
		Machine string     `json:"machine"`
		Model   string     `json:"model"`
		Rows    []MovesRow `json:"rows"`
	}{bench.Machine(), r.options.Model, r.Rows})
}

// WriteText writes a table for people, with what is needed to read it.
func (r *MovesReport) WriteText(w io.Writer) error {
	o := &r.options
	note := fmt.Sprintf("one gateway before two reference engines (%s); sampled answers of %d tokens that stay, that move to the other engine at half of them, and whose engine is lost there, so that the other computes everything "+
		"again: equal tokens; the longest wait between two tokens from there on, in ms: p50 / p99 of %d answers, in turn\n\n", o.Model, o.Answer, o.Rounds)
	return bench.Write(w, r.Text(), note, bench.Table("PROMPT\tSTAYS\tMOVES\tRESUMES\tRATIO", r.Rows, func(row *MovesRow) string {
		return fmt.Sprintf("%d\t%s\t%s\t%s\t%.2f", row.Prompt, row.Stays, row.Moves, row.Resumes, row.Ratio)
	}))
}
