package transfer

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"meridian/prove/bench"
)

// Report is what a run found.
type Report struct {
	Rows    []Row
	Latency []LatencyRow
	// Absent peers, and why.
	Absent []bench.Absence
	// Others is how many cores were used by processes that are not part of the
	// run, on average: the more, the less the figures say.
	Others float64

	options  Options
	date     time.Time
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
	all := make(map[string]*float64, len(peers))
	for _, name := range PeerNames() {
		all[name] = nil
		if f, there := r.beside[name]; there && f.Median > 0 {
			all[name] = new(bench.Rounded(r.Median / f.Median))
		}
	}
	return all
}

func newReport(o Options) *Report {
	return &Report{Rows: []Row{}, options: o, date: time.Now()}
}

// miss notes an absent peer once, whatever the number of fabrics.
func (r *Report) miss(a bench.Absence) {
	if !slices.Contains(r.Absent, a) {
		r.Absent = append(r.Absent, a)
	}
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
	if _, err := io.WriteString(w, r.header()); err != nil {
		return err
	}
	if len(r.Rows) > 0 {
		return r.writeRows(w)
	}
	return r.writeLatency(w)
}

func (r *Report) header() string {
	var b strings.Builder
	fmt.Fprintf(&b, "meridian %s, %s, %s\n", r.options.Version, runtime.Version(), r.date.UTC().Format("2006-01-02 15:04 MST"))
	fmt.Fprintf(&b, "%s\n", bench.Machine())
	if len(r.versions) > 0 {
		fmt.Fprintf(&b, "beside %s\n", strings.Join(r.versions, ", "))
	}
	for _, name := range r.options.Fabrics {
		if kind := fabricByName(name); kind.note != "" {
			fmt.Fprintf(&b, "%s: in %s, %s\n", name, cmp.Or(r.options.Dir, os.TempDir()), kind.note)
		}
	}
	for _, absence := range r.Absent {
		fmt.Fprintf(&b, "%s\n", absence)
	}
	b.WriteString(bench.BesideOthers(r.Others))
	return b.String()
}

func (r *Report) writeRows(w io.Writer) error {
	streams := ""
	if slices.ContainsFunc(r.options.Fabrics, func(name string) bool { return fabricByName(name).streams }) {
		streams = fmt.Sprintf(" over %d streams", r.options.Streams)
	}
	fmt.Fprintf(w, "GB/s (1e9 bytes), median [min–max] of %d rounds of %s%s; ×: Meridian's median over the peer's; OTHERS: cores used by others\n\n",
		r.options.Rounds, r.options.Total, streams)
	present := r.present()
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "FABRIC\tOP\tBLOCK\tLAYOUT\tSUMS%s\tMERIDIAN", r.protectCell("PROTECT"))
	for _, name := range present {
		fmt.Fprintf(table, "\t%s", strings.ToUpper(name))
	}
	fmt.Fprintln(table, "\tOTHERS")
	for _, row := range r.Rows {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s%s\t%s", row.Fabric, row.Op, row.Block, row.Layout, row.Checksum, r.protectCell(row.Protect), row.Figure)
		for _, name := range present {
			if ratio := row.Ratio[name]; ratio != nil {
				fmt.Fprintf(table, "\t%s %.2f×", row.beside[name], *ratio)
			} else {
				fmt.Fprint(table, "\t–")
			}
		}
		fmt.Fprintf(table, "\t%.1f\n", row.others)
	}
	return table.Flush()
}

// protectCell is a cell of the column that is there only when something else
// than no protection was measured.
func (r *Report) protectCell(text string) string {
	if slices.Equal(r.options.Protect, []string{noProtection}) {
		return ""
	}
	return "\t" + text
}

// present lists the peers that at least one row was measured beside.
func (r *Report) present() (names []string) {
	for _, name := range PeerNames() {
		if slices.ContainsFunc(r.Rows, func(row Row) bool { return row.Ratio[name] != nil }) {
			names = append(names, name)
		}
	}
	return names
}
