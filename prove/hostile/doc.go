// Package hostile is a peer that knows the protocol and means harm. A stranger
// does not know the cell's key; an insider does, has joined the cell, and holds
// no grant; a grantee holds one for reading and one for writing:
//
//	stranger   crowd, drip, garbage, giant, impostor
//	insider    links, deaf, asking, offering, halves, nearly, lists, cancels, notices, chunks, repeats
//	grantee    again, begun, broken, halfway, late, overlaps, parts, pieces, promises, same-handle, too-much, unread
//
// Every attack goes on until its context ends. The tests hold agents to their
// promises meanwhile: memory is bounded, honest peers are served, and what was
// granted is quiet as soon as it is fenced.
package hostile
