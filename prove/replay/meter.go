package replay

import "time"

// Meter sums up requests that were served by a real engine, by the definitions
// that a replay has, so that both can be laid side by side. It belongs to one
// goroutine.
type Meter struct {
	config Config
	tally  tally
	// perTick are tokens by the tick in which they came.
	perTick []int64
	ends    []int64
	last    time.Duration // arrival
	end     time.Duration
}

// meterTick is how finely a Meter tells what came before the last arrival.
const meterTick = 100 * time.Millisecond

// Measured is what the client of one request saw. Times are since the
// measurement began.
type Measured struct {
	Arrived time.Duration
	// Prompt counts tokens, Cached those that the engine says it did not compute.
	Prompt, Cached int32
	Chunks         []Chunk
	// Complete: the answer came to its end.
	Complete bool
}

// Chunk is a part of an answer: so many tokens of one phase that came at once.
type Chunk struct {
	At      time.Duration
	Tokens  int32
	Thought bool
}

// NewMeter begins a measurement; an SLO of nothing is PascalSLO.
func NewMeter(slo SLO) *Meter {
	if slo == (SLO{}) {
		slo = PascalSLO
	}
	m := &Meter{config: Config{SLO: slo}}
	m.tally.config = &m.config
	m.tally.tpot, m.tally.ttfat = slo.TPOT.Microseconds(), slo.TTFAT.Microseconds()
	return m
}

// Add takes in a request, in any order. One that is not complete counts as
// arrived, and its tokens as found; its times do not count.
func (m *Meter) Add(q Measured) {
	t := &m.tally
	t.requests.Arrived++
	t.tokens.Prompt += int64(max(0, q.Prompt-q.Cached))
	t.cache.PromptTokens += int64(q.Prompt)
	t.cache.HitTokens += int64(q.Cached)
	m.last = max(m.last, q.Arrived)
	var think, output int32
	for _, c := range q.Chunks {
		m.perTick = countAt(m.perTick, c.At, int64(c.Tokens))
		if c.Thought {
			think += c.Tokens
		} else {
			output += c.Tokens
		}
		m.end = max(m.end, c.At)
	}
	t.tokens.Think += int64(think)
	t.tokens.Output += int64(output)
	if !q.Complete || len(q.Chunks) == 0 {
		return
	}
	t.requests.Counted++
	end := q.Chunks[len(q.Chunks)-1].At
	m.ends = countAt(m.ends, end, 1)
	t.ttft.add(int64(q.Chunks[0].At-q.Arrived), 1)
	t.e2e.add(int64(end-q.Arrived), 1)
	if think > 0 {
		t.forced.Thoughts++
	}
	quality := m.experience(q, think)
	t.qoe.add(int64(quality*1e6), 1)
	if quality >= m.config.SLO.QoE {
		t.requests.Met++
	}
}

// experience records what is between tokens, and returns the quality of the
// answer.
func (m *Meter) experience(q Measured, think int32) float64 {
	t := &m.tally
	var s sequence
	var output int32
	thoughtEnd := q.Chunks[0].At
	for i, c := range q.Chunks {
		between := int64(0)
		if i > 0 {
			between = int64(c.At-q.Chunks[i-1].At) / int64(max(c.Tokens, 1))
		}
		switch {
		case c.Thought && i > 0 && q.Chunks[i-1].Thought:
			t.thinkITL.add(between, int64(c.Tokens))
		case !c.Thought && output > 0 && !q.Chunks[i-1].Thought:
			t.answerITL.add(between, int64(c.Tokens))
		}
		if c.Thought {
			thoughtEnd = c.At
			continue
		}
		if output == 0 {
			m.visible(q, c.At, thoughtEnd, think > 0)
		}
		start := thoughtEnd.Microseconds() + t.ttfat
		for range c.Tokens {
			s.late = max(s.late, c.At.Microseconds()-start-t.tpot*int64(output))
			s.behind += s.late
			output++
		}
	}
	return t.quality(&s, output)
}

func (m *Meter) visible(q Measured, at, thoughtEnd time.Duration, thought bool) {
	t := &m.tally
	t.ttfvt.add(int64(at-q.Arrived), 1)
	if !thought {
		t.chat.add(int64(at-q.Arrived), 1)
		return
	}
	t.thinking.add(int64(at-q.Arrived), 1)
	t.ttot.add(int64(at-thoughtEnd), 1)
}

func countAt(ticks []int64, at time.Duration, n int64) []int64 {
	i := int(max(at, 0) / meterTick)
	for len(ticks) <= i {
		ticks = append(ticks, 0)
	}
	ticks[i] += n
	return ticks
}

// until sums what came before a time, to the tick.
func until(ticks []int64, end time.Duration) int64 {
	var sum int64
	for i, n := range ticks {
		if time.Duration(i)*meterTick < end {
			sum += n
		}
	}
	return sum
}

// Result is what was measured. What cannot be seen at the door of an engine, such
// as evictions, is zero in it.
func (m *Meter) Result(endpoint string) *Result {
	t := &m.tally
	r := &Result{
		Policy: "live", Profile: endpoint, Requests: t.requests, DurationSeconds: m.last.Seconds(), MakespanSeconds: m.end.Seconds(),
		Tokens: t.tokens, Forced: t.forced, Cache: t.cache, Latency: t.latency(),
	}
	if t.requests.Counted > 0 {
		r.SLOAttainment = float64(t.requests.Met) / float64(t.requests.Counted)
	}
	// Less than a tick has no rate.
	if m.last >= meterTick {
		span := m.last.Seconds()
		r.TokensPerSecond = float64(until(m.perTick, m.last)) / span
		r.RequestsPerSecond = float64(until(m.ends, m.last)) / span
		r.Goodput = r.RequestsPerSecond * r.SLOAttainment
	}
	return r
}
