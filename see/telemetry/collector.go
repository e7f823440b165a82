package telemetry

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// Source writes a room's numbers, as they are now, into a Sink. It is called
// from whichever goroutine serves a scrape and must not block.
type Source func(*Sink)

// Distribution is a snapshot of a histogram: how many samples there were, their
// sum, and how many were at most each bound.
type Distribution struct {
	Count   uint64
	Sum     float64
	Buckets map[float64]uint64
	// Exemplars show single samples, one a bucket at most.
	Exemplars []Exemplar
}

// Exemplar is one sample, and the trace of what it was measured on.
type Exemplar struct {
	Trace string
	Value float64
	At    time.Time
}

// Sink takes numbers that are in the catalogue. Anything else is refused, with
// its name, and does not hide the rest of a scrape.
type Sink struct {
	families map[*entry]*dto.MetricFamily
	refused  []error

	// What a scrape is made of lives and dies with it, so it is allocated together.
	series   slab[dto.Metric]
	counters slab[dto.Counter]
	gauges   slab[dto.Gauge]
	values   slab[float64]
	pairs    slab[dto.LabelPair]
	labels   slab[*dto.LabelPair]
	texts    slab[string]
}

// slab allocates many of one kind at once.
type slab[T any] struct{ left []T }

const slabSize = 512

func (s *slab[T]) take(n int) []T {
	if n > len(s.left) {
		s.left = make([]T, max(n, slabSize))
	}
	taken := s.left[:n:n]
	s.left = s.left[n:]
	return taken
}

func (s *slab[T]) one() *T { return &s.take(1)[0] }

// Value reports a counter or a gauge; labels are values in the catalogue's order.
func (s *Sink) Value(name string, value float64, labels ...string) {
	e, series := s.begin(name, labels)
	if e == nil {
		return
	}
	number := s.values.one()
	*number = value
	switch e.kind {
	case dto.MetricType_COUNTER:
		series.Counter = s.counters.one()
		series.Counter.Value = number
	case dto.MetricType_UNTYPED:
		series.Untyped = &dto.Untyped{Value: number}
	case dto.MetricType_GAUGE:
		series.Gauge = s.gauges.one()
		series.Gauge.Value = number
	default:
		s.refuse(fmt.Errorf("telemetry: %s is a %s, not a value", name, e.metric.Type))
		return
	}
	s.add(e, series)
}

// Distribution reports a histogram.
func (s *Sink) Distribution(name string, v Distribution, labels ...string) {
	e, series := s.begin(name, labels)
	if e == nil {
		return
	}
	if e.kind != dto.MetricType_HISTOGRAM {
		s.refuse(fmt.Errorf("telemetry: %s is a %s, not a distribution", name, e.metric.Type))
		return
	}
	if err := v.write(e.description, series, labels); err != nil {
		s.refuse(fmt.Errorf("telemetry: %s: %w", name, err))
		return
	}
	s.add(e, series)
}

func (v Distribution) write(d *prometheus.Desc, series *dto.Metric, labels []string) error {
	histogram, err := prometheus.NewConstHistogram(d, v.Count, v.Sum, v.Buckets, labels...)
	if err == nil && len(v.Exemplars) > 0 {
		examples := make([]prometheus.Exemplar, len(v.Exemplars))
		for i, e := range v.Exemplars {
			examples[i] = prometheus.Exemplar{Value: e.Value, Labels: prometheus.Labels{"trace_id": e.Trace}, Timestamp: e.At}
		}
		histogram, err = prometheus.NewMetricWithExemplars(histogram, examples...)
	}
	if err != nil {
		return err
	}
	return histogram.Write(series)
}

