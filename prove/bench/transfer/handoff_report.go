package transfer

import (
	"fmt"
	"io"
	"strings"
	"time"

	"meridian/kv"
	"meridian/move/transceiver/handoff"
	"meridian/prove/bench"
)

// HandOffReport is what a run of hand-offs found.
type HandOffReport struct {
	bench.Head
	Rows []HandOffRow

	options HandOffOptions
	small   []string // what was sized down, and to what
}

// HandOffRow is one line of the table.
type HandOffRow struct {
	Fabric string `json:"fabric"`
	Errand
	// Bytes and Seconds are of one round: all requests of the errand.
	Bytes   uint64  `json:"bytes"`
	Seconds float64 `json:"seconds"`
	bench.Figure
	// Pieces is in how many contiguous pieces one request was moved.
	Pieces int64 `json:"pieces"`
	// Plain is a plain read of as many bytes in scattered blocks of PlainBlock,
	// and RatioPlain the hand-off's median over its.
	Plain      bench.Figure `json:"plain"`
	PlainBlock uint64       `json:"plain_block"`
	RatioPlain float64      `json:"ratio_plain"`
	// OneByOne is the same requests after one another; nil for a single one.
	OneByOne      *bench.Figure `json:"one_by_one,omitempty"`
	RatioOneByOne *float64      `json:"ratio_one_by_one,omitempty"`
	// Share is of the time from accepting a request to having all of it.
	Share Shares `json:"share"`
	// AgreedP50 is the median of handshake and plan together.
	AgreedP50 float64 `json:"handshake_plan_p50_us"`

	others float64 // as HandOffReport.Others, during this row
}

// Shares is how a hand-off spends its time; they add up to one. Prepare is what
// lies between the plan and the first byte: grants and orders to the ranks.
type Shares struct {
	Handshake float64 `json:"handshake"`
	Plan      float64 `json:"plan"`
	Prepare   float64 `json:"prepare"`
	Data      float64 `json:"data"`
	Verify    float64 `json:"verify"`
}

func newHandOffReport(o HandOffOptions) *HandOffReport {
	return &HandOffReport{Head: bench.NewHead(o.Version), Rows: []HandOffRow{}, options: o}
}

// row sums up what the rounds of a relay left.
func (r *relay) row(fabricName string, e Errand, scores [][]float64) HandOffRow {
	row := HandOffRow{Fabric: fabricName, Errand: e, Bytes: r.bytes, Figure: bench.NewFigure(scores[0]), Plain: bench.NewFigure(scores[1])}
	row.Seconds = float64(r.bytes) / 1e9 / row.Median
	row.RatioPlain = bench.Rounded(row.Median / row.Plain.Median)
	if len(scores) > 2 {
		alone := bench.NewFigure(scores[2])
		row.OneByOne, row.RatioOneByOne = &alone, new(bench.Rounded(row.Median/alone.Median))
	}
	row.Pieces = r.records[0].Pieces
	row.Share, row.AgreedP50 = shares(r.records)
	return row
}

// shares adds the stages of all records up.
func shares(records []handoff.Record) (s Shares, agreedP50 float64) {
	var agreed []time.Duration
	total := 0.0
	for _, r := range records {
		t := r.Stages
		s.Handshake += float64(t.Met - t.Begun)
		s.Plan += float64(t.Planned - t.Met)
		s.Prepare += float64(t.Moving - t.Planned)
		s.Data += float64(t.Moved - t.Moving)
		s.Verify += float64(t.Ended - t.Moved)
		total += float64(t.Ended - t.Begun)
		agreed = append(agreed, time.Duration(t.Planned-t.Begun)*time.Microsecond)
	}
	for _, share := range []*float64{&s.Handshake, &s.Plan, &s.Prepare, &s.Data, &s.Verify} {
		*share = bench.Rounded(*share / max(1, total))
	}
	return s, bench.Percentile(agreed, 50)
}

// add takes a row, and notes what was left out of it.
func (r *HandOffReport) add(row HandOffRow, asked Tokens) {
	r.Rows = append(r.Rows, row)
	g, err := kv.ParseGeometry(row.Model)
	if err != nil || (row.Layers == len(g.Layers) && row.Tokens == asked.Count) {
		return
	}
	note := fmt.Sprintf("%s, %d × %s tokens: sized down to %d of %d layers", row.Model, row.Concurrent, asked, row.Layers, len(g.Layers))
	if row.Tokens != asked.Count {
		note += fmt.Sprintf(" and %d tokens", row.Tokens)
	}
	note += fmt.Sprintf(", so that either side fits into %s", r.options.Memory)
	for _, said := range r.small {
		if said == note {
			return
		}
	}
	r.small = append(r.small, note)
}

// WriteJSON writes the rows for programs.
func (r *HandOffReport) WriteJSON(w io.Writer) error {
	return bench.WriteJSON(w, struct {
		Rows []HandOffRow `json:"rows"`
	}{r.Rows})
}

// WriteText writes a table for people, with what is needed to read it.
func (r *HandOffReport) WriteText(w io.Writer) error {
	o := &r.options
	head := r.Text(append([]string{fmt.Sprintf("from %s to %s; decode reads", o.From, o.To)}, r.small...)...)
	note := fmt.Sprintf("GB/s (1e9 bytes), median [min–max] of %d rounds; ×: the hand-off's median over the other's; "+
		"AGREED: handshake and plan, p50; OTHERS: cores used by others\n\n", o.Rounds)
	columns := "FABRIC\tMODEL\tLAYERS\tTOKENS\tAT A TIME\tMB\tSECONDS\tHAND-OFF\tPLAIN\tONE BY ONE\tHANDSHAKE\tPLAN\tPREPARE\tDATA\tVERIFY\tAGREED, µs\tOTHERS"
	return bench.Write(w, head, note, bench.Table(columns, r.Rows, func(row *HandOffRow) string {
		alone := "–"
		if row.OneByOne != nil {
			alone = fmt.Sprintf("%s %.2f×", row.OneByOne, *row.RatioOneByOne)
		}
		return fmt.Sprintf("%s\t%s\t%d\t%d\t%d\t%.1f\t%.4f\t%s\t%s %.2f×\t%s\t%s\t%.0f\t%.1f",
			row.Fabric, row.Model, row.Layers, row.Tokens, row.Concurrent, float64(row.Bytes)/1e6, row.Seconds, row.Figure,
			row.Plain, row.RatioPlain, alone, row.Share, row.AgreedP50, row.others)
	}))
}

func (s Shares) String() string {
	cells := make([]string, 0, 5)
	for _, share := range []float64{s.Handshake, s.Plan, s.Prepare, s.Data, s.Verify} {
		cells = append(cells, fmt.Sprintf("%.1f%%", 100*share))
	}
	return strings.Join(cells, "\t")
}
