package bench

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
)

// Answer is the other end of a Process: it reads a request a line, answers each
// with what do returns, and returns when in ends.
func Answer[R any](in io.Reader, out io.Writer, do func(R) (any, error)) error {
	lines, answers := bufio.NewScanner(in), json.NewEncoder(out)
	for lines.Scan() {
		var request R
		if err := json.Unmarshal(lines.Bytes(), &request); err != nil {
			return fmt.Errorf("bench: request %q: %w", lines.Bytes(), err)
		}
		answer, err := do(request)
		if err != nil {
			answer = struct {
				Error string `json:"error"`
			}{err.Error()}
		}
		if err := answers.Encode(answer); err != nil {
			return err
		}
	}
	return lines.Err()
}
