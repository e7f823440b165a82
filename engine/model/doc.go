// Package model is the mathematics of the reference engine: transformers of the
// Llama and Qwen3 families in fp32, over a paged KV cache that lies in the memory
// of real ranks. It computes; it knows no network, no clock and no request.
//
//	Builtin, Load ──► Model ─┐                        x ← embedding of each token
//	  seed, or a directory   ├─ NewRunner ─► Runner   layer by layer:
//	                   Cut ──┤    one KV memory         h ← RMSNorm x
//	  TP, PP, layout, blocks │    per rank              q, k, v ← rows·h, turned by position
//	              memory ────┘                          KV memory ← k, v
//	                                 │ Step(batch)      x ← x + output·attention(q, KV memory)
//	                                 ▼                  x ← x + down·(silu(gate·h) × up·h)
//	                               logits             logits ← head·RMSNorm x
//
// # Equal bits
//
// What is computed for a token depends on the text before it, and on nothing
// else: not on how the model is cut over ranks, what else is in the batch, how a
// prompt was chunked, the block size, the layout, the number of threads or the
// instruction set. So a hand-off can be checked by comparing tokens, and a
// difference is a bug.
//
// Usually a tensor rank owns columns of the second projection of a block, and
// ranks add up their partial results: another number of ranks, another order of
// additions, other bits. Here ranks own output rows of every projection, and what
// they have computed is put side by side:
//
//	            rank 0   rank 1                      rank 0   rank 1
//	query·h  =  heads 0… │ heads 4…    attention  =  heads 0… │ heads 4…   each rank over its own KV memory
//	            ╰── its own heads ──╯                ╰────── all gather ──────╯
//	output·a =  rows 0…  │ rows 128…   each row is one dot product over all of a
//
// Nothing is summed across ranks. Every element is one dot product in the one
// order that package kernel defines. A softmax runs over positions from 0 on, and
// values are added up position by position, so it does not matter in which chunk
// or block a position came.
//
// # Memory of a rank
//
// One grid of little-endian fp32: the layers of its pipeline stage, its KV heads,
// Blocks blocks of BlockTokens tokens, K and V. LBHNC (K and V of a token and
// head side by side) is the layout that attention reads in place:
//
//	layer 0: block 0: head 0: token 0: K……K V……V
//	                          token 1: K……K V……V
//	                  head 1: …
//	         block 1: …
//	layer 1: …
//
// Any other order of the axes works through its strides; where a head's elements
// are not side by side, they are gathered block by block.
package model
