// Package entropy says how undecided a model is: the entropy of a row of logits,
// and the two published estimators that read entropies to end a thought.
//
// # Entropy
//
// With c the largest logit, S = Σ e^(x-c) and T = Σ (x-c)·e^(x-c), the entropy is
// ln S - T/S nats. A row is read once, in blocks that stay in the nearest cache;
// a block with a larger logit than all before it rescales S and T:
//
//	row:    │ block 0 (2048) │ block 1 │ …            bf16, fp16 or fp32
//	         load: exact fp32, its maximum, any NaN
//	block:  │ 16 lanes │ 16 lanes │ 16 lanes │ 16 lanes │ …    groups of 64
//	         e^y and y·e^y in fp32, lane by lane:
//	         (0 + 1) + (2 + 3), widened, added to 16 sums in fp64
//
// The order of operations is one and the same in portable Go, AVX2 and AVX-512,
// and nothing is fused, so that on one machine all of them give the same bits.
// Against a reference in float64 the error stays below 1e-5 nats for any
// vocabulary up to a million: two fp32 additions and an e^y good to 3e-7 come
// before the sums in fp64. A logit more than 86 nats below the largest weighs
// nothing that a float64 could show.
//
// -Inf is a mask: the token is not there. NaN and +Inf are errors that say where.
// A row without any token that may come has no entropy, which is an error, too.
//
// # Estimators
//
// [EAT] is fed by an engine that can fork the context, [RPDI] by the entropy of every
// think token; an [Estimator] has both for one sequence, each with a [Reason] of
// its own. What was not measured is absent: nothing stands in for it, and a
// reason comes only where it would with any number there.
package entropy
