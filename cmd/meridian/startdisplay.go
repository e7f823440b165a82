package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"meridian/run/cell"
	"meridian/run/cell/demo"
)

// startDisplay shows how a cell starts, lives and stops: on a terminal one line for
// each part, drawn anew as it changes, elsewhere a line for each change.
type startDisplay struct {
	w        io.Writer
	terminal bool
	width    int

	mu       sync.Mutex // protects what follows
	starting bool
	silent   bool
	parts    []string // in the order of their coming
	lines    map[string]string
	drawn    int
	staged   string
}

// newStartDisplay writes to standard output, or beside it where that is for programs.
func newStartDisplay(std *stdio, beside bool) *startDisplay {
	d := &startDisplay{w: std.out, terminal: std.terminal, width: columns(), starting: true, lines: make(map[string]string)}
	if beside {
		d.w, d.terminal = std.err, false
	}
	return d
}

// show takes an event of the cell.
func (d *startDisplay) show(e cell.Event) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.silent {
		return
	}
	line := fmt.Sprintf("  %-14s %-9s", e.Part, e.State)
	if e.Took > 0 && (e.State == cell.Ready || e.State == cell.Stopped) {
		line += fmt.Sprintf(" %5.2f s", e.Took.Seconds())
	} else if e.Detail != "" {
		line += "        "
	}
	if e.Detail != "" {
		line += "  " + e.Detail
	}
	line = strings.TrimRight(printable(line), " ")
	switch {
	case d.starting && d.terminal && e.Detail != "" && (e.State == cell.Waiting || e.Part == "cell"):
		d.redraw(strings.TrimSpace(printable(e.Detail)) + "\n")
	case d.starting && d.terminal:
		if _, known := d.lines[e.Part]; !known {
			d.parts = append(d.parts, e.Part)
		}
		d.lines[e.Part] = line
		d.redraw("")
	case e.Detail == "" && (e.State == cell.Waiting || e.State == cell.Starting || e.State == cell.Stopping):
		// on paper only what came of it is worth a line
	default:
		fmt.Fprintln(d.w, line)
	}
}

// redraw draws all parts over what was drawn before, below a note that stays.
func (d *startDisplay) redraw(note string) {
	if d.drawn > 0 {
		fmt.Fprintf(d.w, "\x1b[%dA\x1b[J", d.drawn)
	}
	fmt.Fprint(d.w, note)
	for _, p := range d.parts {
		fmt.Fprintln(d.w, short(d.lines[p], d.width))
	}
	d.drawn = len(d.parts)
}

// short cuts a line, because one that is broken takes two lines.
func short(line string, width int) string {
	if runes := []rune(line); len(runes) > width {
		return string(runes[:width-1]) + "…"
	}
	return line
}

// columns is how wide the terminal is.
func columns() int {
	const usual, least = 80, 20
	size, err := unix.IoctlGetWinsize(int(os.Stdout.Fd()), unix.TIOCGWINSZ)
	if err != nil || size.Col < least {
		return usual
	}
	return int(size.Col)
}

// started ends the drawing: from now on events are news.
func (d *startDisplay) started(took time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.starting = false
	fmt.Fprintf(d.w, "the cell is ready, after %.1f s\n", took.Seconds())
}

func (d *startDisplay) say(text string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	fmt.Fprintln(d.w, text)
}

// quiet shows nothing any more.
func (d *startDisplay) quiet() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.silent = true
}

// stage shows how far a demo has come.
func (d *startDisplay) stage(s demo.Stage) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.terminal:
		fmt.Fprintf(d.w, "\r\x1b[2K%s: %d of %d prompts", s.Name, s.Done, s.Total)
		if s.Done == s.Total {
			fmt.Fprintln(d.w)
		}
		d.staged = s.Name
	case s.Name != d.staged:
		fmt.Fprintf(d.w, "%d prompts %s\n", s.Total, s.Name)
		d.staged = s.Name
	}
}

// finishStage leaves an empty line before what comes of the demo.
func (d *startDisplay) finishStage() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.staged != "" {
		fmt.Fprintln(d.w)
	}
}
