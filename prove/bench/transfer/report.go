package transfer

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"meridian/prove/bench"
)

// Report is what a run found.
type Report struct {
	bench.Head
	Rows    []Row
	Latency []LatencyRow

	options  Options
	versions []string
}

// Row is one line of the table.
type Row struct {
	Fabric   string `json:"fabric"`
	Op       string `json:"op"`
	Block    string `json:"block"`
	Layout   Layout `json:"layout"`
	Checksum string `json:"checksum"`
	Protect  string `json:"protect"`
	bench.Figure
	// Ratio is this row's median over each peer's; nil for one that is absent.
	Ratio map[string]*float64 `json:"ratio"`

	beside map[string]bench.Figure
	others float64 // as Report.Others, during this row
}

// ratios has a key for every peer there could be.
func (r *Row) ratios() map[string]*float64 {
	all := make(map[string]*float64)
	for _, name := range PeerNames() {
		all[name] = nil
		if f, there := r.beside[name]; there && f.Median > 0 {
			all[name] = new(bench.Rounded(r.Median / f.Median))
		}
	}
	return all
}

func newReport(o Options) *Report {
	return &Report{Head: bench.NewHead(o.Version), Rows: []Row{}, options: o}
}

func (r *Report) addVersion(title string) {
	if !slices.Contains(r.versions, title) {
		r.versions = append(r.versions, title)
	}
}

// WriteJSON writes the rows for programs.
func (r *Report) WriteJSON(w io.Writer) error {
	return bench.WriteJSON(w, struct {
		Rows    []Row        `json:"rows"`
		Latency []LatencyRow `json:"latency,omitempty"`
	}{r.Rows, r.Latency})
}

// WriteText writes a table for people, with what is needed to read it.
func (r *Report) WriteText(w io.Writer) error {
	table := r.latencyTable
	if len(r.Rows) > 0 {
		table = r.rowsTable
	}
	return bench.Write(w, r.header(), table())
}

func (r *Report) header() string {
	var lines []string
	if len(r.versions) > 0 {
		lines = append(lines, "beside "+strings.Join(r.versions, ", "))
	}
	for _, name := range r.options.Fabrics {
		if kind := fabricByName(name); kind.note != "" {
			lines = append(lines, fmt.Sprintf("%s: in %s, %s", name, cmp.Or(r.options.Dir, os.TempDir()), kind.note))
		}
	}
	return r.Text(lines...)
}

func (r *Report) rowsTable() string {
	streams := ""
	if slices.ContainsFunc(r.options.Fabrics, func(name string) bool { return fabricByName(name).streams }) {
		streams = fmt.Sprintf(" over %d streams", r.options.Streams)
	}
	note := fmt.Sprintf("GB/s (1e9 bytes), median [min–max] of %d rounds of %s%s; ×: Meridian's median over the peer's; OTHERS: cores used by others\n\n",
		r.options.Rounds, r.options.Total, streams)
	beside := bench.Beside(PeerNames(), r.Rows, func(row *Row) map[string]*float64 { return row.Ratio })
	head := "FABRIC\tOP\tBLOCK\tLAYOUT\tSUMS" + r.protectCell("PROTECT") + "\tMERIDIAN" + beside.Heads() + "\tOTHERS"
	return note + bench.Table(head, r.Rows, func(row *Row) string {
		return fmt.Sprintf("%s\t%s\t%s\t%s\t%s%s\t%s%s\t%.1f", row.Fabric, row.Op, row.Block, row.Layout, row.Checksum, r.protectCell(row.Protect), row.Figure,
			beside.Cells(row.Ratio, func(name string, ratio float64) string { return fmt.Sprintf("%s %.2f×", row.beside[name], ratio) }), row.others)
	})
}

// protectCell is a cell of the column that is there only when something else
// than no protection was measured.
func (r *Report) protectCell(text string) string {
	if slices.Equal(r.options.Protect, []string{noProtection}) {
		return ""
	}
	return "\t" + text
}
