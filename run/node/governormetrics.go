package node

import (
	"meridian/decide/governor"
	"meridian/decide/policy"
	"meridian/kv"
	"meridian/see/telemetry"
	"meridian/serve/governing"
)

// governorSource hands the governors' numbers to telemetry.
func governorSource(g *governing.Governors) telemetry.Source {
	return func(s *telemetry.Sink) {
		m := g.Metrics()
		s.Value("meridian_phase_router_tracked_requests", float64(m.Tracked))
		s.Value("meridian_queue_depth", float64(m.WaitOutput), "output")
		s.Value("meridian_queue_depth", float64(m.WaitThink), "think")
		s.Value("meridian_block_manager_used_bytes", float64(m.UsedBytes))
		s.Value("meridian_block_manager_capacity_bytes", float64(m.CapacityBytes))
		s.Distribution("meridian_think_tokens_per_request", powers(&m.Thoughts, 5, 18))
		s.Distribution("meridian_schedule_batch_duration_ns", powers(&m.Took, 12, 27))
		s.Distribution("meridian_scheduler_batch_size", powers(&m.Answering, 0, 10), "output")
		s.Distribution("meridian_scheduler_batch_size", powers(&m.Thinking, 0, 10), "think")

		c, forced := &m.Governor, int64(0)
		for _, reason := range []governor.ForceReason{governor.Converged, governor.Overthinking, governor.HardCap} {
			forced += c.Forced[reason]
			s.Value("meridian_budget_force_reason", float64(c.Forced[reason]), reason.String())
		}
		s.Value("meridian_budget_force_triggered", float64(forced))
		s.Value("meridian_entropy_transitions_total", float64(c.Transitions))
		for _, tier := range kv.Tiers() {
			s.Value("meridian_block_manager_evictions", float64(m.Blocks.Evicted[tier]), tier.String())
		}
		s.Value("meridian_output_critical_eviction", float64(m.Blocks.Evicted[kv.OutputCritical]))
		s.Value("meridian_disagg_blocks_offloaded_total", float64(c.CopiedBlocks), "meridian")
		for _, way := range []policy.Reclaim{policy.Recompute, policy.Offload, policy.Keep} {
			s.Value("meridian_governor_preempted_total", float64(c.Preempted[way]), way.String())
		}
		s.Value("meridian_governor_blocks_total", float64(c.CopiedBlocks), "copied")
		s.Value("meridian_governor_blocks_total", float64(c.RecalledBlocks), "recalled")
		s.Value("meridian_governor_blocks_total", float64(c.FailedCopies), "failed")
		s.Value("meridian_governor_entropies_total", float64(m.Measured), "measured")
		s.Value("meridian_governor_entropies_total", float64(m.Late), "late")
		s.Value("meridian_governor_entropies_total", float64(m.Missed), "missed")
		s.Value("meridian_governor_entropies_total", float64(m.Forgotten), "forgotten")
		s.Value("meridian_governor_late_total", float64(m.DecidedLate))
		s.Value("meridian_governor_failed_open_total", float64(m.FailedOpen))
		s.Value("meridian_governor_contradictions_total", float64(c.Contradictions))
		s.Value("meridian_governor_ungoverned_total", float64(m.Refused), "bound")
		s.Value("meridian_governor_ungoverned_total", float64(c.Reaped), "silent")
	}
}

// powers is a histogram with a bucket for each power of two, from the one of 2 to the low
// to that of 2 to the high.
func powers(p *governing.Log2Counts, low, high int) telemetry.Distribution {
	d := telemetry.Distribution{Sum: float64(p.Sum), Buckets: make(map[float64]uint64, high-low+1)}
	for i, n := range p.Counts {
		d.Count += uint64(n)
		if i >= low && i <= high {
			d.Buckets[float64(uint64(1)<<i)] = d.Count
		}
	}
	return d
}
