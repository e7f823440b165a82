// Package governor decides for one engine: facts of its steps go in, decisions
// come out. It puts together what phase, entropy, block and policy know, has no
// clock and makes no calls; what it wants to be done, the copies among it, is
// returned.
//
//	facts of a step                                             decision
//	  arrivals, ends ─────► sequences ───────────► policy.Policy ─► order, pause, resume,
//	  committed tokens ───► phase.Map ─► events ──┐    ▲            preempt, recall
//	  entropies, forks ───► entropy.Estimator ────┼► Thought ─────► force, with a reason; fork
//	  blocks, copies ─────► block.Table ──────────┘    │ ─────────► copy out, evict
//	  times ──────────────► Calibration ───────────────┘ costs
//
// The deciding parts stand by themselves: a Thought and a Calibration can be fed
// by a caller that knows phases and times without a stream of tokens, as replay does. A
// commit may say its phase instead of its tokens; everything behind is the same
// code.
//
// It fails open. A fact that contradicts another is left out and counted; without
// entropies only the cap ends a thought, and the decision says so; without a
// fabric nothing is copied, and who loses its blocks is computed anew.
package governor
