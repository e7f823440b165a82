package kv

import (
	"encoding/binary"
	"encoding/hex"

	"github.com/zeebo/blake3"
)

// Hash is a BLAKE3-256 digest. It is wide enough that a tenant cannot find two
// prompts with one key and so poison a shared cache.
type Hash [32]byte

func (h Hash) String() string { return hex.EncodeToString(h[:]) }

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
	buf := make([]byte, 0, 1+len(parent)+4*len(tokens))
	buf = append(append(buf, blockDomain), parent[:]...)
	for _, token := range tokens {
		buf = binary.LittleEndian.AppendUint32(buf, token)
	}
	return blake3.Sum256(buf)
}

// KeptTenants begins the names of the object cache's tenants whose objects are caches that
// engines let be kept. What is there an engine takes for what it says it is, so no client
// else may write it.
const KeptTenants = "kv-"
