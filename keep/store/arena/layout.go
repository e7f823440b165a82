package arena

import (
	"meridian/keep/store/extent"
	"meridian/move/checksum"
)

// Field is one field of a record of the layout.
type Field struct {
	Name         string
	Offset, Size int
	Means        string
}

// Record is one of the layout's records.
type Record struct {
	Name   string
	Size   int
	Means  string
	Fields []Field
}

// Layout is the whole of it, in the order of the arena. Other languages are held
// to it: docs/store-layout.md and include/meridian/store_layout.hpp are made from
// it, python/meridian/arena.py is compared with records in testdata/store.
var Layout = []Record{
	{"HeapCtl", ControlSize, "At offset 0. One for each arena.", []Field{
		{"heap_base", ctlHeapBase, 8, "offset of the first extent"},
		{"heap_limit", ctlHeapLimit, 8, "end of the last"},
		{"bump_ptr", ctlBump, 8, "atomic: what lies beyond was never given out"},
		{"hdr_base", ctlHeaderBase, 8, "offset of the first ObjHeader"},
		{"hdr_count", ctlHeaderCount, 4, "how many there are"},
		{"hdr_head", ctlHeaderHead, 4, "atomic: headers beyond were never used"},
		{"free_head", ctlFreeHeads, 8 * Classes, "atomic, one for each size class: tag in the upper 32 bits, header + 1 in the lower, 0 for none"},
		{"ann_base", ctlRingBase, 8, "offset of the first Announce"},
		{"ann_capacity", ctlRingCapacity, 4, "how many there are, a power of two"},
		{"ann_head", ctlRingHead, 4, "atomic: producers add 1 to take a place"},
		{"ann_tail", ctlRingTail, 4, "atomic: the owner adds 1 when it has read one"},
		{"epoch", ctlEpoch, 4, "of the arena: another owner, another epoch"},
		{"water_hi", ctlWaterHigh, 4, "per cent: above, producers ask the owner"},
		{"water_lo", ctlWaterLow, 4, "per cent: down to which the owner evicts"},
		{"used_percent", ctlUsed, 4, "atomic: what is taken, as the owner last saw it (_pad in Nano Mooncake)"},
		{"layout", ctlLayout, 4, "version of this layout: 1"},
	}},
	{"ObjHeader", HeaderSize, "From hdr_base. One for each object.", []Field{
		{"key_hash", hdrKeyHash, 8, "XXH3-64 of the key; in a free list, the next header + 1"},
		{"n_pages", hdrPages, 4, "pages of the payload, the last may be short"},
		{"page_size", hdrPageSize, 4, "bytes of a page"},
		{"payload_base", hdrPayload, 8, "offset of the payload, in the arena"},
		{"bytes_total", hdrBytes, 8, "length of the payload"},
		{"state", hdrWord, 4, "0 RESERVED, 1 WRITING, 2 READY, 3 DEAD; one atomic word of 64 bits with epoch"},
		{"epoch", hdrWord + 4, 4, "one more with each use of the header"},
		{"last_access", hdrAccess, 8, "seconds, by the owner's clock; best effort"},
		{"flags", hdrFlags, 4, "1 pinned, 2 UNCHECKED: its writer wrote no sums, the owner will; bits 8 to 15 priority"},
		{"key_len", hdrKeyLength, 4, "length of the key (_pad in Nano Mooncake)"},
		{"checksum", hdrChecksum, 8, "XXH3-64 over the XXH3-64s of segments of 4 KiB of the payload"},
	}},
	{"Announce", AnnounceSize, "From ann_base, a ring. A producer tells the owner of an object that is READY.", []Field{
		{"key_hash", 0, 8, "stored last, with release order; 0 for none; the owner stores 0 when it has read it"},
		{"owner_rank", 8, 4, "as the owner is numbered"},
		{"epoch", 12, 4, "of the header"},
		{"header_off", 16, 8, "offset of the header"},
		{"payload_off", 24, 8, "offset of the payload"},
		{"n_pages", 32, 4, "as in the header"},
		{"page_size", 36, 4, "as in the header"},
		{"bytes_total", 40, 8, "as in the header"},
	}},
}

// Sizes of records.
const (
	ControlSize  = 144
	HeaderSize   = 64
	AnnounceSize = 48
	// Version is that of the layout.
	Version = 1
	// PageSize is the page of a payload unless something else is asked for.
	PageSize = 256 << 10
	// Segment is how many bytes of a payload have one sum.
	Segment = checksum.Segment
	// Classes is how many free lists there are. Extents of class c have at least
	// ClassBytes(c) bytes.
	Classes = 8
)

// ClassBytes is the least size of the extents in a free list: 4 KiB, and four
// times as much with each class.
func ClassBytes(class int) uint64 { return Segment << (2 * class) }

// ClassOf is the first class whose extents all have size bytes, or -1.
func ClassOf(size uint64) int {
	for c := range Classes {
		if size <= ClassBytes(c) {
			return c
		}
	}
	return -1
}

const (
	ctlHeapBase     = 0
	ctlHeapLimit    = 8
	ctlBump         = 16
	ctlHeaderBase   = 24
	ctlHeaderCount  = 32
	ctlHeaderHead   = 36
	ctlFreeHeads    = 40
	ctlRingBase     = 104
	ctlRingCapacity = 112
	ctlRingHead     = 116
	ctlRingTail     = 120
	ctlEpoch        = 124
	ctlWaterHigh    = 128
	ctlWaterLow     = 132
	ctlUsed         = 136
	ctlLayout       = 140
)

const (
	hdrKeyHash   = 0
	hdrPages     = 8
	hdrPageSize  = 12
	hdrPayload   = 16
	hdrBytes     = 24
	hdrWord      = 32
	hdrAccess    = 40
	hdrFlags     = 48
	hdrKeyLength = 52
	hdrChecksum  = 56
)

// Extent is how the bytes of an object lie in its extent, from its start.
type Extent struct {
	Sums, Key uint64 // offsets
	Size      uint64 // of the whole
	Align     uint64
}

// ExtentOf lays out an object.
func ExtentOf(bytes uint64, keyLength int) Extent {
	e := Extent{Align: extent.Granule}
	if bytes >= Segment {
		e.Align = Segment
	}
	e.Sums = extent.RoundUp(bytes, 8)
	e.Key = e.Sums + 8*Segments(bytes)
	e.Size = extent.RoundUp(e.Key+uint64(keyLength), e.Align)
	return e
}

// Segments is how many sums a payload has.
func Segments(bytes uint64) uint64 { return (bytes + Segment - 1) / Segment }
