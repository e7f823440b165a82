package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// mostBytes is more than any report has: a hundred policies at a hundred loads
// would not reach it.
const mostBytes = 256 << 20

// ErrFile is wrapped by what Read has against a file.
var ErrFile = errors.New("not a report of a replay")

// WriteJSON writes report.json.
func (r *Report) WriteJSON(w io.Writer) error { return writeJSON(w, r) }

func writeJSON(w io.Writer, v any) error {
	text, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		return err
	}
	_, err = w.Write(append(flatten(text), '\n'))
	return err
}

// Read takes a report.json, of this version only.
func Read(from io.Reader) (*Report, error) {
	text, err := io.ReadAll(io.LimitReader(from, mostBytes+1))
	if err != nil {
		return nil, err
	}
	if len(text) > mostBytes {
		return nil, fmt.Errorf("%w: longer than %d bytes", ErrFile, mostBytes)
	}
	r := new(Report)
	if err := json.Unmarshal(text, r); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFile, err)
	}
	if r.Schema != Schema {
		return nil, fmt.Errorf("%w: its schema is %.40q, not %q", ErrFile, r.Schema, Schema)
	}
	if r.Version != Version {
		return nil, fmt.Errorf("%w: its version is %d, this build reads %d", ErrFile, r.Version, Version)
	}
	return r, r.check()
}

// check demands what comparing relies on.
func (r *Report) check() error {
	if len(r.Points) == 0 {
		return fmt.Errorf("%w: it has no points", ErrFile)
	}
	if len(r.Seeds) == 0 {
		return fmt.Errorf("%w: it has no seeds", ErrFile)
	}
	for _, p := range r.Points {
		for _, v := range p.Values {
			if len(v.Seeds) != len(r.Seeds) {
				return fmt.Errorf("%w: %s of %s at load %v has %d values for %d seeds", ErrFile, v.Metric, p.Policy, p.Load, len(v.Seeds), len(r.Seeds))
			}
		}
	}
	return nil
}

// flatten puts arrays of numbers on one line each: a file of a line for each
// number is one that nobody reads.
func flatten(text []byte) []byte {
	out := make([]byte, 0, len(text))
	for i := 0; i < len(text); i++ {
		c := text[i]
		out = append(out, c)
		switch c {
		case '"':
			end := stringEnd(text, i)
			out = append(out, text[i+1:end]...)
			i = end - 1
		case '[':
			if end, flat := flatArray(text, i+1); flat != nil {
				out = append(out, flat...)
				i = end
			}
		}
	}
	return out
}

// stringEnd is behind the quote that ends the string whose first is at i.
func stringEnd(text []byte, i int) int {
	for i++; text[i] != '"'; i++ {
		if text[i] == '\\' {
			i++
		}
	}
	return i + 1
}

// flatArray is the rest of an array without its line breaks, up to its end, if
// it holds no text and no other array or object.
func flatArray(text []byte, i int) (end int, flat []byte) {
	for ; ; i++ {
		switch c := text[i]; c {
		case '\n', ' ':
		case '{', '[', '"':
			return 0, nil
		case ']':
			return i, append(flat, c)
		default:
			flat = append(flat, c)
		}
	}
}
