package s3

import (
	"encoding/binary"
	"errors"
	"fmt"

	"meridian/kv"
	"meridian/move/mrdn"
)

// An index object tells what a segment has, so that no reader reads a segment to know. It is
// one MRDN frame, whose body is
//
//	"IDX1", u32 entries, u64 bytes of the segment, and for each entry
//	u64 hash of the key, u32 offset in the segment, u32 bytes of the record; 0: dropped
//
// A key that was dropped is in the index of whatever was written next, if only of
// nothing else.
const (
	indexMagic  = "IDX1"
	indexHead   = 16
	indexEntry  = 16
	maxEntries  = 1 << 18
	maxIndex    = indexHead + maxEntries*indexEntry
	maxIndexing = mrdn.HeaderSize + maxIndex
)

var errIndex = errors.New("s3: an index that is none")

// entry is a record of a segment, or a key that was dropped.
type entry struct {
	hash           uint64
	offset, length uint32
}

func appendIndex(entries []entry, segmentBytes uint64) ([]byte, error) {
	body := append(make([]byte, 0, indexHead+len(entries)*indexEntry), indexMagic...)
	body = binary.LittleEndian.AppendUint32(body, uint32(len(entries)))
	body = binary.LittleEndian.AppendUint64(body, segmentBytes)
	for _, e := range entries {
		body = binary.LittleEndian.AppendUint64(body, e.hash)
		body = binary.LittleEndian.AppendUint32(body, e.offset)
		body = binary.LittleEndian.AppendUint32(body, e.length)
	}
	return mrdn.AppendFrame(nil, kv.ThinkComplete, body)
}

// parseIndex reads what any writer to the bucket may have put there.
func parseIndex(b []byte) (entries []entry, segmentBytes uint64, err error) {
	f, rest, err := mrdn.Parse(b, maxIndex)
	if err != nil || len(rest) > 0 || len(f.Body) < indexHead || string(f.Body[:4]) != indexMagic {
		return nil, 0, errors.Join(errIndex, err)
	}
	n := binary.LittleEndian.Uint32(f.Body[4:])
	segmentBytes = binary.LittleEndian.Uint64(f.Body[8:])
	if n > maxEntries || len(f.Body) != indexHead+int(n)*indexEntry || segmentBytes > maxSegment {
		return nil, 0, fmt.Errorf("%w: %d entries in %d bytes, of a segment of %d", errIndex, n, len(f.Body), segmentBytes)
	}
	taken := uint64(0)
	for at := f.Body[indexHead:]; len(at) > 0; at = at[indexEntry:] {
		e := entry{binary.LittleEndian.Uint64(at), binary.LittleEndian.Uint32(at[8:]), binary.LittleEndian.Uint32(at[12:])}
		taken += uint64(e.length)
		// Records that lie in one another, or are shorter than any, would have a small segment take much memory here.
		if uint64(e.offset)+uint64(e.length) > segmentBytes || taken > segmentBytes || (e.offset|e.length)%align != 0 {
			return nil, 0, fmt.Errorf("%w: %d bytes from %d on, of a segment of %d", errIndex, e.length, e.offset, segmentBytes)
		}
		entries = append(entries, e)
	}
	return entries, segmentBytes, nil
}
