package bench

import (
	"fmt"
	"io"
	"math"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// Head is what every report begins with.
type Head struct {
	Version string    `json:"version"`
	Date    time.Time `json:"date"`
	// Absent peers, and why.
	Absent []Absence `json:"absent,omitempty"`
	// Others is how many cores were used by processes that are not part of the
	// run, on average: the more, the less the figures say.
	Others float64 `json:"-"`
}

// NewHead begins a report of a run of this version that begins now.
func NewHead(version string) Head { return Head{Version: version, Date: time.Now().UTC()} }

// Miss notes an absent peer once, however often it is.
func (h *Head) Miss(a Absence) {
	if !slices.Contains(h.Absent, a) {
		h.Absent = append(h.Absent, a)
	}
}

// Text is the head for people: what measured, when and where; lines that the run adds; who
// is absent, and how much others computed meanwhile, where that is worth a word.
func (h *Head) Text(lines ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "meridian %s, %s, %s\n%s\n", h.Version, runtime.Version(), h.Date.UTC().Format("2006-01-02 15:04 MST"), Machine())
	for _, line := range lines {
		b.WriteString(line + "\n")
	}
	for _, absence := range h.Absent {
		fmt.Fprintf(&b, "%s\n", absence)
	}
	if h.Others >= 0.05 {
		fmt.Fprintf(&b, "others used %.1f cores meanwhile: the more, the less the figures say\n", h.Others)
	}
	return b.String()
}

// Table is a head and a line for each row, in columns: tabs part cells.
func Table[Row any](head string, rows []Row, line func(*Row) string) string {
	var b strings.Builder
	table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, head)
	for i := range rows {
		fmt.Fprintln(table, line(&rows[i]))
	}
	_ = table.Flush() // into memory
	return b.String()
}

// Write writes what a report is made of.
func Write(w io.Writer, parts ...string) error {
	_, err := io.WriteString(w, strings.Join(parts, ""))
	return err
}

// Digits are so many, and all of those before the point.
func Digits(v float64, digits int) string {
	if v >= math.Pow10(digits-1) {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.*g", digits, v)
}

// Peers are those that stand in columns of their own.
type Peers []string

// Beside are the peers that at least one row was measured beside.
func Beside[Row any](all []string, rows []Row, ratios func(*Row) map[string]*float64) (present Peers) {
	for _, name := range all {
		for i := range rows {
			if ratios(&rows[i])[name] != nil {
				present = append(present, name)
				break
			}
		}
	}
	return present
}

// Heads are the heads of their columns.
func (p Peers) Heads() (heads string) {
	for _, name := range p {
		heads += "\t" + strings.ToUpper(name)
	}
	return heads
}

// Cells are a row's, with a dash for who was not measured beside it.
func (p Peers) Cells(ratios map[string]*float64, cell func(name string, ratio float64) string) (cells string) {
	for _, name := range p {
		text := "–"
		if ratio := ratios[name]; ratio != nil {
			text = cell(name, *ratio)
		}
		cells += "\t" + text
	}
	return cells
}
