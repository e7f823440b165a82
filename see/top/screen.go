package top

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	tea "charm.land/bubbletea/v2"
)

// Options configures Run.
type Options struct {
	In  io.Reader
	Out io.Writer
	// Sources lists whom to ask; it is called before each look, because processes come
	// and go.
	Sources func(context.Context) ([]Source, error)
	// Interval is how long to wait between looks.
	Interval time.Duration
	// Clean makes a text that another process wrote fit for a line of a terminal.
	Clean func(string) string
}

// Run shows the cell until a person has seen enough, or ctx ends.
func Run(ctx context.Context, o Options) error {
	ctx, cancel := context.WithCancel(ctx)
	s := &screen{options: o, ctx: ctx, looking: new(sync.WaitGroup)}
	_, err := tea.NewProgram(s, tea.WithContext(ctx), tea.WithInput(o.In), tea.WithOutput(o.Out)).Run()
	cancel()
	s.looking.Wait()
	if errors.Is(err, tea.ErrProgramKilled) || errors.Is(err, tea.ErrInterrupted) {
		return nil // it was told to stop
	}
	return err
}

// orders are what workers can be sorted by.
var orders = []struct {
	name    string
	compare func(a, b Worker) int
}{
	{"role", func(a, b Worker) int { return cmp.Compare(a.Role, b.Role) }},
	{"name", func(a, b Worker) int { return cmp.Compare(a.Name, b.Name) }},
	{"running", func(a, b Worker) int { return cmp.Compare(b.Running, a.Running) }},
	{"waiting", func(a, b Worker) int { return cmp.Compare(b.Waiting, a.Waiting) }},
	{"tokens/s", func(a, b Worker) int { return cmp.Compare(b.TokensPerSecond, a.TokensPerSecond) }},
	{"memory", func(a, b Worker) int { return cmp.Compare(b.Used, a.Used) }},
	{"hand-offs", func(a, b Worker) int { return cmp.Compare(b.HandOffs, a.HandOffs) }},
}

// screen is the state of the terminal. Bubble Tea calls its methods one at a time.
type screen struct {
	options Options
	ctx     context.Context
	looking *sync.WaitGroup

	last          *Snapshot
	figures       *Figures
	problem       error // why there is nothing new
	paused        bool
	order         int
	reversed      bool
	width, height int
}

type (
	looked struct {
		look *Snapshot
		err  error
	}
	again struct{}
)

// Init begins with a look.
func (s *screen) Init() tea.Cmd { return s.look() }

func (s *screen) look() tea.Cmd {
	s.looking.Add(1)
	return func() tea.Msg {
		defer s.looking.Done()
		sources, err := s.options.Sources(s.ctx)
		if err != nil {
			return looked{err: err}
		}
		return looked{look: Take(s.ctx, sources)}
	}
}

func (s *screen) wait() tea.Cmd {
	return tea.Tick(s.options.Interval, func(time.Time) tea.Msg { return again{} })
}

// Update takes in what has happened.
func (s *screen) Update(message tea.Msg) (tea.Model, tea.Cmd) {
	switch m := message.(type) {
	case tea.WindowSizeMsg:
		s.width, s.height = m.Width, m.Height
	case tea.KeyPressMsg:
		return s, s.press(m.String())
	case again:
		if s.paused {
			return s, s.wait()
		}
		return s, s.look()
	case looked:
		s.take(m)
		return s, s.wait()
	}
	return s, nil
}

func (s *screen) take(m looked) {
	s.problem = m.err
	if m.err != nil || s.paused {
		return
	}
	before := cmp.Or(s.last, m.look)
	s.figures, s.last = Compare(m.look, before), m.look
}

func (s *screen) press(key string) tea.Cmd {
	switch key {
	case "q", "esc", "ctrl+c":
		return tea.Quit
	case "p", "space":
		s.paused = !s.paused
	case "s", "right":
		s.order = (s.order + 1) % len(orders)
	case "S", "left":
		s.order = (s.order + len(orders) - 1) % len(orders)
	case "r":
		s.reversed = !s.reversed
	case "+":
		s.options.Interval = max(s.options.Interval/2, 250*time.Millisecond)
	case "-":
		s.options.Interval = min(s.options.Interval*2, time.Minute)
	}
	return nil
}

// View draws what is known, as much of it as there is room for.
func (s *screen) View() tea.View {
	lines := s.lines()
	if s.height > 0 && len(lines) > s.height {
		lines = lines[:s.height]
	}
	for i, line := range lines {
		lines[i] = clip(line, s.width)
	}
	view := tea.NewView(strings.Join(lines, "\n"))
	view.AltScreen, view.WindowTitle = true, "meridian top"
	return view
}

