package handoff

import (
	"cmp"
	"fmt"

	"meridian/kv"
	"meridian/reshard"
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

func (f Flow) append(w *writer) {
	w.count(f.Src)
	w.count(f.Dst)
}

func (f *Flow) parse(r *reader) { f.Src, f.Dst = int(r.uintTo(maxRanks)), int(r.uintTo(maxRanks)) }

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

func appendGrants(w *writer, all []FlowGrant) {
	w.count(len(all))
	for i := range all {
		all[i].Flow.append(w)
		w.id(all[i].Grant)
	}
}

func parseGrants(r *reader) []FlowGrant {
	var all []FlowGrant
	for range r.count(maxFlows) {
		var o FlowGrant
		o.Flow.parse(r)
		o.Grant = r.id()
		all = append(all, o)
	}
	return all
}

// FlowReport is how far a flow has come.
type FlowReport struct {
	FlowGrant
	// Layers is how many of the model's have moved: all those before it.
	Layers int
	Bytes  uint64
	// Attempts is how many transfers it took, Failures how many of them failed.
	Attempts, Failures int
	// Micros is how long its transfers took, one after the other.
	Micros  uint64
	Fabric  string
	Problem Problem
}

func (f *FlowReport) append(w *writer) {
	f.Flow.append(w)
	w.id(f.Grant)
	w.count(f.Layers)
	w.uint(f.Bytes)
	w.count(f.Attempts)
	w.count(f.Failures)
	w.uint(f.Micros)
	w.text(f.Fabric)
	f.Problem.append(w)
}

func (f *FlowReport) parse(r *reader) {
	f.Flow.parse(r)
	f.Grant, f.Layers, f.Bytes = r.id(), r.int(), r.uint()
	f.Attempts, f.Failures, f.Micros = r.int(), r.int(), r.uint()
	f.Fabric = r.text(maxFabricName)
	f.Problem.parse(r)
}

func appendReports(w *writer, all []FlowReport) {
	w.count(len(all))
	for i := range all {
		all[i].append(w)
	}
}

func parseReports(r *reader) []FlowReport {
	var all []FlowReport
	for range r.count(maxFlows) {
		var f FlowReport
		f.parse(r)
		all = append(all, f)
	}
	return all
}
