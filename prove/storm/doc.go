// Package storm is for tests that put a whole cell under load and break parts
// of it. A crowd asks questions whose answers are known; the tally says what
// came of them:
//
//	Questions ─► an engine alone ─► known answers
//	    └──────► Crowd ─► gateway ─► right, failed with a clear error,
//	                                 or wrong: another token, a stream cut short, silence
//
// A request that fails has to say why, and what it has said until then has to be
// the beginning of the right answer.
//
// Of an object cache whose parts are killed, a Checker knows what each of its objects
// may be, and Writers in several processes use it and compare.
package storm
