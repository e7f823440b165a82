package workload

import (
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"slices"
	"strconv"
	"time"
)

const (
	serveGenDir = "servegen-deepseek-r1"
	// What one file may have: ServeGen's own stay below a twentieth of it.
	maxDataBytes = 64 << 20
	maxClients   = 1 << 12
	maxWindows   = 1 << 16
	// The longest a request's part may be, everywhere.
	maxTokens = 1 << 24
)

// client is one of ServeGen's: when its requests come, and how long they are.
type client struct {
	windows []arrivals
	lengths []lengths
}

// arrivals are a client's in one window.
type arrivals struct {
	start  time.Duration
	rate   float64 // a second
	family string
	shape  float64
}

// lengths are a client's from some time on.
type lengths struct {
	from                 time.Duration
	input, output, ratio pdf
}

// readClients reads all of ServeGen's clients.
func readClients(data fs.FS) ([]client, error) {
	var clients []client
	for i := range maxClients {
		c, err := readClient(data, i)
		if errors.Is(err, fs.ErrNotExist) && i > 0 {
			break
		}
		if err != nil {
			return nil, err
		}
		if i > 0 && !sameWindows(c.windows, clients[0].windows) {
			return nil, fmt.Errorf("%s/chunk-%d-trace.csv: its windows differ from those of chunk 0", serveGenDir, i)
		}
		clients = append(clients, c)
	}
	return clients, nil
}

func sameWindows(a, b []arrivals) bool {
	return slices.EqualFunc(a, b, func(a, b arrivals) bool { return a.start == b.start })
}

func readClient(data fs.FS, number int) (client, error) {
	var c client
	name := fmt.Sprintf("%s/chunk-%d-trace.csv", serveGenDir, number)
	err := reading(data, name, func(r io.Reader) error {
		var err error
		c.windows, err = readWindows(r)
		return err
	})
	if err != nil {
		return c, err
	}
	name = fmt.Sprintf("%s/chunk-%d-dataset.json", serveGenDir, number)
	err = reading(data, name, func(r io.Reader) error {
		var err error
		c.lengths, err = readLengths(r)
		return err
	})
	if err == nil && len(c.lengths) == 0 && slices.ContainsFunc(c.windows, func(a arrivals) bool { return a.rate > 0 }) {
		err = fmt.Errorf("%s: no lengths for a client that sends requests", name)
	}
	return c, err
}

// reading lets read have a file, as far as it may be long.
func reading(data fs.FS, name string, read func(io.Reader) error) error {
	f, err := data.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := read(io.LimitReader(f, maxDataBytes)); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// readWindows reads start, rate, CV, family and two parameters a line. Windows
// are equally long.
func readWindows(r io.Reader) ([]arrivals, error) {
	lines := csv.NewReader(r)
	lines.FieldsPerRecord = 6
	lines.ReuseRecord = true
	var windows []arrivals
	for {
		row, err := lines.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		line, _ := lines.FieldPos(0)
		a, err := parseWindow(row)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", line, err)
		}
		n := len(windows)
		if n > 0 && a.start <= windows[n-1].start || n > 1 && a.start-windows[n-1].start != windows[1].start-windows[0].start {
			return nil, fmt.Errorf("line %d: windows must follow one another in equal steps", line)
		}
		if n == maxWindows {
			return nil, fmt.Errorf("line %d: more than %d windows", line, maxWindows)
		}
		windows = append(windows, a)
	}
	if len(windows) < 2 {
		return nil, errors.New("fewer than two windows")
	}
	return windows, nil
}

func parseWindow(row []string) (arrivals, error) {
	var numbers [4]float64
	for i, column := range []int{0, 1, 2, 4} {
		v, err := strconv.ParseFloat(row[column], 64)
		if err != nil || !(v >= 0) || v > 1e9 {
			return arrivals{}, fmt.Errorf("column %d: %.40q is not a number from 0 to 1e9", column+1, row[column])
		}
		numbers[i] = v
	}
	a := arrivals{start: seconds(numbers[0]), rate: numbers[1], family: row[3], shape: numbers[3]}
	switch {
	case a.rate == 0:
		return arrivals{start: a.start}, nil
	case a.rate > 1e6:
		return a, fmt.Errorf("%g requests a second from one client", a.rate)
	case a.family != "Gamma" && a.family != "Weibull":
		return a, fmt.Errorf("the family of arrivals is %.40q, not Gamma or Weibull", a.family)
	case a.shape < 1e-3 || a.shape > 1e6:
		return a, fmt.Errorf("shape %g of a %s distribution", a.shape, a.family)
	}
	return a, nil
}

// readLengths reads the distributions of a client, by the second from which
// each holds. A time without requests has empty ones, which are left out.
func readLengths(r io.Reader) ([]lengths, error) {
	var file map[string]map[string]string
	if err := json.NewDecoder(r).Decode(&file); err != nil {
		return nil, err
	}
	var all []lengths
	for from, texts := range file {
		second, err := strconv.ParseFloat(from, 64)
		if err != nil || !(second >= 0) || second > 1e9 {
			return nil, fmt.Errorf("%.40q is not a time in seconds", from)
		}
		l := lengths{from: seconds(second)}
		for _, part := range []struct {
			name    string
			into    *pdf
			highest float64
		}{{"input_tokens", &l.input, maxTokens}, {"output_tokens", &l.output, maxTokens}, {"reason_ratio", &l.ratio, 1}} {
			if *part.into, err = parsePDF(texts[part.name], part.highest); err != nil {
				return nil, fmt.Errorf("%s from second %s: %w", part.name, from, err)
			}
		}
		if !l.input.empty() && !l.output.empty() && !l.ratio.empty() {
			all = append(all, l)
		}
	}
	slices.SortFunc(all, func(a, b lengths) int { return int(math.Copysign(1, float64(a.from-b.from))) })
	return all, nil
}

// lengthsAt are those that hold at a time: the latest from before it, or else
// the first there are.
func (c *client) lengthsAt(at time.Duration) *lengths {
	i := len(c.lengths) - 1
	for i > 0 && c.lengths[i].from > at {
		i--
	}
	return &c.lengths[i]
}
