package transfer

import (
	"fmt"

	"meridian/prove/bench"
)

// LatencyRow is one line of the latency table: one contender, until one event.
type LatencyRow struct {
	Fabric   string `json:"fabric"`
	Checksum string `json:"checksum"`
	Protect  string `json:"protect"`
	// Who is meridian, nixl or ping-pong.
	Who string `json:"who"`
	// Until is "done" at the poster, or "echo": the other side has answered.
	Until string `json:"until"`
	// P50 and P99 are in microseconds.
	P50 bench.Score `json:"p50_us"`
	P99 bench.Score `json:"p99_us"`
	// Ratio50 and Ratio99 are Meridian's over this one's; nil for Meridian.
	Ratio50 *float64 `json:"ratio_p50,omitempty"`
	Ratio99 *float64 `json:"ratio_p99,omitempty"`
	// Cores that each side's process used meanwhile; where one process is both,
	// all of them are the posting side's.
	PostingCores float64 `json:"posting_cores"`
	ServingCores float64 `json:"serving_cores"`
}

// addLatency turns lanes into rows: each of Meridian's, and behind it the
// others with their ratios to it.
func (r *Report) addLatency(fabricName string, variants []variant, lanes []*lane) {
	for i, v := range variants {
		for _, until := range []string{"done", "echo"} {
			own := lanes[i].row(until)
			own.Fabric, own.Checksum, own.Protect, own.Who = fabricName, v.checksum, v.protect, "meridian"
			r.Latency = append(r.Latency, own)
			for _, l := range lanes[len(variants):] {
				other := l.row(until)
				other.Fabric, other.Checksum, other.Protect = fabricName, v.checksum, v.protect
				other.Ratio50, other.Ratio99 = new(bench.Rounded(own.P50.Median/other.P50.Median)), new(bench.Rounded(own.P99.Median/other.P99.Median))
				r.Latency = append(r.Latency, other)
			}
		}
	}
}

func (l *lane) row(until string) LatencyRow {
	times := l.done
	if until == "echo" && len(l.echo[0]) > 0 {
		times = l.echo
	}
	return LatencyRow{
		Who: l.Name(), Until: until, P50: bench.NewScore(times[0]), P99: bench.NewScore(times[1]),
		PostingCores: bench.NewFigure(l.posting).Median, ServingCores: bench.NewFigure(l.serving).Median,
	}
}

func (r *Report) latencyTable() string {
	note := fmt.Sprintf("µs for a write of %d bytes with a notification, median [min–max] over %d rounds of %d; ×: Meridian's over the other's\n\n",
		smallBytes, r.options.Rounds, samples)
	head := "FABRIC\tSUMS" + r.protectCell("PROTECT") + "\tWHO\tUNTIL\tP50\t×\tP99\t×\tCORES, POSTING\tSERVING"
	return note + bench.Table(head, r.Latency, func(row *LatencyRow) string {
		return fmt.Sprintf("%s\t%s%s\t%s\t%s\t%s\t%s\t%s\t%s\t%.2f\t%.2f", row.Fabric, row.Checksum, r.protectCell(row.Protect), row.Who, row.Until,
			row.P50.In(2), times(row.Ratio50), row.P99.In(2), times(row.Ratio99), row.PostingCores, row.ServingCores)
	})
}

func times(ratio *float64) string {
	if ratio == nil {
		return ""
	}
	return fmt.Sprintf("%.2f×", *ratio)
}
