package workload

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"time"
)

// maxLine bounds a line of a trace: 100,000 blocks of a prompt.
const maxLine = 1 << 20

// parser reads requests from the lines of a trace, one by one from the first.
// It says false for a line that holds no request, such as a header.
type parser func(line []byte, number int, r *Request) (bool, error)

// recorded reads a trace whose lines are requests in the order of arrival. It
// is read once when it is opened, so that its faults are told before anything
// ran, and once more as it is replayed.
type recorded struct {
	name       string
	file       fs.File
	lines      *bufio.Scanner
	line       int
	parse      parser
	last       time.Duration
	start, end time.Duration
	scale      float64
	beyond     bool // the trace goes on after the window
	err        error
}

// openRecorded opens a trace and adds to info what the chosen window holds.
// newParser makes a parser for each reading.
func openRecorded(o opening, name string, newParser func(*Info) parser, info Info) (Source, Info, error) {
	begin := func() (*recorded, error) {
		f, err := o.data.Open(name)
		if err != nil {
			return nil, err
		}
		r := &recorded{name: name, file: f, lines: bufio.NewScanner(f), parse: newParser(&info), start: o.Start, scale: o.Scale, end: math.MaxInt64}
		r.lines.Buffer(make([]byte, 64<<10), maxLine)
		if o.Resample {
			r.scale = 1
		}
		if o.Duration > 0 {
			// A product beyond what a Duration holds means to the end.
			if end := float64(o.Start) + float64(o.Duration)*r.scale; end < math.MaxInt64 {
				r.end = time.Duration(end)
			}
		}
		return r, nil
	}
	r, err := begin()
	if err != nil {
		return nil, Info{}, err
	}
	requests, err := r.describe(&info)
	if err != nil {
		return nil, Info{}, err
	}
	length := r.length(info.Duration, requests, o.Duration)
	if r, err = begin(); err != nil {
		return nil, Info{}, err
	}
	if !o.Resample {
		if o.Duration > 0 {
			info.Duration = min(o.Duration, info.Duration)
		}
		return r, info, nil
	}
	info.Rate, info.Duration = o.Scale*requests/max(length.Seconds(), 1), length
	info.Label += "; each seed draws parts of it"
	drawn, err := resample(o, r, length)
	if err != nil {
		return nil, Info{}, errors.Join(err, r.Close())
	}
	return drawn, info, nil
}

// describe reads to the end of the window, and says how many requests it has.
func (r *recorded) describe(info *Info) (requests float64, err error) {
	var prompt, think, output float64
	var last time.Duration
	for q, more := r.Next(); more; q, more = r.Next() {
		requests++
		prompt, think, output = prompt+float64(q.Prompt), think+float64(q.Think), output+float64(q.Output)
		info.Tenants = max(info.Tenants, q.Tenant+1)
		last = q.At
	}
	if r.err != nil {
		return 0, r.err
	}
	if requests == 0 {
		return 0, fmt.Errorf("%s: no requests in the window that starts at %v", r.name, r.start)
	}
	// A window ends with its last request, as far as the trace says; one
	// request alone has no rate, and counts as one a second.
	info.Duration = last
	info.Rate = requests / max(last.Seconds(), 1)
	info.MeanPrompt, info.MeanThink, info.MeanOutput = prompt/requests, think/requests, output/requests
	return requests, nil
}

// Next returns the next request.
func (r *recorded) Next() (Request, bool) {
	for r.err == nil && r.file != nil {
		if !r.lines.Scan() {
			r.err = r.lines.Err()
			if errors.Is(r.err, bufio.ErrTooLong) {
				r.err = fmt.Errorf("%s line %d: longer than %d bytes", r.name, r.line+1, maxLine)
			}
			break
		}
		r.line++
		var q Request
		is, err := r.parse(r.lines.Bytes(), r.line, &q)
		if err == nil && is && q.At < r.last {
			err = fmt.Errorf("arrives at %v, before the line above it, at %v: sort the file by arrival", q.At, r.last)
		}
		if err != nil {
			r.err = fmt.Errorf("%s line %d: %w", r.name, r.line, err)
			break
		}
		if !is {
			continue
		}
		r.last = q.At
		if q.At >= r.end {
			r.beyond = true
			break
		}
		if q.At >= r.start {
			q.At = time.Duration(float64(q.At-r.start) / r.scale).Truncate(time.Microsecond)
			return q, true
		}
	}
	r.Close()
	return Request{}, false
}

// Err is what was wrong with the trace.
func (r *recorded) Err() error { return r.err }

// Close closes the file.
func (r *recorded) Close() error {
	if r.file == nil {
		return nil
	}
	f := r.file
	r.file = nil
	return f.Close()
}