// begin returns a series with its labels, or no entry where it is refused.
func (s *Sink) begin(name string, values []string) (*entry, *dto.Metric) {
	e := entries[name]
	if e == nil {
		s.refuse(fmt.Errorf("telemetry: %s is not in the catalogue", name))
		return nil, nil
	}
	if err := e.metric.check(values); err != nil {
		s.refuse(err)
		return nil, nil
	}
	texts := s.texts.take(len(values))
	copy(texts, values) // the caller's may change before the scrape is written
	labels := s.labels.take(len(values))
	for i, from := range e.order {
		if !utf8.ValidString(texts[from]) {
			s.refuse(fmt.Errorf("telemetry: %s{%s=%q} is not UTF-8", name, e.metric.Labels[from].Name, texts[from]))
			return nil, nil
		}
		labels[i] = s.pairs.one()
		labels[i].Name, labels[i].Value = &e.metric.Labels[from].Name, &texts[from]
	}
	series := s.series.one()
	series.Label = labels
	return e, series
}

func (s *Sink) add(e *entry, series *dto.Metric) {
	family := s.families[e]
	if family == nil {
		family = &dto.MetricFamily{Name: &e.metric.Name, Help: &e.metric.Help, Type: &e.kind}
		s.families[e] = family
	}
	family.Metric = append(family.Metric, series)
}

func (s *Sink) refuse(err error) { s.refused = append(s.refused, err) }

// entry is a metric of the catalogue, ready to be reported.
type entry struct {
	metric      Metric
	kind        dto.MetricType
	order       []int // of the catalogue's labels, by their names, as scrapes have them
	description *prometheus.Desc
}

var entries = func() map[string]*entry {
	byName := make(map[string]*entry, len(catalogue))
	for _, m := range catalogue {
		e := &entry{metric: m}
		var labels []string
		for i, l := range m.Labels {
			e.order, labels = append(e.order, i), append(labels, l.Name)
		}
		slices.SortFunc(e.order, func(a, b int) int { return strings.Compare(labels[a], labels[b]) })
		e.description = prometheus.NewDesc(m.Name, m.Help, labels, nil)
		switch m.Type {
		case Counter:
			// OpenMetrics, in which exemplars travel, would append _total to the name of a
			// counter that the book called otherwise; names are contracts, types are hints.
			e.kind = dto.MetricType_COUNTER
			if !strings.HasSuffix(m.Name, "_total") {
				e.kind = dto.MetricType_UNTYPED
			}
		case Gauge:
			e.kind = dto.MetricType_GAUGE
		case Histogram:
			e.kind = dto.MetricType_HISTOGRAM
		}
		byName[m.Name] = e
	}
	return byName
}()

// gatherer asks every source at every scrape, beside what others have registered. A
// registry would do it as well, for twice the time: it takes every series through a
// channel and compares what the catalogue has settled.
type gatherer struct {
	others  prometheus.Gatherer
	sources []Source
}

// Gather implements prometheus.Gatherer.
func (g gatherer) Gather() ([]*dto.MetricFamily, error) {
	families, err := g.others.Gather()
	sink := &Sink{families: make(map[*entry]*dto.MetricFamily, len(entries))}
	for _, source := range g.sources {
		source(sink)
	}
	for _, family := range sink.families {
		sink.sort(family)
		families = append(families, family)
	}
	slices.SortFunc(families, func(a, b *dto.MetricFamily) int { return strings.Compare(a.GetName(), b.GetName()) })
	return families, errors.Join(append(sink.refused, err)...)
}

// sort orders series by their labels, and refuses those that are there twice: two
// samples of one series fail the whole scrape.
func (s *Sink) sort(family *dto.MetricFamily) {
	slices.SortFunc(family.Metric, compareLabels)
	family.Metric = slices.CompactFunc(family.Metric, func(a, b *dto.Metric) bool {
		twice := compareLabels(a, b) == 0
		if twice {
			s.refuse(fmt.Errorf("telemetry: %s with the labels %v is reported twice", family.GetName(), a.Label))
		}
		return twice
	})
}

func compareLabels(a, b *dto.Metric) int {
	for i := range a.Label {
		if c := cmp.Compare(*a.Label[i].Value, *b.Label[i].Value); c != 0 {
			return c
		}
	}
	return 0
}
