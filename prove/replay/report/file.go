package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// What a report holds at most. Build makes no larger one, and Read, whose file
// comes from elsewhere, takes no larger one.
const (
	MaxPolicies = 64
	MaxLoads    = 64
	MaxSeeds    = 1000
	maxMetrics  = 256
	maxName     = 200 // bytes of a name of a policy or a metric
)

// What Read looks at before it decodes: a decoder makes many bytes of a few, a
// hundred of "{}".
const (
	maxBytes   = 32 << 20
	maxObjects = 1 << 18
	maxMembers = 4 << 20 // of objects and arrays together
)

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
	text, err := io.ReadAll(io.LimitReader(from, maxBytes+1))
	if err != nil {
		return nil, err
	}
	if err := weigh(text); err != nil {
		return nil, err
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

// weigh refuses what would be large once decoded.
func weigh(text []byte) error {
	switch {
	case len(text) > maxBytes:
		return fmt.Errorf("%w: it has more than %d bytes", ErrFile, maxBytes)
	case bytes.Count(text, []byte{'{'}) > maxObjects:
		return fmt.Errorf("%w: it has more than %d objects", ErrFile, maxObjects)
	case bytes.Count(text, []byte{','}) > maxMembers:
		return fmt.Errorf("%w: it has more than %d members", ErrFile, maxMembers)
	}
	return nil
}

// check demands what comparing relies on, and bounds its work.
func (r *Report) check() error {
	if err := r.count(); err != nil {
		return fmt.Errorf("%w: %w", ErrFile, err)
	}
	type place struct {
		policy string
		load   float64
	}
	seen := make(map[place]bool, len(r.Points))
	for _, p := range r.Points {
		at := place{p.Policy, p.Load}
		if seen[at] {
			return fmt.Errorf("%w: %s at load %v comes twice", ErrFile, p.Policy, p.Load)
		}
		seen[at] = true
		for _, v := range p.Values {
			if len(v.Seeds) != len(r.Seeds) {
				return fmt.Errorf("%w: %s of %s at load %v has %d values for %d seeds", ErrFile, v.Metric, p.Policy, p.Load, len(v.Seeds), len(r.Seeds))
			}
		}
	}
	return nil
}

// count holds a report to its bounds.
func (r *Report) count() error {
	between := func(what string, count, least, most int) error {
		if count < least || count > most {
			return fmt.Errorf("%d %s; there are %d to %d", count, what, least, most)
		}
		return nil
	}
	err := errors.Join(
		between("policies", len(r.Policies), 1, MaxPolicies), between("loads", len(r.Loads), 1, MaxLoads), between("seeds", len(r.Seeds), 1, MaxSeeds),
		between("metrics", len(r.Metrics), 0, maxMetrics), between("variants", len(r.Variants), 0, MaxPolicies),
		between("points", len(r.Points), 1, len(r.Policies)*len(r.Loads)))
	for _, p := range r.Points {
		err = errors.Join(err, between("bytes of a policy's name", len(p.Policy), 1, maxName), between("values of a point", len(p.Values), 0, maxMetrics))
		if err != nil {
			return err // the first: a hostile file has a hundred thousand
		}
	}
	return err
}

// flatten puts arrays of numbers on one line each: a file of a line for each
// number cannot be read.
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
