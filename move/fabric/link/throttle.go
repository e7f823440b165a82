package link

import "time"

// throttle is what a peer owes for frames that led to nothing: refused, repeated,
// cancelled after their end, signs of life without end. An honest peer has few, also when a fence refuses
// all it had under way; one that lives off them is made to wait, because a
// refusal costs its server more than the request cost the peer.
type throttle struct {
	owed float64
	at   time.Time
}

const (
	debtForgiven = 8192 // at once
	debtPaidPerS = 1000
	// listPerDebt is how many bytes of a list cost as much as a refusal.
	listPerDebt = 256
	// leastRun is how many bytes a run takes at least where it is written out.
	leastRun = 3
	// maxDelay is how long one frame waits at most; a stream that closes
	// must not wait longer either.
	maxDelay = 10 * time.Millisecond
)

func (d *throttle) add(n int, now time.Time) {
	d.settle(now)
	d.owed += float64(n)
}

func (d *throttle) settle(now time.Time) {
	d.owed = max(0, d.owed-now.Sub(d.at).Seconds()*debtPaidPerS)
	d.at = now
}

// delay is how long the peer waits before it is heard again.
func (d *throttle) delay(now time.Time) time.Duration {
	if d.owed <= debtForgiven {
		return 0
	}
	d.settle(now)
	return min(maxDelay, time.Duration(max(0, d.owed-debtForgiven)/debtPaidPerS*float64(time.Second)))
}
