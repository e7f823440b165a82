package node

import (
	"meridian/agent"
	"meridian/doorserver"
	"meridian/telemetry"
	"meridian/transceiver"
)

// sources are the rooms of this process that have numbers.
func (n *Agent) sources() []telemetry.Source {
	all := []telemetry.Source{agentSource(n.Agent), handOffSource(n.Transceiver)}
	if n.Door != nil {
		all = append(all, doorSource(n.Door))
	}
	return all
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
		s.Value("meridian_handoff_intakes_total", float64(m.Accepted), "taken")
		s.Value("meridian_handoff_intakes_total", float64(m.Refused), "refused")
		s.Value("meridian_handoff_intakes_ended_total", float64(m.Ready), "ready")
		s.Value("meridian_handoff_intakes_ended_total", float64(m.Failed), "failed")
		s.Value("meridian_handoff_bytes_total", float64(m.BytesReady))
		s.Value("meridian_handoff_messages_total", float64(m.MessagesSent), "sent")
		s.Value("meridian_handoff_messages_total", float64(m.MessagesLost), "lost")
		s.Value("meridian_handoff_messages_total", float64(m.MessagesHeard), "heard")
		s.Value("meridian_handoff_messages_total", float64(m.MessagesMalformed), "malformed")
		s.Value("meridian_handoff_running", float64(m.Offers), "offers")
		s.Value("meridian_handoff_running", float64(m.Intakes), "intakes")
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
	}
}
