// Package peerquery asks other agents of a cell what they remember, over the links
// that they have anyway: who may open a link has a certificate of the cell or its
// key, so who asks has, too.
//
//	Ask ──► question ═══ link ═══► inbox ─► a queue for each peer ─► Book
//	    ◄── answer, a page ◄══════ link ◄═════════════════════════════┘
//
// What is asked for are records, numbered in the order in which they came, and given
// as JSON a page at a time. A question or an answer that is lost is not said again:
// who asked hears nothing by its deadline, and says so.
package peerquery
