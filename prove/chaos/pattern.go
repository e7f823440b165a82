package chaos

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"
)

// Memory is filled with words of 8 bytes that say which seed they are of and
// where they belong, so that any word found anywhere can be traced.
const wordBytes = 8

func word(seed, index uint64) uint64 {
	x := seed<<40 ^ index + 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// fill writes the words of seed into b, which begins at offset.
func fill(b []byte, offset, seed uint64) {
	for i := 0; i+wordBytes <= len(b); i += wordBytes {
		binary.LittleEndian.PutUint64(b[i:], word(seed, (offset+uint64(i))/wordBytes))
	}
}

// WordCount is how many words of a stretch are of which seed.
type WordCount struct {
	Words  uint64
	BySeed map[uint64]uint64
	// Torn words are where one seed ends and another begins; Strange ones are of
	// no seed that was asked for, or not in their place.
	Torn, Strange uint64
	// Digest changes with any byte.
	Digest [sha256.Size]byte
}

// All reports whether every word is of seed.
func (c WordCount) All(seed uint64) bool { return c.BySeed[seed] == c.Words }

func count(b []byte, offset uint64, seeds []uint64) WordCount {
	c := WordCount{Words: uint64(len(b)) / wordBytes, BySeed: make(map[uint64]uint64), Digest: sha256.Sum256(b)}
	if len(seeds) == 0 {
		return c // only the digest is asked for
	}
	words := make([]uint64, 1, len(seeds)+1)
	for i := 0; i+wordBytes <= len(b); i += wordBytes {
		found := binary.LittleEndian.Uint64(b[i:])
		words[0] = found
		candidates := words[:1]
		for _, seed := range seeds {
			candidates = append(candidates, word(seed, (offset+uint64(i))/wordBytes))
		}
		switch at := slices.Index(candidates[1:], found); {
		case at >= 0:
			c.BySeed[seeds[at]]++
		case torn(candidates):
			c.Torn++
		default:
			c.Strange++
		}
	}
	return c
}

// torn reports whether every byte of the first word is one of the others'.
func torn(words []uint64) bool {
	for shift := 0; shift < 64; shift += 8 {
		if !slices.ContainsFunc(words[1:], func(w uint64) bool { return byte(w>>shift) == byte(words[0]>>shift) }) {
			return false
		}
	}
	return true
}
