// Package replay runs a workload through engines in virtual time, under the
// policies of sched and the placement of place, and says who waits for what.
//
//	workload ──► cell ── place ──► engine ── Decide ──► plan ──► commit ──► tally
//	             (clock)             ▲                   │  (steps)           │
//	                                 └── copies, hand-offs, arrivals ─────────┴──► Result
//
// An engine works in iterations, as vLLM V1 does: before a step it shows its
// policy a snapshot, the policy says who computes how many tokens, and the step
// takes as long as its profile says. A sequence that has computed all it must finds a
// token at the end of the step. A plan is as many steps as the policy's decision
// holds for and nothing happens in: it is carried out at once, in whole
// picoseconds, so that it equals the same steps one by one. An arrival, a copy
// that lands or a sample cuts a plan at the end of the step it falls into.
//
// # Step time
//
// A profile has a time for each step, sequence, token, token of context and pair
// of tokens that attend to each other in a chunk of a prompt; Profile has the
// formula. Built-in ones are rooflines. With b the bandwidth and f the FLOPS that
// are reached, of all GPUs together,
//
//	dense(t)  = max(touched weights / b, 2 · active parameters · t / f) + all-reduce(t)
//	context   = max(KV bytes of a token / b, FLOPs of attending to one / f)
//	pair      = FLOPs of attending to one / f
//
// where a step of t tokens touches all shared weights and, of routed experts, the
// part 1 − (1 − chosen/experts)^t. Latent attention that is cut by heads reads
// the whole cache on every GPU. The all-reduce is two for each layer, ring, with
// a latency. Data sheets and model shapes are named beside the numbers; which
// part of a data sheet is reached is assumed, and said so. They rank policies;
// for absolute times use a measured profile.
//
// # Load
//
// Capacity is how many requests of a workload a second a cell ends when there
// is always one more waiting, under the policy stock. A load is a part of that.
package replay
