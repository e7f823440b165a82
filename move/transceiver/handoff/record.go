package handoff

import (
	"fmt"
	"slices"
	"strings"

	"meridian/kv"
	"meridian/move/reshard"
)

// Record is what is kept of a hand-off: who, what, how, how long, and why.
type Record struct {
	Transfer kv.ID  `json:"id"`
	As       Role   `json:"as"`
	Engine   string `json:"engine"`
	// OfStore: the engine is an object cache.
	OfStore bool `json:"of_store,omitempty"`
	// ToKeep: it was offered for an object cache to take.
	ToKeep bool `json:"to_keep,omitempty"`
	// Peer is the other side's home, and PeerEngine its engine; empty if it
	// never came.
	Peer       string `json:"peer"`
	PeerEngine string `json:"peer_engine"`
	Tokens     int    `json:"tokens"`
	Push       bool   `json:"push"`
	// Promised: it was asked for before it could be offered, so that the handshake
	// lasts until the prompt was computed.
	Promised bool   `json:"promised,omitempty"`
	SrcRanks int    `json:"src_ranks"`
	DstRanks int    `json:"dst_ranks"`
	Bytes    uint64 `json:"bytes"`
	// EarlyBytes of them had moved when the last of the cache was computed: what the
	// rest of the prompt hid.
	EarlyBytes uint64 `json:"early_bytes,omitempty"`
	// Pieces is in how many contiguous pieces they were moved.
	Pieces int64 `json:"pieces"`
	// Flows is what moved between which ranks, and how. A source that was read
	// from knows only what was planned.
	Flows []FlowRecord `json:"flows"`
	// Direct: from blocks to blocks, without a stop on the way.
	Direct bool  `json:"direct"`
	Stages Times `json:"stages_us"`
	// EndedUnixUs is when it ended by the wall clock, in microseconds since 1970, to
	// which the stages are related. The shell that keeps the record says so.
	EndedUnixUs int64 `json:"ended_unix_us,omitempty"`
	Retries     int   `json:"retries"` // messages and transfers that were tried again
	// Problem is empty when all went well.
	Problem string `json:"problem,omitempty"`
	// Unused: it is of the object cache, and was given back before it was taken. An engine
	// that has no use for what it found does that, and an agent whose owners will not keep
	// something: nothing went wrong.
	Unused bool `json:"unused,omitempty"`
}

// FlowRecord is one cell of the matrix of ranks.
type FlowRecord struct {
	Flow
	Bytes    uint64 `json:"bytes"`
	Fabric   string `json:"fabric,omitempty"`
	Attempts int    `json:"attempts"`
	Micros   uint64 `json:"micros"`
}

// Times is when a hand-off reached each stage, by the clock of this machine;
// zero means never.
type Times struct {
	Begun   Instant `json:"begun"`
	Met     Instant `json:"met,omitempty"`
	Planned Instant `json:"planned,omitempty"`
	Moving  Instant `json:"moving,omitempty"`
	Moved   Instant `json:"moved,omitempty"`
	Ended   Instant `json:"ended"`
}

// Stage is the time from one stage of a hand-off to the next.
type Stage struct {
	Name     string
	From, To Instant
}

// Each returns the stages that were gone through, and all of them together as total.
func (t Times) Each() []Stage {
	stages := []Stage{
		{"handshake", t.Begun, t.Met},
		{"plan", t.Met, t.Planned},
		{"prepare", t.Planned, t.Moving},
		{"data", t.Moving, t.Moved},
		{"verify", t.Moved, t.Ended},
		{"total", t.Begun, t.Ended},
	}
	return slices.DeleteFunc(stages, func(s Stage) bool { return s.From == 0 || s.To < s.From })
}

