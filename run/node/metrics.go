package node

import (
	"errors"
	"log/slog"

	"meridian/keep/prefix"
	"meridian/keep/prefix/keys"
	"meridian/keep/store"
	"meridian/keep/store/owner"
	"meridian/move/agent"
	"meridian/move/transceiver"
	"meridian/see/telemetry"
	"meridian/serve/doorserver"
)

// sources are the rooms of this process that have numbers.
func (n *Agent) sources() []telemetry.Source {
	all := []telemetry.Source{agentSource(n.Agent), handOffSource(n.Transceiver)}
	if n.Door != nil {
		all = append(all, func(s *telemetry.Sink) {
			s.Value("meridian_agent_records_dropped_total", float64(n.History.Dropped()))
		})
		all = append(all, doorSource(n.Door))
	}
	if n.Governors != nil {
		all = append(all, governorSource(n.Governors))
	}
	if n.Store != nil {
		all = append(all, storeSource(n.Store))
	}
	if n.Prefixes != nil {
		all = append(all, prefixSource(n.Prefixes))
	}
	return all
}

// delivered says what a collector did not take, which is no failure of the process.
func delivered(err error, logger *slog.Logger) error {
	if errors.Is(err, telemetry.ErrUndelivered) {
		logger.Warn("the last metrics and spans were not delivered", "error", err)
		return nil
	}
	return err
}

// agentSource hands an agent's numbers to telemetry.
func agentSource(a *agent.Agent) telemetry.Source {
	return func(s *telemetry.Sink) {
		m := a.Metrics()
		s.Value("meridian_agent_transfers_posted_total", float64(m.Posted))
		s.Value("meridian_agent_transfers_ended_total", float64(m.Done), "done")
		s.Value("meridian_agent_transfers_ended_total", float64(m.Failed), "failed")
		s.Value("meridian_agent_bytes_total", float64(m.BytesRead), "read")
		s.Value("meridian_agent_bytes_total", float64(m.BytesWritten), "write")
		s.Value("meridian_agent_notifications_total", float64(m.Notified), "taken")
		s.Value("meridian_agent_notifications_total", float64(m.NotificationsRefused), "refused")
		s.Value("meridian_agent_regions", float64(m.Regions))
		s.Value("meridian_agent_peers", float64(m.Peers))
		s.Value("meridian_agent_grants", float64(m.Grants))
		s.Value("meridian_agent_audit_events_total", float64(m.Audit.Granted), "granted")
		s.Value("meridian_agent_audit_events_total", float64(m.Audit.Revoked), "revoked")
		s.Value("meridian_agent_audit_events_total", float64(m.Audit.Refused), "refused")
		s.Value("meridian_agent_audit_events_total", float64(m.Audit.Fenced), "fenced")
		s.Value("meridian_agent_audit_events_total", float64(m.Audit.ChecksumFailures), "checksum_failed")
	}
}

// handOffSource hands a transceiver's numbers to telemetry.
func handOffSource(t *transceiver.Transceiver) telemetry.Source {
	return func(s *telemetry.Sink) {
		m := t.Metrics()
		s.Value("meridian_handoff_offers_total", float64(m.Offered), "taken")
		s.Value("meridian_handoff_offers_total", float64(m.Declined), "declined")
		s.Value("meridian_handoff_offers_ended_total", float64(m.Freed-m.Expired), "freed")
		s.Value("meridian_handoff_offers_ended_total", float64(m.Expired), "expired")
		for _, name := range []string{"meridian_handoff_accepts_total", "meridian_handoff_intakes_total"} { // the second for one release
			s.Value(name, float64(m.Accepted), "taken")
			s.Value(name, float64(m.Refused), "refused")
		}
		for _, name := range []string{"meridian_handoff_accepts_ended_total", "meridian_handoff_intakes_ended_total"} {
			s.Value(name, float64(m.Ready), "ready")
			s.Value(name, float64(m.Failed), "failed")
		}
		s.Value("meridian_handoff_bytes_total", float64(m.BytesReady))
		s.Value("meridian_handoff_messages_total", float64(m.MessagesSent), "sent")
		s.Value("meridian_handoff_messages_total", float64(m.MessagesLost), "lost")
		s.Value("meridian_handoff_messages_total", float64(m.MessagesHeard), "heard")
		s.Value("meridian_handoff_messages_total", float64(m.MessagesMalformed), "malformed")
		s.Value("meridian_handoff_running", float64(m.Offers), "offers")
		s.Value("meridian_handoff_running", float64(m.Accepts), "accepts")
		s.Value("meridian_handoff_running", float64(m.Accepts), "intakes")
		s.Value("meridian_handoff_running", float64(m.Sessions), "sessions")
	}
}

