// Package mrdn owns the bytes on the wire. Today that is one frame, MRDN v1,
// which carries one KV block, or any other body, in a file or a stream:
//
//	 0       4         8          12     13      16               32
//	┌───────┬─────────┬──────────┬──────┬───────┬────────────────┬──────┄
//	│ MRDN  │ version │ body_len │ tier │ 0 0 0 │ BLAKE3-128     │ body
//	│       │ u32 = 1 │ u32      │ u8   │ pad   │ of the body    │
//	└───────┴─────────┴──────────┴──────┴───────┴────────────────┴──────┄
//
// Integers are little-endian. docs/wire.md holds the promise that goes with it:
// version 1 stays readable through all 0.x releases. The same frame is read and
// written by python/meridian/mrdn.py and include/meridian/mrdn.hpp; the vectors
// in testdata/mrdn hold all three together.
//
// The checksum covers the body, not the header. Every header field but the
// tier is checked by value, so a flipped bit there is an error; a tier that
// turns into another valid tier is not seen here. Who acts on a tier that
// came from afar must treat it as a hint, as the format means it.
//
// A parser never reads past its input and never allocates by a length it has
// not checked against its cap and its input.
package mrdn
