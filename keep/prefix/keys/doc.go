// Package keys is how the caches of engines get into an object cache and are found
// there again: keys, messages, and the conversations of who keeps and who finds as state
// machines without I/O.
//
// A sequence is kept in units of so many tokens, each an object. The units of a sequence
// are a chain: a unit's key is of its tokens and of everything before them.
//
//	   a publisher's agent                                an owner's agent
//	Keep ─► who has which? ─► what is missing  ══KeepAsk══► reserve, Accept the ticket,
//	        (own owner, master)  Offer ─ ticket ◄═KeepAnswer═  copy, sum, READY
//
//	   a finder's agent                                   each owner's agent
//	Find ─► who has which? ─► at most four     ══FindAsk══► lease, verify every sum,
//	        stretches of the chain      Accept ◄═FindAnswer═  Offer ─ ticket
//
// Keeping and finding never fail: what cannot be kept is not, what is not found is
// computed.
package keys