// doorSource hands the engine door's numbers to telemetry.
func doorSource(d *doorserver.Server) telemetry.Source {
	return func(s *telemetry.Sink) {
		m := d.Metrics()
		s.Value("meridian_door_connections", float64(m.Connections))
		s.Value("meridian_door_engines", float64(m.Engines-m.Serving), "gathering")
		s.Value("meridian_door_engines", float64(m.Serving), "serving")
		s.Value("meridian_door_fenced_total", float64(m.Fenced))
		for code, n := range m.Refused {
			s.Value("meridian_door_refused_total", float64(n), code)
		}
		s.Value("meridian_door_governed", float64(m.Governed), "scheduler")
		s.Value("meridian_door_governed", float64(m.Measuring), "measures")
		s.Value("meridian_door_requests", float64(m.Running), "running")
		s.Value("meridian_door_requests", float64(m.Waiting), "waiting")
		s.Value("meridian_door_free_blocks", float64(m.FreeBlocks))
		s.Value("meridian_door_steps_total", float64(m.StepsDecided), "decided")
		s.Value("meridian_door_steps_total", float64(m.StepsMeasured), "measured")
		s.Value("meridian_door_steps_total", float64(m.StepsRefused), "refused")
		s.Value("meridian_door_steps_total", float64(m.StepsUnread), "unread")
	}
}

// storeSource hands the numbers of the object cache to telemetry: those of a client,
// and those of an owner where the process is one.
func storeSource(c *store.Store) telemetry.Source {
	return func(s *telemetry.Sink) {
		m := c.Metrics()
		s.Value("meridian_store_operations_total", float64(m.Puts), "put", "done")
		s.Value("meridian_store_operations_total", float64(m.PutsLost), "put", "exists")
		s.Value("meridian_store_operations_total", float64(m.PutsOverloaded), "put", "overloaded")
		s.Value("meridian_store_operations_total", float64(m.PutsFailed), "put", "failed")
		s.Value("meridian_store_operations_total", float64(m.Gets), "get", "done")
		s.Value("meridian_store_operations_total", float64(m.GetsMissed), "get", "missed")
		s.Value("meridian_store_operations_total", float64(m.GetsOverloaded), "get", "overloaded")
		s.Value("meridian_store_operations_total", float64(m.GetsFailed), "get", "failed")
		s.Value("meridian_store_operations_total", float64(m.Removes), "remove", "done")
		s.Value("meridian_store_operations_total", float64(m.RemovesFailed), "remove", "failed")
		s.Value("meridian_store_operation_bytes_total", float64(m.PutBytes), "put")
		s.Value("meridian_store_operation_bytes_total", float64(m.GetBytes), "get")
		s.Value("meridian_store_page_seconds_total", m.MeanPage.Seconds()*float64(m.PagesWritten))
		s.Value("meridian_store_pages_total", float64(m.PagesWritten))
		s.Value("meridian_store_messages_total", float64(m.MessagesSent), "sent")
		s.Value("meridian_store_messages_total", float64(m.MessagesLost), "lost")
		s.Value("meridian_store_messages_total", float64(m.MessagesHeard), "heard")
		s.Value("meridian_store_messages_total", float64(m.MessagesBroken), "malformed")
		s.Value("meridian_store_operations", float64(m.Operations))
		s.Value("meridian_store_owners", float64(m.Owners))
		s.Value("meridian_store_terms_total", float64(m.Terms))
		master := 0.0
		if m.Master {
			master = 1
		}
		s.Value("meridian_store_master", master)
		kept, is := c.Kept()
		if is {
			keptValues(s, kept)
			coldValues(s, c)
		}
		s.Value("meridian_store_torn_total", float64(m.Torn+kept.Torn)) // each was seen by one of both
	}
}

