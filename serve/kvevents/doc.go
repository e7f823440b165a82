// Package kvevents follows what an engine says of its cache: which blocks it has
// stored, of which tokens, and which it has given up. It speaks the two things
// that vLLM publishes them in, and only as much of them as a reader needs:
//
//	ZMTP 3.0    greeting, NULL handshake, frames; as SUB for what happens, and as
//	            DEALER for what was missed. zmtp.go
//	msgpack     batches of events, in both encodings that releases have. msgpack.go,
//	            event.go
//
// Batches are numbered. Every connection begins with a look back, so that what is
// told is complete or begun anew, never silently short of something:
//
//	connect ─► subscribe ─► replay from the last that is known
//	   ▲                       │ the last one is the same: the same life, go on
//	   │                       │ another, or too long ago: Reset, then all there is
//	   │                       ▼
//	   └── lost ◄───────────  live ── a number is missing: replay; without one, Reset
//
// No caller waits for a Subscriber: what it learns goes to a function, one batch
// after the other, and what it cannot learn is left out.
package kvevents
