package arena

import (
	"meridian/keep/store/extent"
	"meridian/move/checksum"
)

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
