package arena

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
