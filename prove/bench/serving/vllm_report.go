package serving

import (
	"fmt"
	"io"
	"slices"
	"time"

	"meridian/kv"
	"meridian/prove/bench"
)

// VLLMReport is what a run of RunVLLM found.
type VLLMReport struct {
	bench.Head
	Rows []VLLMRow

	options  VLLMOptions
	geometry kv.Geometry
}

// VLLMRow is one route with prompts of one length. Times are in milliseconds.
type VLLMRow struct {
	Tokens int `json:"tokens"`
	// Route is "alone", "meridian", or a peer.
	Route   string  `json:"route"`
	TTFTP50 float64 `json:"ttft_p50_ms"`
	TTFTP99 float64 `json:"ttft_p99_ms"`
	// Added is a prompt's first token less that of the same prompt and round at
	// the server alone; of that one there is none.
	AddedP50 *float64 `json:"added_p50_ms,omitempty"`
	AddedP99 *float64 `json:"added_p99_ms,omitempty"`
	// Bytes of cache that were handed over for a prompt, as the decode server
	// counts tokens.
	Bytes int64 `json:"bytes,omitempty"`
	// BytesPerSecond is Bytes in the median of what was added.
	BytesPerSecond *float64 `json:"bytes_per_second,omitempty"`
	// CPUSecondsPerGB is what all processes of the route computed more than the
	// server alone, for 1e9 bytes.
	CPUSecondsPerGB *float64 `json:"cpu_seconds_per_gb,omitempty"`
	// Different is how many answers had other tokens than the server alone gave.
	Different int `json:"different"`
}

func newVLLMReport(o VLLMOptions, g kv.Geometry) *VLLMReport {
	return &VLLMReport{Head: bench.NewHead(o.Version), Rows: []VLLMRow{}, options: o, geometry: g}
}

// add sums up what the routes did with prompts of one length.
func (r *VLLMReport) add(tokens int, all map[string][]turn) {
	names := []string{alone, meridian}
	for _, name := range append(names, VLLMPeerNames()...) {
		if turns, there := all[name]; there {
			r.Rows = append(r.Rows, r.row(tokens, name, turns, all[alone]))
		}
	}
}

func (r *VLLMReport) row(tokens int, name string, turns, single []turn) VLLMRow {
	row := VLLMRow{Tokens: tokens, Route: name}
	var firsts, added []time.Duration
	var cpu, cpuAlone time.Duration
	var handed int64
	for i, t := range turns {
		for k, first := range t.firsts {
			firsts, added = append(firsts, first), append(added, first-single[i].firsts[k])
			if !slices.Equal(t.tokens[k], single[i].tokens[k]) {
				row.Different++
			}
		}
		cpu, cpuAlone, handed = cpu+t.cpu, cpuAlone+single[i].cpu, handed+t.handed
	}
	ms := func(samples []time.Duration, percent int) float64 {
		return bench.Rounded(bench.Percentile(samples, percent) / 1000)
	}
	row.TTFTP50, row.TTFTP99 = ms(firsts, 50), ms(firsts, 99)
	if name == alone {
		return row
	}
	row.AddedP50, row.AddedP99 = new(ms(added, 50)), new(ms(added, 99))
	row.Bytes = handed * r.geometry.BytesPerToken() / int64(len(added))
	if *row.AddedP50 > 0 && row.Bytes > 0 {
		row.BytesPerSecond = new(bench.Rounded(float64(row.Bytes) / *row.AddedP50 * 1000))
	}
	if row.Bytes > 0 {
		row.CPUSecondsPerGB = new(bench.Rounded((cpu - cpuAlone).Seconds() / float64(row.Bytes*int64(len(added))) * 1e9))
	}
	return row
}

// WriteJSON writes the rows for programs.
func (r *VLLMReport) WriteJSON(w io.Writer) error {
	var absent []string
	for _, a := range r.Absent {
		absent = append(absent, a.String())
	}
	return bench.WriteJSON(w, struct {
		Machine       string    `json:"machine"`
		VLLM          string    `json:"vllm"`
		BytesPerToken int64     `json:"bytes_per_token"`
		Others        float64   `json:"others"`
		Absent        []string  `json:"absent,omitempty"`
		Rows          []VLLMRow `json:"rows"`
	}{bench.Machine(), r.options.VLLM.Version, r.geometry.BytesPerToken(), r.Others, absent, r.Rows})
}

// WriteText writes a table for people, with what is needed to read it.
func (r *VLLMReport) WriteText(w io.Writer) error {
	o := &r.options
	head := r.Text(fmt.Sprintf("vLLM %s on the CPU; random weights, cache of %s: %d bytes a token", o.VLLM.Version, o.Shape, r.geometry.BytesPerToken()))
	note := fmt.Sprintf("%d rounds of %d prompts, one at a time, every route through a gateway, while the others rest; times in ms; ADDED: to the first token, over the same prompt at one "+
		"server alone; MB/S: bytes moved in the median of that; CPU: what all processes of a route computed more; DIFFERENT: answers with other tokens\n\n", o.Rounds, o.Requests)
	return bench.Write(w, head, note, bench.Table("TOKENS\tROUTE\tTTFT P50\tP99\tADDED P50\tP99\tMOVED\tMB/S\tCPU S/GB\tDIFFERENT", r.Rows, func(row *VLLMRow) string {
		return fmt.Sprintf("%d\t%s\t%.1f\t%.1f\t%s\t%s\t%s\t%s\t%s\t%d", row.Tokens, row.Route, row.TTFTP50, row.TTFTP99,
			orDash(row.AddedP50, 1), orDash(row.AddedP99, 1), megabytes(row.Bytes), orDash(row.BytesPerSecond, 1e-6), orDash(row.CPUSecondsPerGB, 1), row.Different)
	}))
}

func orDash(value *float64, scale float64) string {
	if value == nil {
		return "–"
	}
	return fmt.Sprintf("%.1f", *value*scale)
}

func megabytes(bytes int64) string {
	if bytes == 0 {
		return "–"
	}
	return fmt.Sprintf("%.2f MB", float64(bytes)/1e6)
}

// wrong is an error if Meridian gave other tokens: then no figure matters.
func (r *VLLMReport) wrong() error {
	for _, row := range r.Rows {
		if row.Route == meridian && row.Different > 0 {
			return fmt.Errorf("%w: %d answers to prompts of %d tokens have other tokens than those of one server alone", ErrMeasure, row.Different, row.Tokens)
		}
	}
	return nil
}
