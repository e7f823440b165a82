// Package master is the conversation that keeps a key from having two values: one
// master of a cell names the owner of each key, and owners answer only while it
// lets them. Both sides are state machines without I/O. The master holds no truth
// that the owners do not: what it knows is built anew from what they say.
//
//	a put     client ──► owner ──Claim──► master     one claim for a key, until it is dropped
//	a get     client ──► owner                       the master is asked where, on a miss
//	a lease   owner ──Renew──► master ──Granted──►   for a while, by each side's own clock
//
// An owner counts its lease from when it asked, the master from when it answered:
// the owner's ends first. Without a lease an owner is silent: it serves nothing and
// stores nothing. The master waits until a lease is over; then it writes down that
// the owner is away, where its successors find it (Mark), and only then the
// owner's keys are free for others.
//
//	          Renew                 all keys told             lease over
//	(joined) ───────► telling ──────────────────────► live ─────────────► lapsed
//	                     ▲                             ▲                     │ marked
//	                     │ another term                │ what was given      ▼
//	                     │                             │ away is dropped    away
//	                     └───────── Renew ─────────────┴─────────────────────┘
//
// A new master knows nothing. Until every owner of the roster has told its keys, or
// is marked as away, it does not say that a key is missing: it says that it does
// not know yet. An owner that comes back to another master than the one that
// marked it drops everything, because what was given away or removed meanwhile
// no master remembers; an owner that was not marked drops nothing, whichever the master
// is. So a master that dies loses no object.
//
// A master grants no lease that outlasts its own, so that when another is elected
// every owner is silent or has told it its keys.
package master
