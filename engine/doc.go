// Package engine is the reference engine: a small real transformer with paged
// KV memory behind the OpenAI API, which takes part in hand-offs through the
// engine door like any other. It is a reference and a test bed; engines for
// production are vLLM and its like.
//
//	HTTP ──► Submit ──► inbox ──► step loop (one goroutine) ──► Stream ──► HTTP
//	                                │    ▲
//	           batch.Scheduler ◄────┤    │ Ready, Failed, Freed, Fenced
//	  (who, how much, which blocks) │    │
//	           model.Runner ◄───────┤   door ──► the agent of this host
//	       (logits, KV in arenas) ──┘             (reads and writes the same arenas)
//
// The step loop owns the scheduler and everything about a request. What others
// want of it comes as a function into its inbox and runs between two steps, so
// nothing there has a lock.
//
// A token depends on the prompt, the tokens before it and the request's seed,
// and on nothing else: not on the batch, on preemption, on the cut over ranks,
// or on which engine computed the prompt. So a stream can be resumed anywhere.
//
// Blocks of KV memory that the door was told of, in an offer or an accept, are
// held apart from requests: a request may end, fail or be computed anew at any
// time, but its held blocks are used again only when the door has let go.
package engine
