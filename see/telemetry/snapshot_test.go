package telemetry

import (
	"strings"
	"testing"
	"time"
)

// What rooms say of their numbers by tags is what a scrape shows.
func TestFieldsOfASnapshot(t *testing.T) {
	type example struct {
		Trace   string
		Seconds float64
		At      time.Time
	}
	type histogram struct {
		Count     uint64
		Sum       float64
		Buckets   map[float64]uint64
		Exemplars []example
	}
	type inner struct {
		Freed   uint64 `metric:"meridian_handoff_offers_ended_total,freed" less:"Expired"`
		Expired uint64 `metric:"meridian_handoff_offers_ended_total,expired"`
	}
	type count struct {
		Up   int `metric:",up"`
		Down int `metric:",down"`
	}
	type snapshot struct {
		Inner    inner
		Accepted uint64                       `metric:"meridian_handoff_accepts_total,taken meridian_handoff_intakes_total,taken"`
		Legs     map[string]map[string]uint64 `metric:"meridian_gateway_legs_total"`
		Engines  map[string]count             `metric:"meridian_gateway_engines"`
		Found    [2]uint64                    `metric:"meridian_cache_tier_tokens_total" index:"memory,disk"`
		Phases   []histogram                  `metric:"meridian_gateway_phase_seconds" index:"queue"`
		Took     time.Duration                `metric:"meridian_cache_find_seconds_total"`
		Known    bool                         `metric:"meridian_gateway_directory_known"`
		Untold   uint64
		hidden   uint64
	}
	now := snapshot{
		Inner: inner{Freed: 9, Expired: 2}, Accepted: 3, Legs: map[string]map[string]uint64{"decode": {"done": 4}}, Engines: map[string]count{"prefill": {Up: 1, Down: 2}},
		Found: [2]uint64{5, 6}, Phases: []histogram{{Count: 2, Sum: 1.5, Buckets: map[float64]uint64{1: 2}, Exemplars: []example{{"0af7651916cd43dd8448eb211c80319c", 0.5, time.Unix(100, 0)}}}},
		Took: 1500 * time.Millisecond, Known: true, Untold: 7, hidden: 8,
	}
	tel := open(t, Options{Listen: "127.0.0.1:0", Sources: []Source{
		Of(func() snapshot { return now }), Of(func() *snapshot { return nil }),
		func(s *Sink) {
			s.Fields(struct {
				Objects uint64 `metric:"meridian_store_tier_bytes,used"`
			}{11}, "disk")
		},
	}})
	_, body := scrape(t, tel)
	for _, line := range []string{
		`meridian_handoff_offers_ended_total{end="freed"} 7`, `meridian_handoff_offers_ended_total{end="expired"} 2`,
		`meridian_handoff_accepts_total{answer="taken"} 3`, `meridian_handoff_intakes_total{answer="taken"} 3`,
		`meridian_gateway_legs_total{end="done",kind="decode"} 4`, `meridian_gateway_engines{role="prefill",state="down"} 2`, `meridian_gateway_engines{role="prefill",state="up"} 1`,
		`meridian_cache_tier_tokens_total{tier="disk"} 6`, `meridian_gateway_phase_seconds_count{phase="queue"} 2`, `meridian_gateway_phase_seconds_sum{phase="queue"} 1.5`,
		`meridian_cache_find_seconds_total 1.5`, `meridian_gateway_directory_known 1`, `meridian_store_tier_bytes{tier="disk",what="used"} 11`,
	} {
		if !strings.Contains(body, line+"\n") {
			t.Errorf("no line %s in\n%s", line, body)
		}
	}
}
