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

func (f Flow) append(w *fields.Writer) {
	w.Count(f.Src)
	w.Count(f.Dst)
}

func (f *Flow) parse(r *fields.Reader) {
	f.Src, f.Dst = int(r.UintTo(maxRanks)), int(r.UintTo(maxRanks))
}

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

func appendGrants(w *fields.Writer, all []FlowGrant) {
	w.Count(len(all))
	for i := range all {
		all[i].Flow.append(w)
		w.ID(all[i].Grant)
	}
}

func parseGrants(r *fields.Reader) []FlowGrant {
	var all []FlowGrant
	for range r.Count(maxFlows) {
		var o FlowGrant
		o.Flow.parse(r)
		o.Grant = r.ID()
		all = append(all, o)
	}
	return all
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

func (f *FlowReport) append(w *fields.Writer) {
	f.Flow.append(w)
	w.ID(f.Grant)
	w.Count(f.Layers)
	w.Uint(f.Bytes)
	w.Count(f.Attempts)
	w.Count(f.Failures)
	w.Uint(f.Micros)
	w.Text(f.Fabric)
	f.Problem.append(w)
}

func (f *FlowReport) parse(r *fields.Reader) {
	f.Flow.parse(r)
	f.Grant, f.Layers, f.Bytes = r.ID(), r.Int(), r.Uint()
	f.Attempts, f.Failures, f.Micros = r.Int(), r.Int(), r.Uint()
	f.Fabric = r.Text(maxFabricName)
	f.Problem.parse(r)
}

func appendReports(w *fields.Writer, all []FlowReport) {
	w.Count(len(all))
	for i := range all {
		all[i].append(w)
	}
}

func parseReports(r *fields.Reader) []FlowReport {
	var all []FlowReport
	for range r.Count(maxFlows) {
		var f FlowReport
		f.parse(r)
		all = append(all, f)
	}
	return all
}