func (r *Record) String() string {
	var b strings.Builder
	way := "read by the destination"
	if r.Push {
		way = "written by the source"
	}
	fmt.Fprintf(&b, "hand-off %s: %d tokens, %d bytes, %s, as %v for engine %s\n", r.Transfer, r.Tokens, r.Bytes, way, r.As, r.Engine)
	if r.Peer != "" {
		fmt.Fprintf(&b, "  with      %s, engine %s\n", r.Peer, r.PeerEngine)
	}
	outcome := "done"
	switch {
	case r.Unused:
		outcome = "given back before it was taken; nothing went wrong"
	case r.Problem != "":
		outcome = "failed: " + r.Problem
	}
	fmt.Fprintf(&b, "  outcome   %s\n", outcome)
	for _, s := range r.Stages.Each() {
		note := ""
		if r.Promised && s.Name == "handshake" {
			note = ", asked for before it was offered"
		}
		fmt.Fprintf(&b, "  %-9s %.3f ms%s\n", s.Name, float64(s.To-s.From)/float64(Millisecond), note)
	}
	if r.EarlyBytes > 0 {
		fmt.Fprintf(&b, "  overlap   %d of %d bytes had moved when the last was computed\n", r.EarlyBytes, r.Bytes)
	}
	if r.Pieces > 0 {
		fmt.Fprintf(&b, "  way       direct, from blocks to blocks: %d pieces of %d bytes on average\n", r.Pieces, r.Bytes/uint64(r.Pieces))
	}
	fmt.Fprintf(&b, "  retries   %d\n", r.Retries)
	r.matrix(&b)
	return b.String()
}

// matrix draws bytes by source and destination rank.
func (r *Record) matrix(b *strings.Builder) {
	if len(r.Flows) == 0 {
		return
	}
	bytes := make(map[Flow]uint64, len(r.Flows))
	used := make(map[int]bool)
	for _, f := range r.Flows {
		bytes[f.Flow] = f.Bytes
		used[f.Src] = true
	}
	b.WriteString("  bytes     ")
	for dst := range r.DstRanks {
		fmt.Fprintf(b, "%12s", fmt.Sprintf("→ %d", dst))
	}
	b.WriteString("\n")
	for src := range r.SrcRanks {
		if !used[src] {
			continue
		}
		fmt.Fprintf(b, "  rank %-5d", src)
		for dst := range r.DstRanks {
			cell := "·"
			if n := bytes[Flow{src, dst}]; n > 0 {
				cell = fmt.Sprint(n)
			}
			fmt.Fprintf(b, "%12s", cell)
		}
		b.WriteString("\n")
	}
	for _, f := range r.Flows {
		if f.Fabric != "" {
			fmt.Fprintf(b, "  %v: %d bytes by %s in %.3f ms, %d transfers\n", f.Flow, f.Bytes, f.Fabric, float64(f.Micros)/1000, f.Attempts)
		}
	}
}

// addFlows takes over what was planned, and what followers told of it, which is in
// the same order.
func (r *Record) addFlows(plan *reshard.Plan, told []FlowReport) {
	for _, f := range plan.Flows() {
		_, pieces := f.CountRuns()
		r.Pieces += pieces
		flow := FlowRecord{Flow: Flow{f.Src, f.Dst}, Bytes: uint64(f.Bytes())}
		if i, found := slices.BinarySearchFunc(told, flow.Flow, func(t FlowReport, f Flow) int { return t.Compare(f) }); found {
			flow.Fabric, flow.Attempts, flow.Micros = told[i].Fabric, told[i].Attempts, told[i].Micros
			r.Retries += max(0, told[i].Failures)
		}
		r.Flows = append(r.Flows, flow)
	}
}

func (r *Record) countRetry() {
	if r != nil { // a ticket that is only given back leaves none
		r.Retries++
	}
}

// early notes what had moved when the last of a cache was computed, as far as followers
// had told.
func (r *Record) early(flows []FlowReport) {
	r.EarlyBytes = 0
	for i := range flows {
		r.EarlyBytes += flows[i].Bytes
	}
}
