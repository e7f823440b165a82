// Package arena is the memory of an object cache as it lies in an owner's arena:
// a stable layout that processes in other languages, and kernels on a GPU, read
// and write with plain stores. docs/store-layout.md is its definition, made from
// the tables of layout.go.
//
//	0        4 KiB               heap                                limit
//	+---------+---------+------+--------------------------------------+
//	| HeapCtl | headers | ring | extents, one for each object          |
//	+---------+---------+------+--------------------------------------+
//	                              | payload | pad 8 | sums | key | pad |
//
// An object is a header and an extent. A producer reserves both, writes the
// payload with the sums of its segments and the key behind it, and turns the
// header's word from WRITING to READY, with release order. A reader loads the
// word with acquire order, copies, and loads it again: the epoch in it changes
// whenever the header is used for another object.
//
//	            RESERVED ──► WRITING ──► READY
//	(new epoch)    ▲  │          │          │
//	               │  └──────────┴────┬─────┘
//	               └──── reused ──── DEAD
//
// Whatever lies in an arena may have been written by another process. Nothing is
// believed that has not been copied out and checked first, and no offset leads
// outside.
package arena
