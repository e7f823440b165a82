package directory

import "sync/atomic"

// Metrics is what a directory has counted since it was opened.
type Metrics struct {
	Leases  int // open now
	Watches int // open now

	Calls    uint64 // reads and writes asked for
	Failures uint64 // of those, unanswered: ErrUnavailable
	Renewals uint64 // leases kept alive
	Restored uint64 // leases granted anew after an expiry
	Lost     uint64 // leases given up
	Outages  uint64 // watches that heard Unavailable
	Resyncs  uint64 // watches that were sent all there is
	Lapses   uint64 // watches whose consumer fell behind
}

type counters struct {
	calls, failures, renewals, restored, lost, outages, resyncs, lapses atomic.Uint64
}

func (d *directory) Metrics() Metrics {
	d.mu.Lock()
	leases, watches := len(d.leases), len(d.watches)
	d.mu.Unlock()
	c := &d.count
	return Metrics{
		Leases: leases, Watches: watches,
		Calls: c.calls.Load(), Failures: c.failures.Load(),
		Renewals: c.renewals.Load(), Restored: c.restored.Load(), Lost: c.lost.Load(),
		Outages: c.outages.Load(), Resyncs: c.resyncs.Load(), Lapses: c.lapses.Load(),
	}
}
