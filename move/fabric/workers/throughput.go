package workers

import "time"

// throughput is how fast transfers have been lately.
type throughput struct{ nsPerByte float64 }

const (
	// perTransfer and perPiece are what it takes beside the bytes: a wake-up,
	// and a turn of the loop.
	perTransfer = 10 * time.Microsecond
	perPiece    = 100 * time.Nanosecond
	// tooSmall to tell the bytes' share from the rest.
	tooSmall = 64 << 10
)

// measured weighs a new measurement at an eighth, so that one slow transfer
// does not decide.
func (p *throughput) measured(bytes uint64, took time.Duration) {
	if bytes >= tooSmall {
		p.nsPerByte += (float64(took)/float64(bytes) - p.nsPerByte) / 8
	}
}

func (p *throughput) estimate(bytes, pieces uint64) time.Duration {
	return perTransfer + time.Duration(pieces)*perPiece + time.Duration(float64(bytes)*p.nsPerByte)
}
