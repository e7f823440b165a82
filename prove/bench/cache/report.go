package cache

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"meridian/prove/bench"
)

// Report is what a run found; parts that were not measured are not there.
type Report struct {
	bench.Head
	Machine string `json:"machine"`

	Trace *TraceReport `json:"trace,omitempty"`
	Tiers *TiersReport `json:"tiers,omitempty"`
	Disk  *DiskReport  `json:"disk,omitempty"`
	VLLM  *VLLMReport  `json:"vllm,omitempty"`
}

// WriteJSON writes everything for programs.
func (r *Report) WriteJSON(w io.Writer) error {
	return bench.WriteJSON(w, r)
}

// WriteText writes tables for people.
func (r *Report) WriteText(w io.Writer) error {
	var b strings.Builder
	b.WriteString(r.Text())
	for _, write := range []func(io.Writer){r.Trace.write, r.Tiers.write, r.Disk.write, r.VLLM.write} {
		write(&b)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (t *TraceReport) write(w io.Writer) {
	if t == nil {
		return
	}
	fmt.Fprintf(w, "\ntrace: %s\n%s\n", t.Workload, &t.Scaling)
	fmt.Fprintf(w, "%d clients ask, one request after the other; %d engines of the model %s with %s each, behind a gateway; units of %d tokens; a cache without bound finds %.3f of all tokens\n",
		traceClients, traceEngines, t.Model, mib(t.Rows[0].Engine/traceEngines), t.Unit, t.Best)
	fmt.Fprintf(w, "HIT: part of the prompts' tokens that was not computed; LRU: what a model of the store's bytes finds that has each prompt when it is sent, without a store of the engines' bytes; IN TIME: the same, but it has a prompt when its first token came in this run; TOGETHER: one of both's bytes, in which nothing lies twice; "+
		"TTFT in ms, and × that of the engines alone; OTHERS: cores used by others\n\n")
	columns := "SETUP\tHIT\tLRU\tOF LRU\tIN TIME\tOF IT\tTOGETHER\tOF TOGETHER\tOF BEST\tNOT COMPUTED\tOF THE STORE\tTTFT P50\t×\tP99\t×\tOTHERS"
	fmt.Fprintln(w, bench.Table(columns, t.Rows, func(r *TraceRow) string {
		return fmt.Sprintf("%s\t%.3f\t%.3f\t%.2f\t%.3f\t%.2f\t%.3f\t%.2f\t%.2f\t%d\t%d\t%.1f\t%.2f\t%.1f\t%.2f\t%.1f",
			r.Setup, r.HitRate, r.LRU, r.OfLRU, r.InTime, r.OfInTime, r.Together, r.OfTogether, r.OfBest, r.NotComputed, r.FromStore, r.P50, r.OfP50, r.P99, r.OfP99, r.Others)
	}))
	fmt.Fprintln(w, bench.Table("SETUP\tCOMPUTED THOUGH LRU HAS IT, TOKENS\tNOT COMPUTED THOUGH IT HAS NOT", t.Rows, func(r *TraceRow) string {
		return fmt.Sprintf("%s\t%s\t%d", r.Setup, r.Lost, r.More)
	}))
	stored := slices.DeleteFunc(slices.Clone(t.Rows), func(r TraceRow) bool { return r.Memory == 0 })
	fmt.Fprint(w, bench.Table("SETUP\tFINDS\tKEEPS", stored, func(r *TraceRow) string {
		return fmt.Sprintf("%s\t%s\t%s", r.Setup, r.Finds, r.Keeps)
	}))
}
