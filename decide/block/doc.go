// Package block decides which blocks of an engine's KV memory stay and which
// leave. It is a table in memory, without a clock: the engine's facts go in,
// victims come out, and who asked carries it out.
//
// A block is a slot of the engine's memory. A request holds the blocks of its
// context; the tier belongs to the hold (ADR-0004), which moves one way only:
//
//	Hold ──► ThinkActive ──Demote──► ThinkComplete ──► released
//	   └───► OutputCritical ─────────────────────────► released
//
// A block that several requests hold counts as the most protected of its holds.
// What a slot is, and what moves it on:
//
//	vacant ──Hold──► held ──the last Release──► vacant, or, sealed, cached
//	   ▲               │ ▲                                     │
//	   │◄────Evict─────┘ └──Hold───────────────────────────────┤
//	   └◄────Evict─────────────────────────────────────────────┘
//
// A held block may go when no request that holds it runs and when, for each
// that is paused, a copy is elsewhere or policy chose to compute it again. Those
// that may go stand in queues, and the queues in this order:
//
//	spent           of finished thoughts, with a copy elsewhere; only if
//	                kv_memory.aggressive_think_eviction, and without pressure
//	cached          no request holds them
//	think_complete
//	think_active
//	output_critical
//
// While think blocks take more than their fraction of memory, those that may
// go stand before the cached ones. Within a queue the least recently used goes
// first; use, and the copy that lets a block go, put it at the end.
//
// A transfer may touch a block that is copied out or brought in: it neither
// leaves nor becomes vacant before CopiedOut or Arrived, whichever request released it.
package block
