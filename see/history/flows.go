package history

import (
	"cmp"
	"slices"
	"sync"

	"meridian/move/transceiver/handoff"
)

// FlowTotal is what has gone between two ranks, of all hand-offs of an agent.
type FlowTotal struct {
	From     string `json:"from"` // engine
	To       string `json:"to"`
	Src      int    `json:"src"` // rank
	Dst      int    `json:"dst"`
	Bytes    uint64 `json:"bytes"`
	HandOffs uint64 `json:"handoffs"`
	Micros   uint64 `json:"micros"` // of them all together
	Fabric   string `json:"fabric,omitempty"`
}

const (
	// maxFlowTotals is between how many pairs of ranks an agent counts, and
	// MaxFlowsTold how many of them, the largest, it tells others of.
	maxFlowTotals = 4096
	MaxFlowsTold  = 256
	// maxFlowsKept is how much of a hand-off's matrix is given to who asks for the
	// last ones; who asks for one by its id gets more.
	maxFlowsKept = 256
)

type flowKey struct {
	from, to string
	src, dst int
}

// flowTally counts bytes by pairs of ranks. Each hand-off is counted where it
// arrived, so that those of all agents add up.
type flowTally struct {
	mu    sync.Mutex // protects all
	pairs map[flowKey]*FlowTotal
}

func (t *flowTally) add(h *handoff.Record) {
	if h.As != handoff.Destination || h.Problem != "" {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.pairs == nil {
		t.pairs = make(map[flowKey]*FlowTotal)
	}
	for _, f := range h.Flows {
		key := flowKey{h.PeerEngine, h.Engine, f.Src, f.Dst}
		total := t.pairs[key]
		if total == nil {
			if len(t.pairs) == maxFlowTotals {
				continue
			}
			total = &FlowTotal{From: key.from, To: key.to, Src: key.src, Dst: key.dst}
			t.pairs[key] = total
		}
		total.Bytes += f.Bytes
		total.Micros += f.Micros
		total.HandOffs++
		total.Fabric = cmp.Or(f.Fabric, total.Fabric)
	}
}

// largest are the pairs with the most bytes, and how many others there are.
func (t *flowTally) largest() (totals []FlowTotal, others int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, total := range t.pairs {
		totals = append(totals, *total)
	}
	slices.SortFunc(totals, CompareFlows)
	if len(totals) > MaxFlowsTold {
		totals, others = totals[:MaxFlowsTold], len(totals)-MaxFlowsTold
	}
	return totals, others
}

// CompareFlows puts those with the most bytes first.
func CompareFlows(a, b FlowTotal) int {
	return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To), cmp.Compare(a.Src, b.Src), cmp.Compare(a.Dst, b.Dst))
}
