package telemetry

import (
	"fmt"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
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

// Sink takes numbers that are in the catalogue. Anything else fails the scrape
// of that number, with its name.
type Sink struct {
	out chan<- prometheus.Metric
}

// Value reports a counter or a gauge; labels are values in the catalogue's order.
func (s *Sink) Value(name string, value float64, labels ...string) {
	s.emit(name, labels, func(m Metric, d *prometheus.Desc) (prometheus.Metric, error) {
		switch m.Type {
		case Counter:
			// OpenMetrics, in which exemplars travel, would append _total to the name of a
			// counter that the book called otherwise; names are contracts, types are hints.
			kind := prometheus.CounterValue
			if !strings.HasSuffix(name, "_total") {
				kind = prometheus.UntypedValue
			}
			return prometheus.NewConstMetric(d, kind, value, labels...)
		case Gauge:
			return prometheus.NewConstMetric(d, prometheus.GaugeValue, value, labels...)
		}
		return nil, fmt.Errorf("telemetry: %s is a %s, not a value", name, m.Type)
	})
}

// Distribution reports a histogram.
func (s *Sink) Distribution(name string, v Distribution, labels ...string) {
	s.emit(name, labels, func(m Metric, d *prometheus.Desc) (prometheus.Metric, error) {
		if m.Type != Histogram {
			return nil, fmt.Errorf("telemetry: %s is a %s, not a distribution", name, m.Type)
		}
		histogram, err := prometheus.NewConstHistogram(d, v.Count, v.Sum, v.Buckets, labels...)
		if err != nil || len(v.Exemplars) == 0 {
			return histogram, err
		}
		examples := make([]prometheus.Exemplar, len(v.Exemplars))
		for i, e := range v.Exemplars {
			examples[i] = prometheus.Exemplar{Value: e.Value, Labels: prometheus.Labels{"trace_id": e.Trace}, Timestamp: e.At}
		}
		return prometheus.NewMetricWithExemplars(histogram, examples...)
	})
}

func (s *Sink) emit(name string, labels []string, build func(Metric, *prometheus.Desc) (prometheus.Metric, error)) {
	m, known := find(name)
	if !known {
		s.refuse(name, fmt.Errorf("telemetry: %s is not in the catalogue", name))
		return
	}
	if err := m.check(labels); err != nil {
		s.refuse(name, err)
		return
	}
	metric, err := build(m, descriptions[name])
	if err != nil {
		s.refuse(name, err)
		return
	}
	s.out <- metric
}

func (s *Sink) refuse(name string, err error) {
	s.out <- prometheus.NewInvalidMetric(prometheus.NewDesc(name, "refused", nil, nil), err)
}

var descriptions = func() map[string]*prometheus.Desc {
	byName := make(map[string]*prometheus.Desc)
	for _, m := range catalogue {
		var labels []string
		for _, l := range m.Labels {
			labels = append(labels, l.Name)
		}
		byName[m.Name] = prometheus.NewDesc(m.Name, m.Help, labels, nil)
	}
	return byName
}()

// collector asks every source at every scrape.
type collector struct{ sources []Source }

func newCollector(sources []Source) collector { return collector{sources} }

// Describe announces nothing: which series exist depends on the sources.
func (c collector) Describe(chan<- *prometheus.Desc) {}

func (c collector) Collect(out chan<- prometheus.Metric) {
	for _, source := range c.sources {
		source(&Sink{out: out})
	}
}
