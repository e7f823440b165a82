package agent

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"meridian/fabric"
	"meridian/mrdn"
)

// Transfer is one posted request.
type Transfer struct {
	*fabric.Transfer
	agent  *Agent
	peer   *Peer
	record Record
}

// Record is what is kept of a transfer: who, what, how, how long, and why.
type Record struct {
	ID          mrdn.ID      `json:"id"`
	Op          fabric.Op    `json:"op"`
	Peer        string       `json:"peer"`
	Incarnation mrdn.ID      `json:"incarnation"`
	Fabric      string       `json:"fabric"`
	Choices     []Choice     `json:"choices"`
	Bytes       uint64       `json:"bytes"`
	Pieces      uint64       `json:"pieces"`
	State       fabric.State `json:"state"`
	Error       string       `json:"error,omitempty"`
	Times       fabric.Times `json:"times"`
}

func newTransfer(r *Request, running *fabric.Transfer, name string) *Transfer {
	return &Transfer{Transfer: running, agent: r.agent, peer: r.peer, record: Record{
		ID: running.ID, Op: r.op, Peer: r.peer.Name, Incarnation: r.peer.Incarnation, Fabric: name,
		Choices: slices.Clone(r.choices), Bytes: r.bytes, Pieces: r.pieces,
	}}
}

// begin enters a transfer into the ledger and sees to it that its end is
// counted, without a goroutine of its own.
func (a *Agent) begin(t *Transfer) {
	a.mu.Lock()
	a.metrics.Posted++
	a.mu.Unlock()
	a.ledger.add(t)
	t.OnEnd(func() {
		r := t.Record()
		a.count(&r)
		t.peer.learnSpeed(&r)
	})
}

// learnSpeed keeps a moving average of how fast a fabric was with this peer.
func (p *Peer) learnSpeed(r *Record) {
	const worthMeasuring = 1 << 20
	took := r.Times.Ended.Sub(r.Times.Posted)
	if r.State != fabric.Done || r.Bytes < worthMeasuring || took <= 0 {
		return
	}
	rate := float64(r.Bytes) / float64(took)
	p.mu.Lock()
	defer p.mu.Unlock()
	key := measure{r.Fabric, r.Op}
	if old := p.measured[key]; old > 0 {
		rate = 0.8*old + 0.2*rate
	}
	p.measured[key] = rate
}

// Record returns what is known of the transfer so far.
func (t *Transfer) Record() Record {
	r := t.record
	state, err := t.Status()
	r.State, r.Times = state, t.Times()
	if err != nil {
		r.Error = err.Error()
	}
	return r
}

// Await waits for the end; the error names the peer.
func (t *Transfer) Await(ctx context.Context) error {
	if err := t.Transfer.Await(ctx); err != nil {
		return &fabric.Error{Op: t.Op.String(), Peer: t.peer.Name, Err: err}
	}
	return nil
}

// Explain tells what became of the transfer, and why it went the way it did.
func (t *Transfer) Explain() string { return t.Record().String() }

func (r Record) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "transfer %s: %v, %d bytes in %d pieces, with %s (incarnation %s)\n", r.ID, r.Op, r.Bytes, r.Pieces, r.Peer, r.Incarnation)
	fmt.Fprintf(&b, "  state     %v", r.State)
	if r.Error != "" {
		fmt.Fprintf(&b, ": %s", r.Error)
	}
	fmt.Fprintf(&b, "\n  fabric    %s (%s)\n", r.Fabric, describe(r.Choices))
	stage := func(name string, from, to time.Time) {
		if !from.IsZero() && !to.IsZero() {
			fmt.Fprintf(&b, "  %-9s %v\n", name, to.Sub(from).Round(time.Microsecond))
		}
	}
	stage("submit", r.Times.Posted, r.Times.Submitted)
	stage("total", r.Times.Posted, r.Times.Ended)
	if took := r.Times.Ended.Sub(r.Times.Posted); r.State == fabric.Done && took > 0 {
		fmt.Fprintf(&b, "  rate      %.2f GB/s\n", float64(r.Bytes)/float64(took))
	}
	return b.String()
}

// describe says of each fabric why it stands where it does.
func describe(choices []Choice) string {
	parts := make([]string, len(choices))
	for i, c := range choices {
		switch {
		case c.Refused != "":
			parts[i] = fmt.Sprintf("%s: %s", c.Fabric, c.Refused)
		case c.Failed != "":
			parts[i] = fmt.Sprintf("%s: tried, %s", c.Fabric, c.Failed)
		case c.Measured:
			parts[i] = fmt.Sprintf("%s: measured, expected %v", c.Fabric, c.Expected.Round(time.Microsecond))
		default:
			parts[i] = fmt.Sprintf("%s: preference %d", c.Fabric, c.Preference)
		}
	}
	return strings.Join(parts, "; ")
}

// Explain finds a transfer of the last Options.Records by id.
func (a *Agent) Explain(id mrdn.ID) (Record, error) {
	if t := a.ledger.transfer(id); t != nil {
		return t.Record(), nil
	}
	return Record{}, fmt.Errorf("agent: no record of transfer %s; the last %d are kept", id, a.options.Records)
}

// Transfers returns the records that are kept, oldest first.
func (a *Agent) Transfers() []Record { return a.ledger.records() }

// ledger keeps the last so many transfers.
type ledger struct {
	mu   sync.Mutex // protects the rest
	ring []*Transfer
	next int
	byID map[mrdn.ID]*Transfer
}

func newLedger(size int) *ledger {
	return &ledger{ring: make([]*Transfer, size), byID: make(map[mrdn.ID]*Transfer, size)}
}

func (l *ledger) add(t *Transfer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if old := l.ring[l.next]; old != nil {
		delete(l.byID, old.ID)
	}
	l.ring[l.next] = t
	l.next = (l.next + 1) % len(l.ring)
	l.byID[t.ID] = t
}

func (l *ledger) transfer(id mrdn.ID) *Transfer {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.byID[id]
}

func (l *ledger) records() []Record {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []Record
	for i := range l.ring {
		if t := l.ring[(l.next+i)%len(l.ring)]; t != nil {
			all = append(all, t.Record())
		}
	}
	return all
}
