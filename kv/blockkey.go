package kv

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"

	"github.com/zeebo/blake3"
)

// Hash is a BLAKE3-256 digest. It is wide enough that a tenant cannot find two
// prompts with one key and so poison a shared cache.
type Hash [32]byte

func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// ParseHash reads the 64 hex digits that String writes.
func ParseHash(text string) (Hash, error) {
	var h Hash
	raw, err := hex.DecodeString(text)
	if err != nil || len(raw) != len(h) {
		return Hash{}, fmt.Errorf("kv: %q is not a hash: want %d hex digits", text, 2*len(h))
	}
	copy(h[:], raw)
	return h, nil
}

// Scope is what a KV cache is of, besides its tokens. Caches of different
// scopes never share a block, however equal their tokens are.
type Scope struct {
	Model    string // what the engine serves
	Revision string // which weights
	Adapter  string // LoRA, empty for none
	Media    string // digest of images, audio …, empty for none
	Salt     string // tenant secret; caches with different salts are strangers
}

// The first byte of everything hashed says what it is, so that a scope can
// never be read as a block.
const (
	scopeDomain byte = 1
	blockDomain byte = 2
)

// Root returns the parent of a sequence's first block.
func (s Scope) Root() Hash {
	buf := []byte{scopeDomain}
	for _, field := range []string{s.Model, s.Revision, s.Adapter, s.Media, s.Salt} {
		buf = binary.LittleEndian.AppendUint64(buf, uint64(len(field)))
		buf = append(buf, field...)
	}
	return blake3.Sum256(buf)
}

// BlockKey names one full block of a sequence: its tokens, everything before
// them, and their scope. Two equal keys mean interchangeable KV.
//
//	key(i) = BLAKE3-256(0x02 ‖ key(i-1) ‖ token u32le …)     key(-1) = Scope.Root()
type BlockKey = Hash

// NextBlockKey returns the key of the block holding tokens after parent.
func NextBlockKey(parent Hash, tokens []uint32) BlockKey {
	var chain keyChain
	return chain.next(parent, tokens)
}

// AppendBlockKeys appends the keys of every full block of blockTokens tokens.
// Tokens of a last, partial block have no key yet.
func AppendBlockKeys(keys []BlockKey, scope Scope, tokens []uint32, blockTokens int) []BlockKey {
	if blockTokens < 1 {
		panic("kv: blockTokens must be positive")
	}
	var chain keyChain
	for parent := scope.Root(); len(tokens) >= blockTokens; tokens = tokens[blockTokens:] {
		parent = chain.next(parent, tokens[:blockTokens])
		keys = append(keys, parent)
	}
	return keys
}

// keyChain keeps the buffer that is hashed, so that a long sequence allocates
// once.
type keyChain struct{ buf []byte }

func (c *keyChain) next(parent Hash, tokens []uint32) BlockKey {
	c.buf = append(c.buf[:0], blockDomain)
	c.buf = append(c.buf, parent[:]...)
	for _, token := range tokens {
		c.buf = binary.LittleEndian.AppendUint32(c.buf, token)
	}
	return blake3.Sum256(c.buf)
}

// KeptTenants begins the names of the object cache's tenants whose objects are caches that
// engines let be kept. What is there an engine takes for what it says it is, so no client
// else may write it.
const KeptTenants = "kv-"
