package serving

import (
	"fmt"
	"io"
	"slices"

	"meridian/prove/bench"
)

// GatewayReport is what a run of RunGateway found.
type GatewayReport struct {
	bench.Head
	Rows []GatewayRow

	options GatewayOptions
	cores   string // who had which
}

// GatewayRow is one line of the table. Latencies are in microseconds, as
// medians over rounds.
type GatewayRow struct {
	Answer  string `json:"answer"`
	Clients int    `json:"clients"`
	// PerSecond is how many requests the gateway served, DirectPerSecond the
	// engine alone; the median round and its bounds.
	PerSecond       bench.Score `json:"per_second"`
	DirectPerSecond bench.Score `json:"direct_per_second"`

	P50       float64 `json:"p50_us"`
	P99       float64 `json:"p99_us"`
	DirectP50 float64 `json:"direct_p50_us"`
	DirectP99 float64 `json:"direct_p99_us"`
	AddedP50  float64 `json:"added_p50_us"`
	AddedP99  float64 `json:"added_p99_us"`
	// CPUMicroseconds is what the gateway's process computed for one request.
	CPUMicroseconds float64 `json:"cpu_us"`
}

func newGatewayReport(o GatewayOptions, g *gatewayProcess) *GatewayReport {
	cores := fmt.Sprintf("the gateway has core %d, clients and engine have %v", g.core, g.others)
	if slices.Contains(g.others, g.core) {
		cores = fmt.Sprintf("the gateway shares core %d with clients and engine: there is no other", g.core)
	}
	return &GatewayReport{Head: bench.NewHead(o.Version), Rows: []GatewayRow{}, options: o, cores: cores}
}

// gatewayRow sums rounds up. What the gateway adds is taken round by round.
func gatewayRow(l gatewayLoad, direct, through []heard) GatewayRow {
	row := GatewayRow{Answer: l.answer.name, Clients: l.clients, PerSecond: rateOf(through), DirectPerSecond: rateOf(direct)}
	var added50, added99 []float64
	column := func(rounds []heard, percent int) (all []float64) {
		for i := range rounds {
			all = append(all, bench.Percentile(rounds[i].latencies, percent))
		}
		return all
	}
	d50, d99, t50, t99 := column(direct, 50), column(direct, 99), column(through, 50), column(through, 99)
	for i := range t50 {
		added50, added99 = append(added50, t50[i]-d50[i]), append(added99, t99[i]-d99[i])
	}
	row.P50, row.P99, row.DirectP50, row.DirectP99 = bench.NewFigure(t50).Median, bench.NewFigure(t99).Median, bench.NewFigure(d50).Median, bench.NewFigure(d99).Median
	row.AddedP50, row.AddedP99 = bench.NewFigure(added50).Median, bench.NewFigure(added99).Median
	return row
}

func rateOf(rounds []heard) bench.Score {
	var all []float64
	for _, r := range rounds {
		all = append(all, float64(len(r.latencies))/r.lasted.Seconds())
	}
	return bench.NewScore(all)
}

// WriteJSON writes the rows for programs.
func (r *GatewayReport) WriteJSON(w io.Writer) error {
	return bench.WriteJSON(w, struct {
		Machine string       `json:"machine"`
		Cores   string       `json:"cores"`
		Others  float64      `json:"others"`
		Rows    []GatewayRow `json:"rows"`
	}{bench.Machine(), r.cores, r.Others, r.Rows})
}

// WriteText writes a table for people, with what is needed to read it.
func (r *GatewayReport) WriteText(w io.Writer) error {
	o := &r.options
	note := fmt.Sprintf("an engine that answers at once; prompts of %d bytes; requests a second: median [min–max] of %d rounds of %v s; times in µs; "+
		"ADDED: through the gateway less directly; CPU: of the gateway, for a request\n\n", stubPromptBytes, o.Rounds, o.Seconds)
	head := r.Text(r.cores + "; GOMAXPROCS=1")
	return bench.Write(w, head, note, bench.Table("ANSWER\tCLIENTS\tREQUESTS/S\tDIRECT\tP50\tADDED\tP99\tADDED\tCPU", r.Rows, func(row *GatewayRow) string {
		return fmt.Sprintf("%s\t%d\t%s\t%s\t%.0f\t%.0f\t%.0f\t%.0f\t%.0f",
			row.Answer, row.Clients, row.PerSecond.In(0), row.DirectPerSecond.In(0), row.P50, row.AddedP50, row.P99, row.AddedP99, row.CPUMicroseconds)
	}))
}
