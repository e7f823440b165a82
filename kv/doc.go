// Package kv holds the nouns every other room speaks: what a KV cache is made
// of, how it is cut over ranks, how its bytes lie in memory, and what a block
// of it is called. It computes; it does no I/O and imports no other room.
//
//	Geometry     what one token's cache is made of, before any cut
//	  Layer        KV heads × head dim, K and V or one MLA latent, window, indexer
//	Parallelism  how it is cut: pipeline stages × attention DP × tensor × context
//	  Rank         one cell of that cut
//	Layout       the order of the axes in memory: layer, block, head, token, …
//	Packing      in which pieces that memory must stay whole
//	Scope        what the cache is *of* besides its tokens: model, adapter, salt
//	BlockKey     the name of one block: a chained hash over Scope and tokens
//	TokenRange   half-open range of token positions
//	Member       one start of an agent: name and incarnation
//	Tier         how soon a block may leave memory
//	Phase        where a request stands: prefill, think, output, complete
//
// All sizes are exact: arithmetic that could overflow is checked, and a shape
// that does not fit is an error, never a wrapped number.
package kv