// coldValues hands over the numbers of an owner's tiers.
func coldValues(s *telemetry.Sink, c *store.Store) {
	cold, tiers := c.Cold()
	if len(tiers) == 0 {
		return
	}
	s.Value("meridian_store_promoted_total", float64(cold.Promoted), "done")
	s.Value("meridian_store_promoted_total", float64(cold.PromotionsFailed), "failed")
	s.Value("meridian_store_promoted_bytes_total", float64(cold.PromotedBytes))
	s.Value("meridian_store_promotion_seconds_total", cold.PromotionSeconds)
	s.Value("meridian_store_written_behind_dropped_total", float64(cold.Dropped))
	for _, t := range tiers {
		s.Value("meridian_store_tier_objects", float64(t.Objects), t.Name)
		s.Value("meridian_store_tier_bytes", float64(t.Bytes), t.Name, "used")
		s.Value("meridian_store_tier_bytes", float64(t.Limit), t.Name, "limit")
		s.Value("meridian_store_tier_bytes", float64(t.Waiting), t.Name, "waiting")
		s.Value("meridian_store_tier_operations_total", float64(t.Puts), t.Name, "put", "done")
		s.Value("meridian_store_tier_operations_total", float64(t.PutsDropped), t.Name, "put", "dropped")
		s.Value("meridian_store_tier_operations_total", float64(t.PutsFailed), t.Name, "put", "failed")
		s.Value("meridian_store_tier_operations_total", float64(t.Hits), t.Name, "get", "hit")
		s.Value("meridian_store_tier_operations_total", float64(t.Misses), t.Name, "get", "miss")
		s.Value("meridian_store_tier_moved_bytes_total", float64(t.PutBytes), t.Name, "in")
		s.Value("meridian_store_tier_moved_bytes_total", float64(t.HitBytes), t.Name, "out")
		s.Value("meridian_store_tier_troubles_total", float64(t.Slow), t.Name, "slow")
		s.Value("meridian_store_tier_troubles_total", float64(t.Failed), t.Name, "failed")
		s.Value("meridian_store_tier_troubles_total", float64(t.Broken), t.Name, "broken")
		s.Value("meridian_store_tier_troubles_total", float64(t.OverBudget), t.Name, "over_budget")
		s.Value("meridian_store_tier_reclaimed_total", float64(t.Reclaimed), t.Name)
		s.Value("meridian_store_tier_requests_total", float64(t.Requests), t.Name)
		down := 0.0
		if t.Down {
			down = 1
		}
		s.Value("meridian_store_tier_down", down, t.Name)
	}
}

