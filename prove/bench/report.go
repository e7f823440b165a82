package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"time"
)

// WriteJSON writes a report for programs.
func WriteJSON(w io.Writer, report any) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(report)
}

// Heading is the first lines of a report for people: what measured, when, and where.
func Heading(version string, date time.Time) string {
	return fmt.Sprintf("meridian %s, %s, %s\n%s\n", version, runtime.Version(), date.UTC().Format("2006-01-02 15:04 MST"), Machine())
}

// BesideOthers is the line of a report that says how many cores others used meanwhile, where
// that is worth a word.
func BesideOthers(cores float64) string {
	if cores >= 0.05 {
		return fmt.Sprintf("others used %.1f cores meanwhile: the more, the less the figures say\n", cores)
	}
	return ""
}
