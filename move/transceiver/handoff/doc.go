// Package handoff is the conversation by which the KV cache of one request goes
// from the ranks that computed it to the ranks that go on with it, as state
// machines without I/O. It computes: a shell (the room transceiver, a simulation)
// feeds the machines what happened and carries out what they answer. They have
// no clock, no goroutine and no lock.
//
//	prefill engine                                             decode engine
//	    │ Offer, Progress, Withdraw                 Accept, Cancel │
//	    ▼                                                          ▼
//	 SourceHome ◄───── Ask, Heartbeat, Push, End ───────── DestinationHome   at each engine's home
//	    │       ──► Answer, Refusal, Progress, Pushed, Ended ────► │
//	    │ Order ▲                                            Order │ ▲
//	    ▼       │ Report                                           ▼ │ Report
//	 Follower, Follower …  grants, or writes    Follower, Follower …  reads, or grants
//
// A home speaks for an engine, a follower works on the memory of the ranks that live
// on one agent: it grants, reads, writes and becomes quiet. Both homes have the same
// followers. A home tells the follower of its own agent and those of others the same
// things; only the way there differs.
//
// A SourceHome's offer:
//
//	          Offer                 Ask            plan made        followers have granted
//	(ticket) ───────►  held ──────────► planning ──────────► granting ────────────────► open
//	    │ Ask           ▲ │                │ (to be pushed: nothing to grant) ──────────►│
//	    ▼               │ │ Withdraw,      │ refused                                     │ End, silence, deadline,
//	 awaited ── Offer ──┤ │ expiry         └──────► held                                 │ Withdraw, a follower failed
//	                    │ └──────────────────────────────┐                               ▼
//	                    └── this destination failed, time is left ─────────────────── closing
//	                                                     └──────► over: Freed ◄── all followers quiet
//
// A DestinationHome's accept:
//
//	          Accept              Answer             same digest                 all layers moved, all ranks
//	(ticket) ────────►  asked ───────────► planning ─┬────────────► moving ─────────────────────┐
//	                      │                  │       └─► granting ─► granted ───────────────────┤
//	                      │                  │       (followers here) (the source's write)      ▼
//	                      │ Refusal, Cancel, deadline, silence, a follower failed: Failed ──► stopping
//	                      ▼                                                                     │ all followers quiet
//	                  confirming ◄────────────────── Ready, or Freed after Failed ──────────────┘
//	                      │ End until Ended
//	                      ▼
//	                     over
//
// Failed is told at once; Freed, which gives the blocks back, only at the end.
//
// A prompt moves while it is computed: Computed is a staircase of chunks and
// layers, and what is newly under it is moved by followers, without a word in
// between.
//
// Nothing is free before it is quiet: an offer's blocks, and those of an accept
// that failed, are given back once every follower has said that nothing of this
// hand-off can touch its memory any more. A lease that ends and a deadline that
// passes begin that, they do not replace it.
//
// Messages may be lost, repeated, late, or out of order. A machine that wants
// something asks for it again until it is answered; sessions and orders are numbered, so
// that what is stale is seen to be; results that contradict one another fail the
// hand-off.
package handoff
