package cache

import (
	"fmt"
	"io"
	"slices"
	"time"

	"meridian/prove/bench"
)

// VLLMReport is what a stored prefix is worth to servers of vLLM, and what it costs them.
type VLLMReport struct {
	VLLM          string     `json:"vllm"`
	Model         string     `json:"model"`
	BytesPerToken int64      `json:"bytes_per_token"`
	Rounds        int        `json:"rounds"`
	Requests      int        `json:"requests"`
	Rows          []VLLMRow  `json:"rows"`
	Steps         []StepsRow `json:"steps"`
}

// VLLMRow is one connector with prefixes of one length. Times are of the first token, in
// milliseconds, at the median where nothing else is said.
type VLLMRow struct {
	Tokens    int    `json:"tokens"`
	Connector string `json:"connector"` // example, meridian
	// Computed is at a server without connector, Own at the same when it has the prompt in
	// its own prefix cache, Found at one that has it from another server: all in the same
	// rounds.
	Computed float64 `json:"computed_p50_ms"`
	Own      float64 `json:"own_p50_ms"`
	Found    float64 `json:"found_p50_ms"`
	FoundP99 float64 `json:"found_p99_ms"`
	// OfComputed is Found as part of Computed, the median of the rounds' ratios.
	OfComputed float64 `json:"of_computed"`
	// Missed is at a server that finds nothing, computes and keeps. Added is what that takes
	// longer than the same prompt at the server without connector, and OfMiss the ratio of
	// the two, the median of the rounds'.
	Missed float64 `json:"missed_p50_ms"`
	Added  float64 `json:"miss_added_p50_ms"`
	OfMiss float64 `json:"miss_of_computed"`
	// Lost prompts were not found by the other server, and are not among the found.
	Lost int `json:"lost"`
	// Others is how many cores were used by processes that are not part of the run.
	Others float64 `json:"others"`
}

// StepsRow is the time between tokens at two servers in turn, in milliseconds.
type StepsRow struct {
	Server string  `json:"server"`
	Beside string  `json:"beside"`
	P50    float64 `json:"step_ms"` // medians of the rounds' means
	Theirs float64 `json:"beside_step_ms"`
	// Ratio is of the two, round by round, at the median.
	Ratio  float64 `json:"ratio"`
	Others float64 `json:"others"`
}

// add sums up the rounds of one connector with prefixes of one length. The first of each
// kind has warmed up.
func (v *VLLMReport) add(connector string, l *length) {
	row := VLLMRow{Tokens: l.tokens, Connector: connector, Others: bench.Rounded(slices.Max(l.others))}
	var computed, own, found, missed, added []time.Duration
	var ofComputed, ofMiss []float64
	for _, r := range l.missed[1:] {
		for i := range r.missed {
			added = append(added, r.missed[i]-r.computed[i])
		}
		missed, ofMiss = append(missed, r.missed...), append(ofMiss, bench.Percentile(r.missed, 50)/bench.Percentile(r.computed, 50))
	}
	for _, r := range l.found[1:] {
		row.Lost += r.lost
		if len(r.found) == 0 {
			continue
		}
		computed, own, found = append(computed, r.computed...), append(own, r.own...), append(found, r.found...)
		ofComputed = append(ofComputed, bench.Percentile(r.found, 50)/bench.Percentile(r.computed, 50))
	}
	ms := func(all []time.Duration, percent int) float64 {
		return bench.Rounded(bench.Percentile(all, percent) / 1e3)
	}
	row.Missed, row.Added, row.OfMiss = ms(missed, 50), ms(added, 50), bench.NewFigure(ofMiss).Median
	if len(found) > 0 {
		row.Computed, row.Own, row.Found, row.FoundP99, row.OfComputed = ms(computed, 50), ms(own, 50), ms(found, 50), ms(found, 99), bench.NewFigure(ofComputed).Median
	}
	v.Rows = append(v.Rows, row)
}

// addSteps sums up the rounds of a server beside another one.
func (v *VLLMReport) addSteps(beside, server string, all map[string][]float64, others float64) {
	ratios := make([]float64, len(all[server]))
	for i := range ratios {
		ratios[i] = all[server][i] / all[beside][i]
	}
	v.Steps = append(v.Steps, StepsRow{
		Server: server, Beside: beside, P50: bench.NewFigure(all[server]).Median, Theirs: bench.NewFigure(all[beside]).Median, Ratio: bench.NewFigure(ratios).Median, Others: others,
	})
}

func (v *VLLMReport) write(w io.Writer) {
	if v == nil {
		return
	}
	fmt.Fprintf(w, "\nvllm: vLLM %s on the CPU, a model of random weights, %d bytes of cache a token; %d rounds of %d prompts, one at a time, two servers at a time\n"+
		"TTFT in ms at the median. COMPUTED: without connector; OWN: asked again there; FOUND: computed and kept by another server, which is gone; ×: FOUND beside COMPUTED\n"+
		"MISS: by a server that finds nothing, computes and keeps; ADDED: what it takes longer than the same prompt without connector; ×: the two; LOST: not found, not among the found; OTHERS: cores used by others\n\n",
		v.VLLM, v.BytesPerToken, v.Rounds, v.Requests)
	fmt.Fprint(w, bench.Table("TOKENS\tCONNECTOR\tCOMPUTED\tOWN\tFOUND\tP99\t×\tMISS\tADDED\t×\tLOST\tOTHERS", v.Rows, func(r *VLLMRow) string {
		found := "-\t-\t-\t-\t-" // nothing was: there is no time of it, and none of the same rounds
		if r.Found > 0 {
			found = fmt.Sprintf("%.1f\t%.1f\t%.1f\t%.1f\t%.2f", r.Computed, r.Own, r.Found, r.FoundP99, r.OfComputed)
		}
		return fmt.Sprintf("%d\t%s\t%s\t%.1f\t%.2f\t%.3f\t%d\t%.1f", r.Tokens, r.Connector, found, r.Missed, r.Added, r.OfMiss, r.Lost, r.Others)
	}))
	fmt.Fprintf(w, "\ntime between tokens in ms, mean of %d answers of %d tokens to new prompts of %d, %d at a time; ×: the two, round by round; %s has no connector, %s one with \"cache\": false\n\n",
		stepClients*stepAsks, stepAnswer, stepPrompt, stepClients, plainServer, silentServer)
	fmt.Fprint(w, bench.Table("SERVER\tSTEP\tBESIDE\tSTEP\t×\tOTHERS", v.Steps, func(r *StepsRow) string {
		return fmt.Sprintf("%s\t%.2f\t%s\t%.2f\t%.3f\t%.1f", r.Server, r.P50, r.Beside, r.Theirs, r.Ratio, r.Others)
	}))
}
