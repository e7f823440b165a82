package validation

import (
	"math"
	"testing"
	"time"

	"meridian/engine"
	"meridian/engine/batch"
	"meridian/prove/replay"
	"meridian/prove/replay/workload"
)

// virtual serves requests with the engine's own scheduler, in a time in which
// every step takes what the profile says.
func virtual(t *testing.T, p replay.Profile, requests []workload.Request) []answer {
	t.Helper()
	s := batch.New(batch.Options{
		Blocks: int(p.Blocks), BlockTokens: int(p.BlockTokens), MaxRunning: int(p.MaxSequences), MaxWaiting: len(requests), StepTokens: int(p.MaxTokens),
	})
	answers := make([]answer, len(requests))
	now, arrived, ended := time.Duration(0), 0, 0
	for letter := uint32(0); ended < len(requests); {
		for ; arrived < len(requests) && requests[arrived].At <= now; arrived++ {
			r := requests[arrived]
			answers[arrived].request = r
			q := &batch.Sequence{Prompt: int(r.Prompt), Owner: arrived}
			for range r.Prompt {
				letter++ // no two prompts are alike
				q.Tokens = append(q.Tokens, letter)
			}
			if err := s.Add(q); err != nil {
				t.Fatal(err)
			}
		}
		plan := s.Plan()
		if len(plan.Work) == 0 {
			if len(plan.Preempted) == 0 {
				now = max(now, requests[arrived].At)
			}
			continue
		}
		now += time.Duration(math.Round(stepNs(p, shapeOf(plan.Work))))
		s.Commit(plan.Work)
		for _, w := range plan.Work {
			if !w.Last {
				continue
			}
			a := &answers[w.Sequence.Owner.(int)]
			a.tokens = append(a.tokens, now)
			letter++
			w.Sequence.Tokens = append(w.Sequence.Tokens, letter)
			if len(a.tokens) == int(a.request.Think+a.request.Output) {
				s.Remove(w.Sequence)
				ended++
			}
		}
	}
	return answers
}

func shapeOf(work []batch.Work) engine.Step {
	var s engine.Step
	for _, w := range work {
		s.Sequences++
		s.Tokens += w.Count
		if before, n := int64(w.Start), int64(w.Count); n == 1 {
			s.Context += before + 1
		} else {
			s.Pairs += n*before + n*(n+1)/2
		}
	}
	return s
}

// The engine's own scheduler and replay's engine under stock agree, where steps
// take what the profile says and there are blocks for all who run: what is left
// between prediction and measurement is the machine's.
func TestReplaySchedulesAsTheEngineDoes(t *testing.T) {
	p := replay.Profile{
		Name: "virtual", StepNs: 500_000, SequenceNs: 50_000, ContextNs: 300, PairNs: 200,
		Dense:       []replay.Point{{Tokens: 1, Ns: 200_000}, {Tokens: 16, Ns: 1_000_000}, {Tokens: 64, Ns: 3_000_000}},
		BlockTokens: 16, Blocks: 2000, MaxTokens: 64, MaxSequences: 32,
	}
	for _, perSecond := range []float64{10, 20, 30, 60} { // 60 is twice what it can serve
		answers := virtual(t, p, arrivals(perSecond, 30*time.Second, 7))
		rows, err := compare(t.Context(), replay.Config{Profile: p, NoOffload: true}, perSecond, answers)
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range rows {
			if math.Abs(row.Error) > 0.01 { // histograms have buckets
				t.Errorf("%+v", row)
			}
		}
	}
}
