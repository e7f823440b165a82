// Package policy decides who runs. A policy is a value that turns a Snapshot of
// an engine into a Decision: who computes how many tokens in the next step, who
// gives its blocks up and how, who is fetched back. It has no clock, no queue
// and no memory of its own but what it reuses: what it knows is in the
// snapshot, what it wants is in the decision.
//
//	          Run                        Keep
//	Waiting ───────► Running ◄────────────────────► Paused   (blocks stay)
//	   ▲                │ │           Run              ▲
//	   │   Recompute    │ │ Offload                    │ all are back
//	   └────────────────┘ └──────► Leaving ──► Away ──► Recalling
//	                               (copying)  Recall
//
// Run, Recompute, Offload and Keep apply to a request that holds blocks, running or
// paused. The engine carries a decision out in this order: victims, recalls,
// runs. So a run may count on blocks that a victim of the same decision frees
// at once: all of a Recompute, those with a copy of an Offload.
package policy