// prefixSource hands the numbers of what engines keep and find to telemetry.
func prefixSource(c *prefix.Cache) telemetry.Source {
	return func(s *telemetry.Sink) {
		m := c.Metrics()
		for _, outcome := range prefix.KeepOutcomes {
			s.Value("meridian_cache_keeps_total", float64(m.Keeps[outcome]), outcome)
		}
		for _, outcome := range prefix.FindOutcomes {
			s.Value("meridian_cache_finds_total", float64(m.Finds[outcome]), outcome)
		}
		s.Value("meridian_cache_find_seconds_total", m.FindTime.Seconds())
		s.Value("meridian_cache_tokens_total", float64(m.TokensFound), "found")
		s.Value("meridian_cache_tokens_total", float64(m.TokensAsked-m.TokensFound), "missed")
		for i, tier := range keys.Tiers {
			s.Value("meridian_cache_tier_finds_total", float64(m.FindsIn[i]), tier)
			s.Value("meridian_cache_tier_tokens_total", float64(m.FoundIn[i]), tier)
		}
		for _, u := range m.Models {
			s.Value("meridian_cache_model_finds_total", float64(u.Hits), u.Model, "hit")
			s.Value("meridian_cache_model_finds_total", float64(u.Finds-u.Hits), u.Model, "miss")
			s.Value("meridian_cache_model_tokens_total", float64(u.TokensFound), u.Model, "found")
			s.Value("meridian_cache_model_tokens_total", float64(u.TokensAsked-u.TokensFound), u.Model, "missed")
		}
		s.Value("meridian_cache_segments_total", float64(m.Segments))
		s.Value("meridian_cache_units_total", float64(m.UnitsKept), "kept")
		s.Value("meridian_cache_units_total", float64(m.UnitsPresent), "present")
		s.Value("meridian_cache_bytes_total", float64(m.BytesKept))
		s.Value("meridian_cache_in_flight_bytes", float64(m.BytesInFlight), "out")
		s.Value("meridian_cache_in_flight_bytes", float64(m.Taking), "in")
		s.Value("meridian_cache_owner_units_total", float64(m.UnitsTaken), "taken")
		s.Value("meridian_cache_owner_units_total", float64(m.UnitsAborted), "aborted")
		s.Value("meridian_cache_owner_units_total", float64(m.Broken), "broken")
		s.Value("meridian_cache_owner_asks_total", float64(m.Grants), "granted")
		s.Value("meridian_cache_owner_asks_total", float64(m.GrantsRefused+m.TakesRefused), "refused")
		s.Value("meridian_cache_owner_asks_total", float64(m.TurnedAway), "overloaded")
		s.Value("meridian_cache_owner_asks_total", float64(m.UsesHeard), "used")
		s.Value("meridian_cache_owner_asks_total", float64(m.Malformed), "malformed")
		s.Value("meridian_cache_copies_total", float64(m.CopiesMade), "taken")
		s.Value("meridian_cache_copies_total", float64(m.CopiesRefused), "refused")
		s.Value("meridian_cache_held_runs", float64(m.Granted))
		s.Value("meridian_cache_shapes", float64(m.Shapes))
	}
}

// keptValues are the numbers of an owner.
func keptValues(s *telemetry.Sink, o owner.Stats) {
	s.Value("meridian_store_heap_bytes", float64(o.HeapUsed), "used")
	s.Value("meridian_store_heap_bytes", float64(o.HeapTotal), "total")
	s.Value("meridian_store_objects", float64(o.Ready), "ready")
	s.Value("meridian_store_objects", float64(o.Writing), "writing")
	s.Value("meridian_store_ring_depth", float64(o.Waiting))
	s.Value("meridian_store_lookups_total", float64(o.Hits), "hit")
	s.Value("meridian_store_lookups_total", float64(o.Misses), "miss")
	s.Value("meridian_store_bytes_total", float64(o.BytesIn), "in")
	s.Value("meridian_store_bytes_total", float64(o.BytesOut), "out")
	s.Value("meridian_store_evictions_total", float64(o.Evictions-o.EvictedByShare-o.EvictedByQuota-o.EvictedCopies), "policy")
	s.Value("meridian_store_evictions_total", float64(o.EvictedCopies), "copy")
	s.Value("meridian_store_evictions_total", float64(o.EvictedByShare), "share")
	s.Value("meridian_store_evictions_total", float64(o.EvictedByQuota), "quota")
	s.Value("meridian_store_reclaims_total", float64(o.Reclaims))
	s.Value("meridian_store_timeouts_total", float64(o.Timeouts))
	s.Value("meridian_store_refused_total", float64(o.Refused))
	s.Value("meridian_store_out_of_memory_total", float64(o.OutOfMemory))
	s.Value("meridian_store_cas_failures_total", float64(o.CASFailures))
	s.Value("meridian_store_overloaded_total", float64(o.Overloaded))
}
