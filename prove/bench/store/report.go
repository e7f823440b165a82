package store

import (
	"fmt"
	"io"
	"time"

	"meridian/prove/bench"
)

// Report is what a run found.
type Report struct {
	bench.Head
	Rows []Row

	options Options
}

// Row is one line of the table.
type Row struct {
	Op      string  `json:"op"`
	Object  string  `json:"object"`
	Clients int     `json:"clients"`
	Where   string  `json:"where"`
	GBps    float64 `json:"gbps"` // the median of the rounds
	// P50 and P99 are of single operations, of all rounds together.
	P50 float64 `json:"p50_us"`
	P99 float64 `json:"p99_us"`
	// Ratio is how many times as fast as each peer, by bytes a second: the
	// median of the rounds' ratios; nil for one that is absent.
	Ratio map[string]*float64 `json:"ratio"`

	beside map[string]standing
	others float64 // as Report.Others, during this row
}

// standing is what one contender's rounds amount to.
type standing struct {
	scores   []float64 // GB/s of each round
	gbps     bench.Figure
	p50, p99 float64
}

func newStanding(c Case, laps []Lap) (s standing) {
	var each []time.Duration
	for _, lap := range laps {
		s.scores = append(s.scores, lap.gbps(c))
		each = append(each, lap.Each...)
	}
	s.gbps = bench.NewFigure(s.scores)
	s.p50, s.p99 = bench.Rounded(bench.Percentile(each, 50)), bench.Rounded(bench.Percentile(each, 99))
	return s
}

// newRow sums up one row; laps are by contender.
func newRow(c Case, where string, object bench.Size, laps map[string][]Lap, others float64) Row {
	ours := newStanding(c, laps[oursName])
	row := Row{
		Op: c.Op, Object: object.Text, Clients: c.Clients, Where: where, GBps: ours.gbps.Median, P50: ours.p50, P99: ours.p99,
		Ratio: make(map[string]*float64), beside: map[string]standing{oursName: ours}, others: others,
	}
	for _, name := range PeerNames() {
		row.Ratio[name] = nil
		if len(laps[name]) != len(laps[oursName]) {
			continue // absent, or it failed on the way
		}
		theirs := newStanding(c, laps[name])
		row.beside[name] = theirs
		row.Ratio[name] = new(ratio(ours.scores, theirs.scores))
	}
	return row
}

// ratio is the median of the rounds' ratios.
func ratio(ours, theirs []float64) float64 {
	ratios := make([]float64, len(ours))
	for i := range ratios {
		ratios[i] = ours[i] / theirs[i]
	}
	return bench.NewFigure(ratios).Median
}

func newReport(o Options) *Report {
	return &Report{Head: bench.NewHead(o.Version), Rows: []Row{}, options: o}
}

// WriteJSON writes the rows for programs.
func (r *Report) WriteJSON(w io.Writer) error {
	return bench.WriteJSON(w, struct {
		Rows []Row `json:"rows"`
	}{r.Rows})
}

// WriteText writes a table for people, with what is needed to read it.
func (r *Report) WriteText(w io.Writer) error {
	note := fmt.Sprintf("GB/s (1e9 bytes), median [min–max] of %d rounds of %s or %d objects; P50, P99: µs of one operation; "+
		"of a peer its GB/s, its P50, and ×: Meridian's GB/s over the peer's, round by round; OTHERS: cores used by others\n\n",
		r.options.Rounds, r.options.Total, mostOperations)
	beside := bench.Beside(PeerNames(), r.Rows, func(row *Row) map[string]*float64 { return row.Ratio })
	head := "WHERE\tOP\tOBJECT\tCLIENTS\tMERIDIAN\tP50\tP99" + beside.Heads() + "\tOTHERS"
	return bench.Write(w, r.Text(), note, bench.Table(head, r.Rows, func(row *Row) string {
		return fmt.Sprintf("%s\t%s\t%s\t%d\t%s\t%s\t%s%s\t%.1f", row.Where, row.Op, row.Object, row.Clients, row.beside[oursName].gbps, micros(row.P50), micros(row.P99),
			beside.Cells(row.Ratio, func(name string, ratio float64) string {
				return fmt.Sprintf("%.2f, %s µs, %.2f×", row.beside[name].gbps.Median, micros(row.beside[name].p50), ratio)
			}), row.others)
	}))
}

// micros has three digits or all of those before the point.
func micros(v float64) string { return bench.Digits(v, 3) }
