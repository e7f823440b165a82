package top

import (
	"bufio"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
)

// series are the numbers of one process, as its /metrics has them.
type series struct {
	byName map[string][]value
}

type value struct {
	labels string // as written, between the braces
	number float64
}

// Bounds of a page, which another process wrote.
const (
	maxPageBytes = 16 << 20
	maxSeries    = 100_000
)

// parse reads the text format of Prometheus; what is not understood is passed over.
func parse(page io.Reader) series {
	s := series{byName: make(map[string][]value)}
	lines := bufio.NewScanner(io.LimitReader(page, maxPageBytes))
	lines.Buffer(nil, 64<<10)
	for count := 0; count < maxSeries && lines.Scan(); {
		line := lines.Text()
		if line == "" || line[0] == '#' {
			continue
		}
		name, labels, rest := line, "", ""
		if brace := strings.IndexByte(line, '{'); brace >= 0 {
			end := strings.LastIndexByte(line, '}')
			if end < brace {
				continue
			}
			name, labels, rest = line[:brace], line[brace+1:end], line[end+1:]
		} else {
			name, rest, _ = strings.Cut(line, " ")
		}
		fields := strings.Fields(rest)
		if len(fields) == 0 {
			continue
		}
		number, err := strconv.ParseFloat(fields[0], 64)
		if err != nil || math.IsNaN(number) {
			continue
		}
		s.byName[name] = append(s.byName[name], value{labels, number})
		count++
	}
	return s
}

// has tells whether labels has name="text".
func (v value) has(label string) bool {
	return label == "" || strings.HasPrefix(v.labels, label) || strings.Contains(v.labels, ","+label)
}

// sum adds up what has all of the labels, written as name="text".
func (s series) sum(name string, labels ...string) (total float64) {
	for _, v := range s.byName[name] {
		if !slices.ContainsFunc(labels, func(l string) bool { return !v.has(l) }) {
			total += v.number
		}
	}
	return total
}

func (s series) knows(name string) bool { return len(s.byName[name]) > 0 }

// bucket is how many samples of a histogram were at most so large.
type bucket struct{ bound, count float64 }

// buckets are those of a histogram, by their bounds.
func (s series) buckets(name, label string) []bucket {
	byBound := make(map[float64]float64)
	for _, v := range s.byName[name+"_bucket"] {
		if !v.has(label) {
			continue
		}
		_, after, found := strings.Cut(v.labels, `le="`)
		text, _, closed := strings.Cut(after, `"`)
		bound, err := strconv.ParseFloat(text, 64)
		if found && closed && err == nil {
			byBound[bound] += v.number
		}
	}
	all := make([]bucket, 0, len(byBound))
	for bound, count := range byBound {
		all = append(all, bucket{bound, count})
	}
	slices.SortFunc(all, func(a, b bucket) int {
		if a.bound < b.bound {
			return -1
		}
		return 1
	})
	return all
}

// minus is what came between two looks at one histogram.
func minus(now, before []bucket) []bucket {
	if len(now) != len(before) {
		return now // there was none before, or the process is a new one
	}
	between := make([]bucket, len(now))
	for i, b := range now {
		if b.bound != before[i].bound || b.count < before[i].count {
			return now
		}
		between[i] = bucket{b.bound, b.count - before[i].count}
	}
	return between
}

func plus(a, b []bucket) []bucket {
	if len(a) != len(b) {
		return append(a, b...)
	}
	for i := range a {
		a[i].count += b[i].count
	}
	return a
}

// quantile is below which so many of the samples were, within a bucket as if they
// lay evenly in it.
func quantile(q float64, buckets []bucket) float64 {
	if len(buckets) == 0 || buckets[len(buckets)-1].count == 0 {
		return 0
	}
	want, below, from := q*buckets[len(buckets)-1].count, 0.0, 0.0
	for _, b := range buckets {
		if b.count >= want {
			if math.IsInf(b.bound, 1) {
				return from
			}
			return from + (b.bound-from)*(want-below)/max(b.count-below, 1e-9)
		}
		below, from = b.count, b.bound
	}
	return from
}
