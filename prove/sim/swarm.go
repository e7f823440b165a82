package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// Fault is a kind of trouble.
type Fault uint8

// The kinds.
const (
	Delay     Fault = iota // some packets take far longer than others
	Reorder                // the streams of a link run at different paces
	Duplicate              // a control frame comes twice
	Reset                  // a connection is lost, and both sides learn of it
	HalfOpen               // …one of them only much later
	Partition              // nothing gets through between two hosts
	OneWay                 // …in one direction
	Slow                   // a host answers late
	Crash                  // a process dies, and another starts under its name
	Pause                  // a process stands still, and then goes on
	Corrupt                // a byte of a payload changes on the way
	FullQueue              // limits are small: transfers, notifications, windows
	Outage                 // the directory does not answer
	ClockJump              // a wall clock jumps
	faultCount
)

var faultNames = [...]string{
	"delay", "reorder", "duplicate", "reset", "half-open", "partition", "one-way", "slow", "crash", "pause", "corrupt",
	"full-queue", "outage", "clock-jump",
}

func (f Fault) String() string {
	if int(f) < len(faultNames) {
		return faultNames[f]
	}
	return fmt.Sprintf("fault(%d)", uint8(f))
}

// FaultNames lists what ParseFault reads.
func FaultNames() []string { return slices.Clone(faultNames[:]) }

// AllFaults lists them.
func AllFaults() []Fault {
	all := make([]Fault, faultCount)
	for i := range all {
		all[i] = Fault(i)
	}
	return all
}

// ParseFault reads what String wrote.
func ParseFault(text string) (Fault, error) {
	i := slices.Index(faultNames[:], text)
	if i < 0 {
		return 0, fmt.Errorf("sim: no fault %q; there is %s", text, strings.Join(faultNames[:], ", "))
	}
	return Fault(i), nil
}

// swarm is what is drawn for a world before anything happens in it: worlds that
// each have a few kinds of trouble find more than worlds that all have every
// kind.
type swarm struct {
	faults    [faultCount]bool
	hosts     int
	rails     int // fabrics of an agent
	streams   int
	lends     [mostRails]bool // rails on which memory is lent, and no bytes travel
	errands   int
	directory bool

	chunk, piece, wholePart uint64
	window                  int // pieces in flight on a stream
	transfers               int // at a time, on a link
	inbox, records          int
	attends                 bool // rooms attend to what they are told, so that receipts wait
	remember                int

	keepAlive time.Duration
	latency   time.Duration // the most that a packet takes without trouble
	errandGap time.Duration
	// mischiefGap is how many packets there are, on average, from one trouble
	// to the next.
	mischiefGap int
}

func drawSwarm(r *rand.Rand, allowed []Fault) swarm {
	s := swarm{
		hosts: 2 + r.IntN(4), rails: 1 + r.IntN(2), streams: 1 + r.IntN(4), errands: 30 + r.IntN(60), directory: r.IntN(2) == 0,
		chunk: 32 << r.IntN(5), piece: 16 << r.IntN(4), wholePart: 48 << r.IntN(3), window: 1 + r.IntN(8),
		transfers: 4096, inbox: 256, records: 1 << r.IntN(6), remember: 256,
		keepAlive: time.Duration(300+r.IntN(1200)) * time.Millisecond, latency: time.Duration(10+r.IntN(1000)) * time.Microsecond,
		errandGap: time.Duration(100+r.IntN(4000)) * time.Microsecond, mischiefGap: 20 << r.IntN(5),
	}
	if allowed == nil {
		allowed = AllFaults()
	}
	for _, f := range AllFaults() {
		s.faults[f] = r.IntN(5) < 2 && slices.Contains(allowed, f)
	}
	if s.faults[FullQueue] {
		s.transfers, s.inbox, s.window = 1+r.IntN(4), 1+r.IntN(3), 1
	}
	for i := range s.lends {
		s.lends[i] = r.IntN(3) == 0
	}
	s.attends = r.IntN(2) == 0
	return s
}

func (s *swarm) String() string {
	var faults []string
	for f, on := range s.faults {
		if on {
			faults = append(faults, Fault(f).String())
		}
	}
	directory := "no directory"
	if s.directory {
		directory = "a directory"
	}
	var lends string
	for i, on := range s.lends[:s.rails] {
		if on {
			lends += fmt.Sprintf(", rail %d lends", i)
		}
	}
	return fmt.Sprintf("%d hosts, %d rails of %d streams%s, %s; chunks of %d in pieces of %d, parts from %d bytes, %d in flight; "+
		"%d transfers, %d notifications, %d records; keepalive %v, latency %v; faults: %s",
		s.hosts, s.rails, s.streams, lends, directory, s.chunk, s.piece, s.wholePart, s.window, s.transfers, s.inbox, s.records,
		s.keepAlive, s.latency, strings.Join(faults, ", "))
}
