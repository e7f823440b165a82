// Package placement decides which engine computes a prompt and which one generates.
// It is pure: loads, prefixes and the time are arguments, the choice is the
// answer, with its reasons.
//
//	                       ┌─ short or cached ──────────────► decode alone
//	request ─► decode ─────┤
//	           (cheapest)  └─ long ─► prefill (cheapest) ───► prefill, then decode
//
// What is cheap is counted in tokens of prompt that an engine must compute
// before this request's first token: what the engine has before it, and what
// of this prompt it does not hold. Blocks says what it holds by its own word;
// Index says it as far as the one who placed earlier requests can know. Lexicon
// remembers which tokens texts came to, because engines speak of tokens.
package placement
