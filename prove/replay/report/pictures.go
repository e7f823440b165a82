package report

import (
	"fmt"
	"math"
	"slices"
)

// style is a policy's line: the subject has the first, the others follow in
// the order of the tables.
func (r *Report) style(policy string) int {
	if policy == r.Subject {
		return 0
	}
	return 1 + slices.Index(r.others(), policy)%(styles-1)
}

// styles is how many lines the page can tell apart.
const styles = 9

// loadCurve is a metric over the loads, a line for each policy.
func (r *Report) loadCurve(m Metric) string {
	low, high, least := math.Inf(1), math.Inf(-1), math.Inf(1)
	lines := make(map[string][]spot)
	for _, p := range r.Points {
		v := p.value(m.Name)
		if v == nil {
			continue
		}
		low, high, least = min(low, v.Low), max(high, v.High), min(least, v.Mean)
		told := fmt.Sprintf("%s at load %s: %s", p.Policy, loadText(p.Load), m.Unit.withInterval(v.Interval))
		lines[p.Policy] = append(lines[p.Policy], spot{x: p.Load, y: v.Mean, low: v.Low, high: v.High, told: told})
	}
	if len(lines) == 0 {
		return ""
	}
	y := linear(min(0, low), high, m.Unit)
	switch {
	case (m.Unit == Seconds || m.Unit == Ratio) && least > 0 && high/least > 5:
		y = logarithmic(max(low, least/2)/1.15, high*1.15, m.Unit) // intervals may reach nothing, the axis cannot
	case m.Unit == Share || m.Unit == Index:
		y = linear(max(0, low-0.02), min(1, high+0.02), m.Unit)
	}
	title := m.Title
	if m.Unit == PerSecond {
		title += ", per second"
	}
	c := newChart(title, "load", r.loadScale(), y, chartHeight)
	for _, policy := range slices.Backward(r.drawn()) {
		c.line(r.style(policy), lines[policy], true)
	}
	return c.done()
}

// drawn is the order of drawing backwards: the subject comes last, on top.
func (r *Report) drawn() []string { return append([]string{r.Subject}, r.others()...) }

// loadScale has a tick at each load.
func (r *Report) loadScale() scale {
	first, last := r.Loads[0], r.Loads[len(r.Loads)-1]
	margin := max((last-first)*0.06, 0.05)
	s := scale{low: first - margin, high: last + margin, forward: same}
	for _, load := range r.Loads {
		s.ticks = append(s.ticks, tick{load, loadText(load)})
	}
	return s
}

// cdf is the distribution of a latency at one load, a line for each policy.
func (r *Report) cdf(l Latency, load float64) string {
	low, high := math.Inf(1), math.Inf(-1)
	for _, p := range r.at(load) {
		for i, v := range p.quantiles(l.Name) {
			if v > 0 && r.Grid[i] >= 0.05 {
				low = min(low, v)
			}
			high = max(high, v)
		}
	}
	if math.IsInf(low, 1) || math.IsInf(high, -1) {
		return ""
	}
	c := newChart(fmt.Sprintf("%s at load %s", l.Title, loadText(load)), "at most this long", logarithmic(low, high, Seconds), tail(), chartHeight)
	for _, policy := range slices.Backward(r.drawn()) {
		p := r.Point(policy, load)
		if p == nil {
			continue
		}
		var spots []spot
		for i, v := range p.quantiles(l.Name) {
			if v >= low {
				spots = append(spots, spot{x: v, y: r.Grid[i]})
			}
		}
		c.line(r.style(policy), spots, false)
	}
	return c.done()
}

// timelines are the pictures of one run: its requests, and its KV memory.
func (p *Point) timelines(most float64) (requests, kv string) {
	t := p.Timeline
	if t == nil || len(t.Requests) == 0 {
		return "", ""
	}
	requests = t.stack(fmt.Sprintf("%s: requests", p.Policy), t.Requests, linear(0, most, Count))
	if len(t.KV) > 0 {
		kv = t.stack(fmt.Sprintf("%s: KV memory", p.Policy), t.KV, linear(0, 1, Share))
	}
	return requests, kv
}

// stackHeight is that of a timeline.
const stackHeight = 200

func (t *Timeline) stack(title string, series []Series, y scale) string {
	steps := len(series[0].Values)
	end := float64(max(steps-1, 1)) * t.StepS
	x := linear(0, end, Seconds)
	name := "seconds"
	if end > 600 {
		step := roundStep(end / 60 / 6)
		x, name = scale{low: 0, high: end, forward: same}, "minutes"
		for m := 0.0; m <= end/60+1e-9; m += step {
			x.ticks = append(x.ticks, tick{m * 60, digits(m, 3)})
		}
	}
	x.high = end
	x.ticks = slices.DeleteFunc(x.ticks, func(t tick) bool { return t.at > end*1.001 })
	c := newChart(title, name, x, y, stackHeight)
	tops := make([][]float64, len(series)) // of each part with all below it
	for k, s := range series {
		tops[k] = make([]float64, steps)
		for i := range tops[k] {
			tops[k][i] = at(s.Values, i)
			if k > 0 {
				tops[k][i] += tops[k-1][i]
			}
		}
	}
	for k, s := range slices.Backward(series) {
		if slices.Max(append([]float64{0}, s.Values...)) > 0 { // there is something to see
			c.band("b-"+bandClass(s.Name), s.Name, t.StepS, tops[k])
		}
	}
	return c.done()
}

// Bands of a timeline, each with a colour of its own.
var bands = []string{"waiting", "prefill", "think", "output", "paused", "away", "cached"}

func bandClass(name string) string {
	if slices.Contains(bands, name) {
		return name
	}
	return "other"
}

// mostRequests is the highest stack of requests among points, for one axis to all.
func mostRequests(points []*Point) float64 {
	most := 1.0
	for _, p := range points {
		if p.Timeline == nil || len(p.Timeline.Requests) == 0 {
			continue
		}
		for i := range p.Timeline.Requests[0].Values {
			sum := 0.0
			for _, s := range p.Timeline.Requests {
				sum += at(s.Values, i)
			}
			if !math.IsNaN(sum) {
				most = max(most, sum)
			}
		}
	}
	return most
}