func (s *screen) lines() []string {
	state := fmt.Sprintf("every %v", s.options.Interval)
	if s.paused {
		state = "PAUSED"
	}
	lines := []string{fmt.Sprintf("meridian top · %s · q quits, p pauses, s sorts by another column, r turns the order, + and - change the pace", state)}
	if s.problem != nil {
		lines = append(lines, "the directory does not answer: "+s.options.Clean(s.problem.Error()))
	}
	if s.figures == nil {
		return append(lines, "looking …")
	}
	return append(lines, s.figures.lines(s.options.Clean, s.sorted(), orders[s.order].name)...)
}

func (s *screen) sorted() []Worker {
	workers := slices.Clone(s.figures.Workers)
	slices.SortStableFunc(workers, func(a, b Worker) int { return orders[s.order].compare(a, b) })
	if s.reversed {
		slices.Reverse(workers)
	}
	return workers
}

// Text is the figures for a person, without a screen.
func (f *Figures) Text(clean func(string) string) string {
	return strings.Join(f.lines(clean, f.Workers, "role"), "\n") + "\n"
}

// lines are the figures as text.
func (f *Figures) lines(clean func(string) string, workers []Worker, order string) []string {
	r, m := f.Requests, f.Moving
	lines := []string{
		f.At.Format(time.TimeOnly),
		fmt.Sprintf("requests   %7.1f/s, %.0f running, %.0f waiting, %.1f failed/s, %.0f tokens/s", r.PerSecond, r.Running, r.Waiting, r.FailedPerSecond, r.TokensPerSecond),
		fmt.Sprintf("transfers  %7.1f/s, %s/s, %.1f failed/s; hand-offs %.1f/s, %.0f running", m.PerSecond, bytesText(m.BytesPerSecond), m.FailedPerSecond, m.HandOffsPerSecond, m.Running),
		"", fmt.Sprintf("%-20s %-8s %-5s %8s %8s %10s %7s %10s   by %s", "WORKER", "ROLE", "STATE", "RUNNING", "WAITING", "TOKENS/S", "KV", "HAND-OFFS", order),
	}
	for _, w := range workers {
		state := "up"
		if !w.Up {
			state = "GONE"
		}
		lines = append(lines, fmt.Sprintf("%-20s %-8s %-5s %8.0f %8.0f %10.1f %6.1f%% %10.0f", clip(clean(w.Name), 20), clip(clean(w.Role), 8), state, w.Running, w.Waiting, w.TokensPerSecond, 100*w.Used, w.HandOffs))
	}
	lines = append(lines, "", fmt.Sprintf("%-12s %8s %12s %12s", "PHASE", "COUNT", "MEDIAN", "99 OF 100"))
	for _, l := range f.Latency {
		note := ""
		if l.Overall {
			note = "  since the start"
		}
		lines = append(lines, fmt.Sprintf("%-12s %8.0f %9.2f ms %9.2f ms%s", l.Phase, l.Count, l.Median, l.P99, note))
	}
	lines = append(lines, "", fmt.Sprintf("%-14s %-20s %-12s", "MEMORY", "WHERE", "USED"))
	for _, t := range f.Memory {
		lines = append(lines, fmt.Sprintf("%-14s %-20s %s %s", t.Tier, clip(clean(t.Where), 20), bar(t.Used, t.Total), t.amount()))
	}
	lines = append(lines, "", "SLOWEST HAND-OFFS of the last requests")
	for _, h := range f.Slowest {
		lines = append(lines, fmt.Sprintf("%9.2f ms  %-16s → %-16s  %s", h.Ms, clip(clean(h.From), 16), clip(clean(h.To), 16), clean(h.Request)))
	}
	for _, text := range f.Silent {
		lines = append(lines, "no answer from "+clean(text))
	}
	return lines
}

func (m *Memory) amount() string {
	switch m.Unit {
	case "bytes":
		return fmt.Sprintf("%s of %s", bytesText(m.Used), bytesText(m.Total))
	case "blocks":
		return fmt.Sprintf("%.0f of %.0f blocks", m.Used, m.Total)
	}
	return fmt.Sprintf("%.1f%%", 100*m.Used)
}

const barWidth = 20

// bar shows a share; a share that is not nothing is never drawn as nothing.
func bar(used, total float64) string {
	full := 0
	if total > 0 && used > 0 {
		full = min(max(int(barWidth*used/total), 1), barWidth)
	}
	return strings.Repeat("█", full) + strings.Repeat("░", barWidth-full)
}

func bytesText(n float64) string {
	for _, unit := range []string{"B", "KiB", "MiB", "GiB", "TiB"} {
		if n < 1024 || unit == "TiB" {
			return fmt.Sprintf("%.1f %s", n, unit)
		}
		n /= 1024
	}
	return ""
}

// clip cuts a line to so many characters; 0 means as many as it has.
func clip(text string, most int) string {
	runes := []rune(text)
	if most <= 0 || len(runes) <= most {
		return text
	}
	return string(runes[:most-1]) + "…"
}
