// Package reshard plans how the KV cache of one request gets from the ranks
// that computed it to the ranks that go on with it, whatever the two sides'
// tensor, pipeline and context split, block size and layout are. It computes:
// no I/O, no clock, no memory of others.
//
//	Side, Side ──Prepare──► Shape ──Plan(Request)──► Plan ──► Flow (src rank → dst rank)
//	  what an engine is      who can need what          who sends what      │
//	  field-by-field         of whom; depends on        now, and the      Run, Run, …
//	  compared               the sides alone, kept      digest of it      strided copies
//
// A plan is an intersection of boxes. One box is what a rank holds:
//
//	layers of its stage × heads of its tensor rank × tokens of its context rank × component
//
// The first, second and fourth factor are known once two engines meet: they make
// a need, and each need has one tile, a small set of strides in both memories. The
// third depends on the request: its tokens are cut wherever either side begins
// another block, and cuts at equal distances become one block run. The runs of a
// flow are its tiles times its block runs. They are never kept, only counted out, so
// a plan of a million pieces takes a few kilobytes for its tiles and one entry for
// each block that lies out of line.
//
// An object cache is a side too: its blocks are units at places of one arena, and a
// unit holds all layers and heads of its tokens, one component after the other.
//
// Where several source ranks hold copies of the same head, exactly one of them
// serves a destination rank. They take turns, destination by destination and
// request by request.
//
// Both sides compute the same plan from the same inputs, and compare digests
// before a byte moves.
package reshard
