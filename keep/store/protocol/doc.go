// Package protocol is what clients, owners and the master of an object cache say
// to one another, and how each of them goes on: messages, and machines without
// I/O that take events and return effects.
//
//	Operation ──Put, Open, Get, Remove …──► Server ──Renew, Claim, Dropped──► Coordinator
//	 (client) ◄──────── Value, Plan, Reply   (owner) ◄───── Answer, Claimed       (master)
//	    └───────────────── Where, Forget ─────────────────────────────────────────►
//
// A put, small or large, at its owner:
//
//	Put ─────► claiming ──Claimed──► sealing ───────────────────────Sealed──► ready
//	PutFrom ─► claiming ──Claimed──► fetching ─────────────────────Fetched──► ready
//	Open ────► claiming ──Claimed──► granting ─► writing ──Commit──► revoking ─► sealing ──Sealed──► ready
//	              │                                 │ overdue, Abort, the key was given away
//	              └──────────── aborted ◄───────────┴─ as soon as nothing can write to its bytes
//
// The owner reads what a PutFrom brings out of its client's memory, under a grant that
// the client revokes when it waits no longer. What was not read to the end by then is
// not stored.
//
// The client of an Open writes into the owner's memory itself. It can until its
// grant is revoked, so nothing is summed, found or given back before that.
//
// An owner serves, and lets a written object be found, only while the master lets
// it (package master). A client asks the owner that a key most likely has; the master,
// who knows, is asked when that one has not.
package protocol
