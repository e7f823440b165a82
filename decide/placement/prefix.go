package placement

import (
	"encoding/binary"

	"github.com/zeebo/xxh3"
)

// Prefix is a prompt as a chain of hashes, each of a chunk and everything
// before it: two prompts share exactly as many leading hashes as they share
// whole leading chunks. A hash decides where work goes, never whose cache is
// used, so 64 bits are enough.
type Prefix struct {
	Hashes []uint64
	// TokensPerHash is how many tokens a chunk holds; of a text, about.
	TokensPerHash int
	// Whole is, of a text, the hash of all of it, and Bytes its length.
	Whole uint64
	Bytes int
}

const (
	// textChunk is in bytes; at some four bytes a token it is a few blocks.
	textChunk = 256
	// bytesPerToken is what a token of text comes to, about.
	bytesPerToken = 4
	// tokenChunk divides the block sizes that engines use.
	tokenChunk = 16
)

// Kinds of chains have different roots: a text is never taken for token ids.
const (
	textRoot uint64 = iota + 1
	tokenRoot
	blockRoot
)

// OfText is the chain of a rendered text, and its length in tokens, about.
// Scope is whatever keeps caches apart: the model, an adapter, a salt.
func OfText(scope string, text []byte) (Prefix, int) {
	p := Prefix{Hashes: make([]uint64, 0, len(text)/textChunk), TokensPerHash: textChunk / bytesPerToken, Bytes: len(text)}
	tokens := (len(text) + bytesPerToken - 1) / bytesPerToken
	parent := xxh3.HashStringSeed(scope, textRoot)
	for ; len(text) >= textChunk; text = text[textChunk:] {
		parent = xxh3.HashSeed(text[:textChunk], parent)
		p.Hashes = append(p.Hashes, parent)
	}
	p.Whole = xxh3.HashSeed(text, ^parent)
	return p, tokens
}

// OfTokens is the chain of a prompt whose token ids are known: its chunks are
// blocks.
func OfTokens(scope string, tokens []uint32) Prefix {
	p := Prefix{Hashes: make([]uint64, 0, len(tokens)/tokenChunk), TokensPerHash: tokenChunk}
	var block [4 * tokenChunk]byte
	for parent := xxh3.HashStringSeed(scope, tokenRoot); len(tokens) >= tokenChunk; tokens = tokens[tokenChunk:] {
		for i, id := range tokens[:tokenChunk] {
			binary.LittleEndian.PutUint32(block[4*i:], id)
		}
		parent = xxh3.HashSeed(block[:], parent)
		p.Hashes = append(p.Hashes, parent)
	}
	return p
}

// Tokens is how many tokens the first hashes stand for, of a prompt that has so many:
// of a text in proportion.
func (p Prefix) Tokens(hashes, of int) int {
	if p.Bytes > 0 {
		return min(hashes*textChunk, p.Bytes) * of / p.Bytes
	}
	return min(hashes*p.TokensPerHash, of)
}

// Within is how many whole chunks lie within the first tokens of a prompt that has so
// many.
func (p Prefix) Within(tokens, of int) int {
	switch {
	case of < 1 || tokens < 1 || p.TokensPerHash < 1:
		return 0
	case tokens >= of:
		return len(p.Hashes)
	case p.Bytes > 0:
		return min(tokens*p.Bytes/of/textChunk, len(p.Hashes))
	}
	return min(tokens/p.TokensPerHash, len(p.Hashes))
}

// TextHashes is how many chunks of text so many tokens come to.
func TextHashes(tokens int) int { return tokens * bytesPerToken / textChunk }
