package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"meridian/kv"
	"meridian/move/reshard"
)

// linkRate is in bytes a second.
type linkRate float64

var linkUnits = []struct {
	suffix         string
	bytesPerSecond float64
}{
	{"tbps", 1e12 / 8},
	{"gbps", 1e9 / 8},
	{"mbps", 1e6 / 8},
	{"kbps", 1e3 / 8},
	{"tb/s", 1e12},
	{"gb/s", 1e9},
	{"mb/s", 1e6},
	{"kb/s", 1e3},
}

func parseLink(text string) (linkRate, error) {
	for _, unit := range linkUnits {
		digits, found := strings.CutSuffix(strings.ToLower(text), unit.suffix)
		if !found {
			continue
		}
		n, err := strconv.ParseFloat(strings.TrimSpace(digits), 64)
		if rate := n * unit.bytesPerSecond; err == nil && rate >= 1 && !math.IsInf(rate, 0) {
			return linkRate(rate), nil
		}
	}
	return 0, fmt.Errorf("--link: %q is no rate", text)
}

// over is how long so many bytes take at this rate and no overhead.
func (r linkRate) over(bytes int64) time.Duration {
	took := time.Duration(math.Min(float64(bytes)/float64(r)*1e9, math.MaxInt64/2))
	unit := time.Nanosecond
	for took/unit >= 10000 { // four digits say enough
		unit *= 10
	}
	return took.Round(unit)
}

// bytesText writes a size for people.
func bytesText(n int64) string {
	const units = "KMGTPE"
	if n < 1<<10 {
		return strconv.FormatInt(n, 10) + " B"
	}
	value, unit := float64(n)/1024, 0
	for value >= 1023.995 {
		value, unit = value/1024, unit+1
	}
	text := strconv.FormatFloat(value, 'f', 2, 64)
	return strings.TrimSuffix(strings.TrimRight(text, "0"), ".") + " " + units[unit:unit+1] + "iB"
}

func (p *planned) total() (bytes, runs, pieces int64) {
	for _, f := range p.flows {
		r, n := f.CountRuns()
		bytes, runs, pieces = bytes+f.Bytes(), runs+r, pieces+n
	}
	return bytes, runs, pieces
}

func sideText(s reshard.Side) string {
	text := fmt.Sprintf("%v, %v, blocks of %d tokens", s.Parallelism, s.Layout, s.BlockTokens)
	if !s.Packing.Plain() {
		text += ", packed " + s.Packing.String()
	}
	if s.Parallelism.CP > 1 && s.InterleaveTokens > 0 {
		text += fmt.Sprintf(", turns of %d tokens", s.InterleaveTokens)
	}
	return text
}

func geometryText(g kv.Geometry) string {
	var kinds []string
	for _, group := range g.Groups() {
		text := fmt.Sprintf("%d × %d KV heads of %d", len(group.Indices), group.KVHeads, group.HeadDim)
		if group.Attention == kv.Latent {
			text = fmt.Sprintf("%d × a latent of %d", len(group.Indices), group.HeadDim)
		}
		if group.IndexBytes > 0 {
			text += fmt.Sprintf(" and an indexer of %d bytes", group.IndexBytes)
		}
		if group.WindowTokens > 0 {
			text += fmt.Sprintf(", window %d", group.WindowTokens)
		}
		kinds = append(kinds, text)
	}
	return fmt.Sprintf("%d layers (%s), %v, %s a token", len(g.Layers), strings.Join(kinds, "; "), g.DType, bytesText(g.BytesPerToken()))
}

// holds says what a rank has of every token: layers, and heads where all layers
// have equally many.
func holds(s reshard.Side, rank int) string {
	r := s.Parallelism.Rank(rank)
	first, end := s.Parallelism.Layers(r.PP)
	text := span("layer", first, end)
	heads := s.Geometry.Layers[first].KVHeads
	if s.Geometry.Layers[first].Attention == kv.KeyValue &&
		!slices.ContainsFunc(s.Geometry.Layers[first:end], func(l kv.Layer) bool { return l.KVHeads != heads }) {
		first, end = s.Parallelism.Heads(r.TP, heads)
		text += ", " + span("head", first, end)
	}
	if s.Parallelism.CP > 1 {
		text += fmt.Sprintf(", cp %d", r.CP)
	}
	if s.Parallelism.DP > 1 {
		text += fmt.Sprintf(", dp %d", r.DP)
	}
	return text
}

func span(what string, first, end int) string {
	if end-first == 1 {
		return fmt.Sprintf("%s %d", what, first)
	}
	return fmt.Sprintf("%ss %d–%d", what, first, end-1)
}

