// Package prefix keeps the caches of engines for later, in the object cache, and finds
// them again for any engine of the same model, under whatever split and block size. It is
// the shell around the machines of package keeping; the bytes move as hand-offs whose
// other party is an owner of the object cache, store@AGENT.
//
//	Keep, Find ─► ┌──────────── Cache ────────────┐
//	              │ keys.Keeping .Finding         │ ◄─► inbox ═══ other agents
//	Freed      ◄─ └───┬──────────────────┬────────┘
//	             transceiver           store
//	        Offer, Accept, Freed   reserve, commit, hold
//
// Each ask of another agent, and each of its own, runs on a goroutine that Close waits for;
// how many there are is bounded, and what is beyond is dropped: an engine is never kept
// waiting for its blocks, nor for its answer, by anything but a deadline.
package prefix
