package kv

import "fmt"

// Phase is where a request stands. A request only moves forward; one that does
// not reason goes from Prefill straight to Output.
//
//	Prefill ──► Think ──► Output ──► Complete
//	   └───────────────────►
type Phase uint8

const (
	// Prefill computes the prompt.
	Prefill Phase = iota
	// Think decodes tokens that the user does not see.
	Think
	// Output decodes tokens that the user reads as they come.
	Output
	// Complete means that no token follows.
	Complete
)

var phaseNames = [...]string{Prefill: "prefill", Think: "think", Output: "output", Complete: "complete"}

func (p Phase) String() string {
	if int(p) >= len(phaseNames) {
		return fmt.Sprintf("phase(%d)", uint8(p))
	}
	return phaseNames[p]
}