// matrix returns what goes from rank to rank, and what each sends and receives.
func (p *planned) matrix() (cells map[[2]int]int64, sent, received []int64) {
	cells = make(map[[2]int]int64)
	sent, received = make([]int64, len(p.srcBytes)), make([]int64, len(p.dstBytes))
	for _, f := range p.flows {
		bytes := f.Bytes()
		cells[[2]int{f.Src, f.Dst}] = bytes
		sent[f.Src] += bytes
		received[f.Dst] += bytes
	}
	return cells, sent, received
}

// widestMatrix is how many destination ranks fit side by side on a terminal.
const widestMatrix = 8

func (p *planned) writeText(w io.Writer, link linkRate) error {
	bytes, runs, pieces := p.total()
	facts := newTable(w, "")
	fmt.Fprintf(facts, "model\t%s: %s\n", p.model, geometryText(p.src.Geometry))
	fmt.Fprintf(facts, "from\t%s\n", sideText(p.src))
	fmt.Fprintf(facts, "to\t%s\n", sideText(p.dst))
	fmt.Fprintf(facts, "moves\t%s of tokens %v: %s, %s, %s\n", bytesText(bytes), p.tokens,
		plural(int64(len(p.flows)), "pair of ranks", "pairs of ranks"), plural(runs, "run", "runs"), plural(pieces, "piece", "pieces"))
	for _, line := range p.timeText(link) {
		fmt.Fprintf(facts, "takes\t%s\n", line)
	}
	fmt.Fprintf(facts, "digest\t%v\n", p.digest)
	if err := facts.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(w)
	if len(p.dstBytes) > widestMatrix {
		return p.writeList(w)
	}
	return p.writeMatrix(w)
}

func plural(n int64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// timeText says what the bytes take over one link, and where every rank has one,
// which is as long as the busiest takes.
func (p *planned) timeText(link linkRate) []string {
	if link == 0 {
		return nil
	}
	bytes, _, _ := p.total()
	_, sent, received := p.matrix()
	busiest := max(slices.Max(sent), slices.Max(received))
	return []string{
		fmt.Sprintf("%v over one link of %s/s", link.over(bytes), decimalText(float64(link))),
		fmt.Sprintf("%v where every rank has one: the busiest moves %s", link.over(busiest), bytesText(busiest)),
	}
}

// decimalText writes a rate the way links are sold.
func decimalText(n float64) string {
	unit := "B"
	for _, larger := range []string{"kB", "MB", "GB", "TB"} {
		if n < 1000 {
			break
		}
		n, unit = n/1000, larger
	}
	return strconv.FormatFloat(n, 'g', 4, 64) + " " + unit
}

func (p *planned) writeMatrix(w io.Writer) error {
	cells, sent, received := p.matrix()
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(table, "source\t")
	for dst := range received {
		fmt.Fprintf(table, "→ %d\t", dst)
	}
	fmt.Fprint(table, "sends\t\n")
	for src := range sent {
		fmt.Fprintf(table, "%d\t", src)
		for dst := range received {
			fmt.Fprintf(table, "%s\t", cellText(cells[[2]int{src, dst}]))
		}
		fmt.Fprintf(table, "%s\t  %s\n", cellText(sent[src]), holds(p.src, src))
	}
	fmt.Fprint(table, "receives\t")
	for dst := range received {
		fmt.Fprintf(table, "%s\t", cellText(received[dst]))
	}
	bytes, _, _ := p.total()
	fmt.Fprintf(table, "%s\t\n", cellText(bytes))
	if err := table.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(w)
	for dst := range received {
		fmt.Fprintf(w, "→ %d  %s\n", dst, holds(p.dst, dst))
	}
	return nil
}

func cellText(bytes int64) string {
	if bytes == 0 {
		return "·"
	}
	return bytesText(bytes)
}

// writeList is for more destination ranks than columns fit.
func (p *planned) writeList(w io.Writer) error {
	cells, sent, received := p.matrix()
	table := newTable(w, "destination\tholds\treceives\tfrom")
	for dst := range received {
		var from []string
		for src := range sent {
			if bytes := cells[[2]int{src, dst}]; bytes > 0 {
				from = append(from, fmt.Sprintf("%d (%s)", src, bytesText(bytes)))
			}
		}
		fmt.Fprintf(table, "%d\t%s\t%s\t%s\n", dst, holds(p.dst, dst), cellText(received[dst]), strings.Join(from, ", "))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(w)
	fmt.Fprintln(table, "source\tholds\tsends")
	for src := range sent {
		fmt.Fprintf(table, "%d\t%s\t%s\n", src, holds(p.src, src), cellText(sent[src]))
	}
	return table.Flush()
}
