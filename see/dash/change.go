package dash

import (
	"fmt"
	"strings"
	"time"
)

// Rates is what happened a second, and how long it took, between two views.
type Rates struct {
	Requests      float64 `json:"requests"`
	PromptTokens  float64 `json:"prompt_tokens"`
	OutputTokens  float64 `json:"output_tokens"`
	HandOffs      float64 `json:"handoffs"`
	Transfers     float64 `json:"transfers"`
	HandOffBytes  float64 `json:"handoff_bytes"`
	TransferBytes float64 `json:"transfer_bytes"`
	// P50 and P99 are milliseconds of each phase that ended meanwhile.
	P50 map[string]float64 `json:"p50"`
	P99 map[string]float64 `json:"p99"`
}

// Event is something that an operator may want to know.
type Event struct {
	At    int64  `json:"at"` // ms since 1970
	Level string `json:"level"`
	Text  string `json:"text"`
	// Hint is what to do about it.
	Hint string `json:"hint,omitempty"`
	ID   string `json:"id,omitempty"` // what can be looked at
}

// Levels of events.
const (
	levelGood = "good"
	levelBad  = "bad"
	levelNote = "note"
)

// ratesOf compares two views that lie so far apart. Who was not there before, or has
// started anew, has done nothing yet.
func ratesOf(before, now *View, apart time.Duration) Rates {
	seconds := apart.Seconds()
	r := Rates{P50: make(map[string]float64), P99: make(map[string]float64)}
	if seconds <= 0 {
		return r
	}
	a, b := &before.Gateway, &now.Gateway
	for outcome, n := range b.Outcomes {
		r.Requests += grown(a.Outcomes[outcome], n)
	}
	r.PromptTokens, r.OutputTokens = grown(a.PromptTokens, b.PromptTokens), grown(a.OutputTokens, b.OutputTokens)
	for i, phase := range b.Phases {
		if i < len(a.Phases) {
			r.P50[phase.Name], r.P99[phase.Name] = phase.quantile(&a.Phases[i], 0.5), phase.quantile(&a.Phases[i], 0.99)
		}
	}
	known := make(map[string]*Member, len(before.Members))
	for i := range before.Members {
		known[before.Members[i].Incarnation] = &before.Members[i]
	}
	for i := range now.Members {
		m, was := &now.Members[i], known[now.Members[i].Incarnation]
		if was == nil || m.Problem != "" || was.Problem != "" {
			continue
		}
		r.HandOffs += grown(was.HandOffs, m.HandOffs)
		r.Transfers += grown(was.Transfers, m.Transfers)
		r.HandOffBytes += grown(was.HandOffBytes, m.HandOffBytes)
		r.TransferBytes += grown(was.Bytes, m.Bytes)
	}
	for _, rate := range []*float64{&r.Requests, &r.PromptTokens, &r.OutputTokens, &r.HandOffs, &r.Transfers, &r.HandOffBytes, &r.TransferBytes} {
		*rate /= seconds
	}
	return r
}

func grown(before, now uint64) float64 { return float64(max(now, before) - before) }

// quantile is in milliseconds, of what was added since before; 0 where nothing was.
// Within a bucket it is interpolated.
func (p *Phase) quantile(before *Phase, q float64) float64 {
	if len(p.Counts) != len(before.Counts) || len(p.Counts) != len(p.Bounds)+1 {
		return 0
	}
	last := len(p.Counts) - 1
	total := grown(before.Counts[last], p.Counts[last])
	if total == 0 {
		return 0
	}
	below, lower := 0.0, 0.0
	for i, bound := range p.Bounds {
		upTo := grown(before.Counts[i], p.Counts[i])
		if upTo >= q*total && upTo > below {
			return 1000 * (lower + (bound-lower)*(q*total-below)/(upTo-below))
		}
		below, lower = upTo, bound
	}
	return 1000 * lower // beyond the last bound: at least that
}

