package governing

import (
	"slices"
	"strings"
	"time"

	"meridian/decide/governor"
	"meridian/decide/phase"
	"meridian/decide/policy"
)

// Engine is one that is governed, as it stands.
type Engine struct {
	Name   string `json:"engine"`
	Model  string `json:"model"`
	Policy string `json:"policy"`
	// GovernedSeconds is since when.
	GovernedSeconds float64 `json:"governed_s"`
	Steps           int64   `json:"steps"`
	// Running and Waiting are as the engine tells.
	Running uint32 `json:"running"`
	Waiting uint32 `json:"waiting"`
	// Late are decisions that came too late for it, FailedOpen is how often it went on by
	// itself, as it tells, since it is governed.
	Late       int64 `json:"late_decisions"`
	FailedOpen int64 `json:"failed_open"`
	// Forces says whether thoughts can be ended, by decisions or where they are measured,
	// Measures how many connections only measure.
	Forces   bool `json:"forces"`
	Measures int  `json:"measuring_connections"`
	// Contradictions are facts of the engine that were left out; Contradiction is the last.
	Contradictions int64     `json:"contradictions"`
	Contradiction  string    `json:"contradiction,omitempty"`
	Refused        int64     `json:"not_governed"`
	Requests       []Request `json:"requests"`
}

// Request is one sequence of an engine, as it stands.
type Request struct {
	Sequence uint64 `json:"sequence"`
	ID       string `json:"id"`
	Phase    string `json:"phase"`
	State    string `json:"state"`
	// AgeSeconds is since when the engine has had it.
	AgeSeconds float64 `json:"age_s"`
	Prompt     int32   `json:"prompt_tokens"`
	Think      int32   `json:"think_tokens"`
	// Cap is the longest that its thought may be; 0: nothing ends it.
	Cap    int32 `json:"think_cap"`
	Output int32 `json:"output_tokens"`
	// Entropy is that of its newest measured token in nats, Mean that of all of them.
	Entropy  *float64 `json:"entropy_nats,omitempty"`
	Mean     *float64 `json:"mean_entropy_nats,omitempty"`
	Measured int64    `json:"measured_tokens"`
	Resumed  bool     `json:"resumed"`
	// Decided is the last thing that was decided about it but to run, Reason why, and
	// DecidedSeconds how long ago.
	Decided        string  `json:"decided,omitempty"`
	Reason         string  `json:"reason,omitempty"`
	DecidedSeconds float64 `json:"decided_s,omitempty"`
	Preemptions    int32   `json:"preemptions"`
}

// Engines are those that are governed now, by name, with their requests in the order
// in which they came.
func (g *Governors) Engines() []Engine {
	engines, _ := g.all()
	all := []Engine{}
	for _, e := range engines {
		e.mutex.Lock()
		if e.scheduler != nil {
			all = append(all, e.scheduler.look(e))
		}
		e.mutex.Unlock()
	}
	slices.SortFunc(all, func(a, b Engine) int { return strings.Compare(a.Name, b.Name) })
	return all
}

func (s *scheduler) look(e *engine) Engine {
	now, counters := s.governors.now(), s.governor.Counters()
	out := Engine{
		Name: e.name, Model: s.about, Policy: s.policy, GovernedSeconds: seconds(now - s.since), Steps: counters.Steps, Running: s.running, Waiting: s.waiting, Late: s.late.here, FailedOpen: s.opened.here,
		Forces: s.ended(e), Measures: e.measures, Contradictions: counters.Contradictions, Refused: s.refused, Requests: []Request{},
	}
	if counters.LastContradiction != nil {
		out.Contradiction = counters.LastContradiction.Error()
	}
	s.views = s.governor.Views(s.views[:0])
	for i := range s.views {
		out.Requests = append(out.Requests, s.request(now, &s.views[i], s.ended(e)))
	}
	return out
}

// ended says whether something ends thoughts of the engine.
func (s *scheduler) ended(e *engine) bool { return s.forces || s.ends && e.ending > 0 }

func (s *scheduler) request(now policy.Instant, v *governor.View, ended bool) Request {
	r := Request{
		Sequence: uint64(v.Sequence), Phase: v.Phase.String(), State: v.State.String(), AgeSeconds: seconds(now - v.Arrived),
		Prompt: v.Prompt, Think: v.Think, Output: v.Output, Preemptions: v.Preemptions,
	}
	if ended {
		r.Cap = v.Limit
	}
	known := s.sequences[phase.Sequence(v.Sequence)]
	if known == nil {
		return r
	}
	r.ID, r.Resumed, r.Measured = known.id, known.resumed, known.measured
	if known.measured > 0 {
		last, mean := known.last, known.sum/float64(known.measured)
		r.Entropy, r.Mean = &last, &mean
	}
	r.Decided = known.act
	if known.act != "" {
		r.DecidedSeconds = seconds(now - known.at)
	}
	switch {
	case known.act == "force":
		r.Reason = v.Forced.String()
	case v.Stopped && (known.act == "preempt" || known.act == "pause"):
		r.Reason = v.Reason.String()
	case known.act == "pause":
		r.Reason = "order" // others go first
	}
	return r
}

func seconds(d policy.Instant) float64 { return time.Duration(d).Seconds() }
