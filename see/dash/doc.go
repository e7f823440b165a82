// Package dash is a page about a running cell: who is there and how they are, what
// moves between which ranks, how long each phase takes, what became of the last
// requests and hand-offs, and why.
//
//	Cell.Look, each second ─► view ─► frame, numbered ─► the last few minutes ─► watchers
//	    while a browser watches        (what changed,        (a bound)           (server-sent events,
//	                                    rates, quantiles)                         resumed by number)
//
// It only reads, through an interface that it declares, and shows no text of any prompt
// or answer. The page is made of files in this program: nothing is built when it runs,
// and it asks no server but the one that it came from.
package dash
