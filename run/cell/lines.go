package cell

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Line is one line of a part's log.
type Line struct {
	Part string    `json:"part"`
	Time time.Time `json:"time"`
	// Text is a line for people, Event one of JSON.
	Text  string          `json:"text,omitempty"`
	Event json.RawMessage `json:"event,omitempty"`
}

// parseLine takes the time off that journals put before lines. A line without
// one belongs to the time of the one before it.
func parseLine(part, text string, before time.Time) Line {
	text = strings.TrimRight(text, "\n")
	if stamp, rest, found := strings.Cut(text, " "); found {
		if t, err := time.Parse(logTime, stamp); err == nil {
			return Line{Part: part, Time: t, Text: rest}
		}
	}
	t := ownTime(text)
	if t.IsZero() {
		t = before
	}
	if strings.HasPrefix(text, "{") && json.Valid([]byte(text)) {
		return Line{Part: part, Time: t, Event: json.RawMessage(text)}
	}
	return Line{Part: part, Time: t, Text: text}
}

// written is the line as its part wrote it.
func (l Line) written() string {
	if l.Event != nil {
		return string(l.Event)
	}
	return l.Text
}

// LogNames lists the parts that have logs in a state directory.
func LogNames(dir string) ([]string, error) {
	paths, err := filepath.Glob(logPath(dir, "*"))
	var names []string
	for _, path := range paths {
		names = append(names, strings.TrimSuffix(filepath.Base(path), ".log"))
	}
	return names, err
}

// checkNames refuses parts that have no log; none named means all.
func checkNames(dir string, names []string) ([]string, error) {
	there, err := LogNames(dir)
	if err != nil {
		return nil, err
	}
	if len(there) == 0 {
		return nil, fmt.Errorf("there are no logs in %s; `meridian up` starts a cell", filepath.Join(dir, logsDir))
	}
	for _, name := range names {
		if !slices.Contains(there, name) {
			return nil, fmt.Errorf("there is no log of %q; there are %s", name, strings.Join(there, ", "))
		}
	}
	if len(names) == 0 {
		return there, nil
	}
	return names, nil
}

// LogOptions says which logs are read.
type LogOptions struct {
	StateDir string
	// Parts are those whose logs are read; none means all.
	Parts []string
	// Last is how many lines of each part are shown of what there is; negative
	// means all.
	Last int
	// Since leaves out what was written before; zero means nothing.
	Since time.Time
	// Request leaves out lines that are not about this request or transfer, whose id
	// or whose beginning it is, or what its client called it; "" leaves out none.
	Request string
	// Cut, where given, is told how many earlier lines of a part Last left out.
	Cut func(part string, lines int)
	// Follow goes on with what is written, until its context ends.
	Follow bool

	trail *logFilter // of Request
}

// followEvery is how often logs are looked at.
const followEvery = 100 * time.Millisecond

// Logs shows the logs of several parts as one, in the order of time.
func Logs(ctx context.Context, o LogOptions, show func(Line) error) error {
	names, err := checkNames(o.StateDir, o.Parts)
	if err != nil {
		return err
	}
	if o.Request != "" {
		// Which hand-offs are a request's, logs of other parts may tell.
		if o.trail, err = newLogFilter(o.Request); err != nil {
			return err
		}
		if names, err = LogNames(o.StateDir); err != nil {
			return err
		}
	}
	readers := make(map[string]*logReader)
	defer func() {
		for _, r := range readers {
			r.close()
		}
	}()
	past := make(map[string][]Line)
	for _, name := range names {
		r := &logReader{part: name, path: logPath(o.StateDir, name)}
		readers[name] = r
		if past[name], err = r.past(); err != nil {
			return err
		}
		o.learn(past[name])
	}
	if o.trail != nil {
		if err := o.trail.check(); err != nil {
			return err
		}
	}
	var lines []Line
	for _, name := range names {
		lines = append(lines, o.last(name, o.wanted(past[name]))...)
	}
	past = nil
	if o.Request != "" && len(lines) == 0 && !o.Follow {
		return fmt.Errorf("no line in %s names a request or a transfer %s", filepath.Join(o.StateDir, logsDir), o.Request)
	}
	for {
		slices.SortStableFunc(lines, func(a, b Line) int { return a.Time.Compare(b.Time) })
		for _, line := range lines {
			if err := show(line); err != nil {
				return err
			}
		}
		if !o.Follow {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(followEvery):
		}
		if lines, err = news(o, readers); err != nil {
			return err
		}
		o.learn(lines)
		lines = o.wanted(lines)
	}
}