// changes tells what differs between two views.
func changes(before, now *View, at time.Time) []Event {
	var all []Event
	tell := func(level, text, hint string) {
		all = append(all, Event{At: at.UnixMilli(), Level: level, Text: text, Hint: hint})
	}
	workers := make(map[string]*Worker)
	for i := range before.Workers {
		workers[before.Workers[i].ID] = &before.Workers[i]
	}
	for i := range now.Workers {
		w, was := &now.Workers[i], workers[now.Workers[i].ID]
		delete(workers, w.ID)
		switch {
		case was == nil:
			tell(levelNote, fmt.Sprintf("worker %s has come, to %s", w.ID, w.Role), "")
		case was.Up && !w.Up:
			tell(levelBad, fmt.Sprintf("worker %s does not answer: %s", w.ID, orUnknown(w.Problem)), "`meridian logs "+w.ID+"` shows what it said; its requests go on elsewhere")
		case w.Up && was.Up && (w.URL != was.URL || w.Served < was.Served): // between two views it ended and came back
			tell(levelBad, fmt.Sprintf("worker %s ended, and was started again within a moment", w.ID), "`meridian logs "+w.ID+"` shows why it ended; requests that it had go on elsewhere")
		case !was.Up && w.Up:
			tell(levelGood, fmt.Sprintf("worker %s answers", w.ID), "")
		}
	}
	for id := range workers {
		tell(levelBad, fmt.Sprintf("worker %s is gone", id), "`meridian status` tells whether it comes back")
	}
	members := make(map[string]*Member)
	for i := range before.Members {
		members[before.Members[i].Name] = &before.Members[i]
	}
	for i := range now.Members {
		m, was := &now.Members[i], members[now.Members[i].Name]
		delete(members, m.Name)
		all = append(all, memberChanges(was, m, at)...)
	}
	for name, m := range members {
		if m.Kind == "agent" {
			tell(levelBad, fmt.Sprintf("agent %s is gone", name), "`meridian peers --watch` shows who comes and goes")
		}
	}
	return append(all, troubles(now, at)...)
}

func memberChanges(was, m *Member, at time.Time) (all []Event) {
	tell := func(level, text, hint string) {
		all = append(all, Event{At: at.UnixMilli(), Level: level, Text: text, Hint: hint})
	}
	switch {
	case was == nil:
		if m.Kind == "agent" {
			tell(levelNote, fmt.Sprintf("agent %s has come", m.Name), "")
		}
	case was.Incarnation != m.Incarnation:
		tell(levelNote, fmt.Sprintf("agent %s was started again", m.Name), "")
	case was.Problem == "" && m.Problem != "":
		tell(levelBad, fmt.Sprintf("agent %s does not answer: %s", m.Name, m.Problem), "is its process alive, and can this host reach it? `meridian peers`, `meridian logs`")
	case was.Problem != "" && m.Problem == "":
		tell(levelGood, fmt.Sprintf("agent %s answers", m.Name), "")
	case m.ChecksumFailures > was.ChecksumFailures:
		tell(levelBad, fmt.Sprintf("agent %s refused bytes whose checksum was wrong", m.Name), "they were sent again; look at memory and network of both hosts if it comes back")
	}
	return all
}

// troubles are of what has ended badly.
func troubles(now *View, at time.Time) (all []Event) {
	for _, r := range now.Requests {
		switch {
		case r.Outcome == "failed":
			all = append(all, Event{At: at.UnixMilli(), Level: levelBad, Text: "a request failed: " + orUnknown(r.Problem), Hint: "open it to see each leg, and which engine said what", ID: r.ID})
		case r.Resumed > 0:
			all = append(all, Event{At: at.UnixMilli(), Level: levelNote, Text: "a request lost its engine and went on with another", ID: r.ID})
		}
	}
	for _, h := range now.HandOffs {
		if h.Problem == "" {
			continue
		}
		hint := "the decode engine computes such a prompt itself; open it to see in which stage it ended"
		if strings.HasPrefix(h.Engine, "store@") || strings.HasPrefix(h.PeerName, "store@") {
			hint = "what the shared cache does not bring is computed, what it does not take is not kept; open it to see in which stage it ended"
		}
		engine := h.Engine
		if strings.HasPrefix(engine, "store@") {
			engine, _, _ = strings.Cut(engine, "/") // the number after it tells people nothing
		}
		all = append(all, Event{At: at.UnixMilli(), Level: levelBad, Text: fmt.Sprintf("a hand-off failed at %s: %s", engine, h.Problem), Hint: hint, ID: h.ID})
	}
	return all
}

func orUnknown(why string) string {
	if why == "" {
		return "no reason was given"
	}
	return why
}
