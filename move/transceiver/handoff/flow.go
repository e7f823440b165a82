package handoff

import (
	"cmp"
	"fmt"

	"meridian/internal/fields"
	"meridian/kv"
	"meridian/move/reshard"
)

// Flow is one pair of ranks between which bytes move.
type Flow struct {
	Src int `json:"src"`
	Dst int `json:"dst"`
}

// Compare orders flows.
func (f Flow) Compare(other Flow) int {
	return cmp.Or(cmp.Compare(f.Src, other.Src), cmp.Compare(f.Dst, other.Dst))
}

func (f Flow) String() string { return fmt.Sprintf("rank %d → rank %d", f.Src, f.Dst) }

// maxFlows bounds what one message may list, maxFabricName what each of them may
// say that it moved by.
const (
	maxFlows      = 1 << 18
	maxFabricName = 32
)

func (f *Flow) each(c fields.Codec) { fields.UpTo(c, maxRanks, &f.Src, &f.Dst) }

// FlowGrant is a flow with the grant under which it may move. The follower that
// is to give the grants is told the flows without them.
type FlowGrant struct {
	Flow
	Grant kv.ID
}

// maxFlowsEach bounds the flows of one hand-off. Each takes a grant, of which an
// agent has so many for all hand-offs.
const maxFlowsEach = 1 << 12

// flowsOf lists the flows of a plan, without grants.
func flowsOf(plan *reshard.Plan) ([]FlowGrant, error) {
	if n := len(plan.Flows()); n > maxFlowsEach {
		return nil, fmt.Errorf("%w: %d pairs of ranks would exchange bytes, at most %d may in one hand-off", ErrTerms, n, maxFlowsEach)
	}
	flows := make([]FlowGrant, len(plan.Flows()))
	for i, f := range plan.Flows() {
		flows[i].Flow = Flow{f.Src, f.Dst}
	}
	return flows, nil
}

func (f *FlowGrant) each(c fields.Codec) {
	f.Flow.each(c)
	c.ID(&f.Grant)
}

func eachGrant(c fields.Codec, all *[]FlowGrant) {
	fields.List(c, maxFlows, all, func(f *FlowGrant) { f.each(c) })
}

// FlowReport is how far a flow has come.
type FlowReport struct {
	FlowGrant
	// Layers is how many of the model's have moved, of all tokens: all those before it.
	Layers int
	Bytes  uint64
	// Attempts is how many transfers it took, Failures how many of them failed.
	Attempts, Failures int
	// Micros is how long its transfers took, one after the other.
	Micros  uint64
	Fabric  string
	Problem Problem
}

func (f *FlowReport) each(c fields.Codec) {
	f.FlowGrant.each(c)
	c.Int(&f.Layers)
	c.Uint(&f.Bytes)
	c.Int(&f.Attempts, &f.Failures)
	c.Uint(&f.Micros)
	c.Text(maxFabricName, &f.Fabric)
	f.Problem.each(c)
}

func eachReport(c fields.Codec, all *[]FlowReport) {
	fields.List(c, maxFlows, all, func(f *FlowReport) { f.each(c) })
}