func (o *LogOptions) learn(lines []Line) {
	if o.trail != nil {
		for _, l := range lines {
			o.trail.learn(l)
		}
	}
}

// wanted leaves out what was not asked for.
func (o *LogOptions) wanted(lines []Line) []Line {
	return slices.DeleteFunc(lines, func(l Line) bool {
		return l.Time.Before(o.Since) || o.trail != nil && !o.trail.names(l) || len(o.Parts) > 0 && !slices.Contains(o.Parts, l.Part)
	})
}

// last is the end of what a part has written.
func (o *LogOptions) last(part string, lines []Line) []Line {
	if o.Last < 0 || len(lines) <= o.Last {
		return lines
	}
	if o.Cut != nil {
		o.Cut(part, len(lines)-o.Last)
	}
	return lines[len(lines)-o.Last:]
}

// news is what was written since, also by parts that were not there before.
func news(o LogOptions, readers map[string]*logReader) ([]Line, error) {
	if len(o.Parts) == 0 {
		names, err := LogNames(o.StateDir)
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			if readers[name] == nil {
				readers[name] = &logReader{part: name, path: logPath(o.StateDir, name)}
			}
		}
	}
	var lines []Line
	for _, r := range readers {
		found, err := r.more()
		if err != nil {
			return nil, err
		}
		lines = append(lines, found...)
	}
	return lines, nil
}

// logReader reads one log as it grows, over its being put aside.
type logReader struct {
	part, path string
	file       *os.File
	lines      *bufio.Reader
	partial    string // a line whose end has not been written
	last       time.Time
}

// past is what there is, with what was put aside before it.
func (r *logReader) past() ([]Line, error) {
	older := &logReader{part: r.part, path: r.path + ".1"}
	defer older.close()
	lines, err := older.more()
	if err != nil {
		return nil, err
	}
	r.last = older.last
	recent, err := r.more()
	return append(lines, recent...), err
}

// more is what was written since the last time.
func (r *logReader) more() ([]Line, error) {
	var lines []Line
	for {
		if r.file == nil {
			file, err := os.Open(r.path)
			if errors.Is(err, fs.ErrNotExist) {
				return lines, nil
			}
			if err != nil {
				return lines, err
			}
			r.file, r.lines = file, bufio.NewReader(file)
		}
		// Whether there is a newer file is asked before the end of this one is
		// read: what is put aside is not written any more.
		replaced := r.replaced()
		found, err := r.rest()
		lines = append(lines, found...)
		if err != nil || !replaced {
			return lines, err
		}
		r.close()
	}
}

func (r *logReader) replaced() bool {
	now, err := os.Stat(r.path)
	if err != nil {
		return false
	}
	open, err := r.file.Stat()
	return err == nil && !os.SameFile(now, open)
}

func (r *logReader) rest() ([]Line, error) {
	var lines []Line
	for {
		text, err := r.lines.ReadString('\n')
		r.partial += text
		if errors.Is(err, io.EOF) {
			return lines, nil
		}
		if err != nil {
			return lines, err
		}
		line := parseLine(r.part, r.partial, r.last)
		r.partial, r.last = "", line.Time
		lines = append(lines, line)
	}
}

func (r *logReader) close() {
	if r.file != nil {
		r.file.Close()
		r.file, r.partial = nil, ""
	}
}
