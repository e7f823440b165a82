package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// progress draws a bar on a terminal, and nothing anywhere else.
type progress struct {
	w     io.Writer
	name  string
	total uint64
	start time.Time
	drawn bool
}

func newProgress(w io.Writer, name string, total uint64) *progress {
	if f, isFile := w.(*os.File); !isFile || !isTerminal(f) {
		w = nil
	}
	return &progress{w: w, name: name, total: total, start: time.Now()}
}

const barWidth = 30

func (p *progress) set(done uint64) {
	if p.w == nil {
		return
	}
	p.drawn = true
	filled := int(barWidth * done / p.total)
	rate := float64(done) / time.Since(p.start).Seconds() / 1e6
	fmt.Fprintf(p.w, "\r%s [%s%s] %3d%% %6.0f MB/s", p.name, strings.Repeat("█", filled), strings.Repeat("·", barWidth-filled), 100*done/p.total, rate)
}

func (p *progress) finish() {
	if p.drawn {
		fmt.Fprintln(p.w)
	}
	p.drawn = false
}
