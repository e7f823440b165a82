package node

import (
	"errors"
	"log/slog"

	"meridian/keep/prefix"
	"meridian/keep/store"
	"meridian/see/telemetry"
)

// sources are the rooms of this process that have numbers.
func (n *Agent) sources() []telemetry.Source {
	all := []telemetry.Source{telemetry.Of(n.Agent.Metrics), telemetry.Of(n.Transceiver.Metrics)}
	if n.Door != nil {
		all = append(all, func(s *telemetry.Sink) {
			s.Value("meridian_agent_records_dropped_total", float64(n.History.Dropped()))
		})
		all = append(all, telemetry.Of(n.Door.Metrics))
	}
	if n.objects != nil {
		all = append(all, telemetry.Of(n.objects.Metrics))
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

// storeSource hands the numbers of the object cache to telemetry: those of a client,
// and those of an owner where the process is one.
func storeSource(c *store.Store) telemetry.Source {
	return func(s *telemetry.Sink) {
		m := c.Metrics()
		s.Fields(m)
		s.Value("meridian_store_page_seconds_total", m.MeanPage.Seconds()*float64(m.PagesWritten))
		kept, is := c.Kept()
		s.Value("meridian_store_torn_total", float64(m.Torn+kept.Torn)) // each was seen by one of both
		if !is {
			return
		}
		s.Fields(kept)
		cold, tiers := c.Cold()
		if len(tiers) > 0 {
			s.Fields(cold)
		}
		for _, t := range tiers {
			s.Fields(t, t.Name)
		}
	}
}

// prefixSource hands the numbers of what engines keep and find to telemetry.
func prefixSource(c *prefix.Cache) telemetry.Source {
	return func(s *telemetry.Sink) {
		m := c.Metrics()
		s.Fields(m)
		s.Value("meridian_cache_owner_asks_total", float64(m.GrantsRefused+m.TakesRefused), "refused")
		for _, u := range m.Models {
			s.Fields(u, u.Model)
		}
	}
}
