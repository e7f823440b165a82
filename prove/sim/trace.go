package sim

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// ErrTrace means that a file is not a trace.
var ErrTrace = errors.New("sim: not a trace")

const traceTitle = "meridian sim trace 1"

// WriteTrace writes what it takes to live through the world again, and every
// event, to compare with.
//
//	meridian sim trace 1
//	world handoff           (left out for agents)
//	seed 42
//	faults all
//
//	0.000ms  a#1 …
func (r *Result) WriteTrace(out io.Writer) error {
	b := bufio.NewWriter(out)
	fmt.Fprintln(b, traceTitle)
	if k := r.Options.World; k != "" && k != Agents {
		fmt.Fprintf(b, "world %s\n", k)
	}
	fmt.Fprintf(b, "seed %d\nfaults %s\n\n", r.Options.Seed, r.Options.faultNames())
	for _, line := range r.Lines() {
		fmt.Fprintln(b, line)
	}
	if r.Violation != nil {
		fmt.Fprintf(b, "%s: %s\n", brokenMark, strings.ReplaceAll(r.Violation.Error(), "\n", " "))
	}
	return b.Flush()
}

const brokenMark = "promise broken"

// faultNames lists what may be drawn, as ParseFaults reads it.
func (o *Options) faultNames() string {
	switch {
	case o.Faults == nil:
		return "all"
	case len(o.Faults) == 0:
		return "none"
	}
	names := make([]string, len(o.Faults))
	for i, f := range o.Faults {
		names[i] = f.String()
	}
	return strings.Join(names, ",")
}

// ParseFaults reads "all", "none", or names with commas between.
func ParseFaults(text string) ([]Fault, error) {
	switch text {
	case "all", "":
		return nil, nil
	case "none":
		return []Fault{}, nil
	}
	var faults []Fault
	for name := range strings.SplitSeq(text, ",") {
		f, err := ParseFault(strings.TrimSpace(name))
		if err != nil {
			return nil, err
		}
		faults = append(faults, f)
	}
	return faults, nil
}

// Replay lives through the world of a trace again and compares every event. It
// returns what became of it this time; an error says where the two differ.
func Replay(in io.Reader) (*Result, error) {
	scanner := bufio.NewScanner(in)
	scanner.Buffer(nil, 1<<20)
	o, err := readHeader(scanner)
	if err != nil {
		return nil, err
	}
	r := Run(o)
	var now strings.Builder
	if err := r.WriteTrace(&now); err != nil {
		return nil, err
	}
	_, events, _ := strings.Cut(now.String(), "\n\n")
	lines := strings.Split(strings.TrimSuffix(events, "\n"), "\n")
	for i, line := range lines {
		switch {
		case !scanner.Scan():
			return r, fmt.Errorf("sim: the trace ends before event %d, %q: it was cut, or another build wrote it", i+1, line)
		case scanner.Text() != line:
			return r, fmt.Errorf("sim: event %d differs, so another build wrote the trace, or it was changed\n  trace: %s\n  now:   %s", i+1, scanner.Text(), line)
		}
	}
	if scanner.Scan() {
		return r, fmt.Errorf("sim: the trace goes on after event %d: %q", len(lines), scanner.Text())
	}
	return r, scanner.Err()
}

func readHeader(s *bufio.Scanner) (o Options, err error) {
	if !s.Scan() || s.Text() != traceTitle {
		return o, fmt.Errorf("%w: it does not begin with %q", ErrTrace, traceTitle)
	}
	for s.Scan() && s.Text() != "" {
		key, value, _ := strings.Cut(s.Text(), " ")
		switch key {
		case "world":
			o.World, err = ParseKind(value)
		case "seed":
			o.Seed, err = strconv.ParseUint(value, 10, 64)
		case "faults":
			o.Faults, err = ParseFaults(value)
		default:
			err = errors.New("unknown field")
		}
		if err != nil {
			return o, fmt.Errorf("%w: %q: %w", ErrTrace, s.Text(), err)
		}
	}
	return o, s.Err()
}
