package serving

import (
	"fmt"
	"io"

	"meridian/prove/bench"
)

// PoliciesReport is what a run of RunPolicies found.
type PoliciesReport struct {
	bench.Head
	Rows []PolicyRow
	// Capacity is how many tokens a second the baseline's cell computed when all requests
	// came at once.
	Capacity float64

	options PoliciesOptions
}

// PolicyRow is one line of the table: a policy, and who asked. Rate and Preempted are of
// all together.
type PolicyRow struct {
	Policy    string        `json:"policy"`
	Who       string        `json:"who"`
	TTFVT50   PolicyFigure  `json:"ttfvt_p50_ms"`
	TTFVT99   PolicyFigure  `json:"ttfvt_p99_ms"`
	TTOT50    PolicyFigure  `json:"ttot_p50_ms"`
	TTOT99    PolicyFigure  `json:"ttot_p99_ms"`
	Rate      *PolicyFigure `json:"tokens_per_second,omitempty"`
	Preempted *bench.Score  `json:"preempted,omitempty"`
}

// PolicyFigure is the median of the rounds, and how many times the baseline's it was in the
// same rounds; null where the baseline's was too little to be divided by in one of them.
type PolicyFigure struct {
	Median float64      `json:"median"`
	Ratio  *bench.Score `json:"ratio"`
}

// leastDivisor is in milliseconds: of two tokens that come together it is only known that
// they do.
const leastDivisor = 0.1

func (f PolicyFigure) String() string {
	if f.Ratio == nil {
		return short(f.Median)
	}
	return fmt.Sprintf("%s, × %s", short(f.Median), f.Ratio.In(2))
}

// short has as many digits as mean something.
func short(v float64) string {
	if v >= 100 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.1f", v)
}

func policyRows(policies []string, rounds []map[string]policyRound) (rows []PolicyRow) {
	figure := func(policy string, of func(policyRound) float64) PolicyFigure {
		var own, ratios []float64
		for _, round := range rounds {
			mine, theirs := of(round[policy]), of(round[PolicyBaseline])
			own = append(own, mine)
			if theirs >= leastDivisor {
				ratios = append(ratios, mine/theirs)
			}
		}
		f := PolicyFigure{Median: bench.NewFigure(own).Median}
		if len(ratios) == len(rounds) {
			ratio := bench.NewScore(ratios)
			f.Ratio = &ratio
		}
		return f
	}
	for _, policy := range policies {
		for _, who := range []string{policyAll, policyShort, policyLong} {
			latency := func(which, percent int) PolicyFigure {
				return figure(policy, func(r policyRound) float64 { return bench.Percentile(r.latencies[who][which], percent) / 1000 })
			}
			row := PolicyRow{Policy: policy, Who: who, TTFVT50: latency(0, 50), TTFVT99: latency(0, 99), TTOT50: latency(1, 50), TTOT99: latency(1, 99)}
			if who == policyAll {
				rate := figure(policy, func(r policyRound) float64 { return r.rate })
				var preempted []float64
				for _, round := range rounds {
					preempted = append(preempted, float64(round[policy].preempted))
				}
				sum := bench.NewScore(preempted)
				row.Rate, row.Preempted = &rate, &sum
			}
			rows = append(rows, row)
		}
	}
	return rows
}

// WriteJSON writes the rows for programs.
func (r *PoliciesReport) WriteJSON(w io.Writer) error {
	return bench.WriteJSON(w, struct {
		Machine  string      `json:"machine"`
		Others   float64     `json:"others"`
		Model    string      `json:"model"`
		Capacity float64     `json:"capacity_tokens_per_second"`
		Load     float64     `json:"load"`
		Rows     []PolicyRow `json:"rows"`
	}{bench.Machine(), r.Others, r.options.Model, r.Capacity, r.options.Load, r.Rows})
}

// WriteText writes a table for people, with what is needed to read it.
func (r *PoliciesReport) WriteText(w io.Writer) error {
	o := &r.options
	note := fmt.Sprintf("a cell for each policy: one prefill and two decode engines (%s, %d blocks of %d tokens, %d answers at a time); %d rounds of the same %d requests, every other one with a thought of %d to %d tokens, "+
		"the rest of 4 to 12; they come at %.2f of the %.0f tokens/s that the cell of %s computed when all came at once; every answer is that of an engine alone\n"+
		"median of the rounds, and × that of %s in the same round [min–max], where that is 0.1 ms or more; ms; the P99 of fewer than a hundred requests is their slowest; "+
		"TTFVT: from when a request is due to the first token of the answer; TTOT: from the end of the thought to it; PREEMPTED: a round\n\n",
		o.Model, o.Blocks, policyBlock, o.MaxRunning, o.Rounds, o.Requests, o.Thought/2, o.Thought, o.Load, r.Capacity, PolicyBaseline, PolicyBaseline)
	return bench.Write(w, r.Text(), note, bench.Table("POLICY\tTHOUGHTS\tTTFVT P50\tTTFVT P99\tTTOT P50\tTTOT P99\tTOKENS/S\tPREEMPTED", r.Rows, func(row *PolicyRow) string {
		rate, preempted := "", ""
		if row.Rate != nil {
			rate, preempted = row.Rate.String(), row.Preempted.In(0)
		}
		return fmt.Sprintf("%s\t%s\t%v\t%v\t%v\t%v\t%s\t%s", row.Policy, row.Who, row.TTFVT50, row.TTFVT99, row.TTOT50, row.TTOT99, rate, preempted)
	}))
}
