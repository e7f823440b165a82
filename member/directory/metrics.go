package directory

import "sync/atomic"

// Metrics is what a directory has counted since it was opened.
type Metrics struct {
	Leases  int // open now
	Watches int // open now

	Failures uint64 // reads and writes unanswered: ErrUnavailable
	Renewals uint64 // leases kept alive
	Restored uint64 // leases granted anew after an expiry
	Lost     uint64 // leases given up
	Outages  uint64 // watches that heard Unavailable
	Lapses   uint64 // watches whose consumer fell behind
}

type counters struct {
	failures, renewals, restored, lost, outages, lapses atomic.Uint64
}

func (d *directory) Metrics() Metrics {
	d.mu.Lock()
	leases, watches := len(d.leases), len(d.watches)
	d.mu.Unlock()
	c := &d.count
	return Metrics{
		Leases: leases, Watches: watches,
		Failures: c.failures.Load(), Renewals: c.renewals.Load(), Restored: c.restored.Load(), Lost: c.lost.Load(),
		Outages: c.outages.Load(), Lapses: c.lapses.Load(),
	}
}
