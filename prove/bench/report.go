package bench

import (
	"encoding/json"
	"io"
)

// WriteJSON writes a report for programs.
func WriteJSON(w io.Writer, report any) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(report)
}
