package keys

import (
	"encoding/binary"
	"encoding/hex"
	"strings"

	"github.com/zeebo/blake3"

	"meridian/kv"
)

// KeyPrefix begins the keys of all units, so that listings can tell them.
const KeyPrefix = "kv/"

// Names are the keys of the units as the object cache has them.
func (c Chain) Names() []string {
	names := make([]string, len(c.Keys))
	for i, key := range c.Keys {
		names[i] = KeyPrefix + key.String()
	}
	return names
}

// Chain is the units of a sequence.
type Chain struct {
	// Tenant is whose objects they are: what its salt hashes to. A salt is a secret, and
	// names of tenants are shown.
	Tenant string
	Keys   []kv.Hash
	// Payer is the tenant of whose share of an owner's memory they take what they take there,
	// for all that their keys are named after; empty: it is not known.
	Payer string
}

// UnitDigest is what decides what the bytes of a unit mean.
type UnitDigest = kv.Hash

// first bytes of what is hashed here; kv has those of scopes and blocks.
const (
	rootDomain   byte = 3
	tenantDomain byte = 4
	modelDomain  byte = 5
)

// ModelTag begins every key of a model's units, whatever tenant, adapter and prompt they are
// of: so that a holder of keys alone can tell how much is of which model.
type ModelTag [4]byte

func (t ModelTag) String() string { return hex.EncodeToString(t[:]) }

// TagOf is the tag in a key of the object cache, of a unit or of a copy of one.
func TagOf(key string) (tag ModelTag, is bool) {
	key, _, _ = strings.Cut(key, "#")
	rest, is := strings.CutPrefix(key, KeyPrefix)
	if !is || len(rest) != 2*len(kv.Hash{}) {
		return tag, false
	}
	_, err := hex.Decode(tag[:], []byte(rest[:2*len(tag)]))
	return tag, err == nil
}

// SketchOf is a hash of a unit's key by which uses of units are told apart: of what follows
// the tag, which all units of a model share.
func SketchOf(key kv.Hash) uint64 { return binary.LittleEndian.Uint64(key[len(ModelTag{}):]) }

// ModelTag is that of a scope's model and revision.
func (k NamesKey) ModelTag(scope kv.Scope) (tag ModelTag) {
	root := kv.Scope{Model: scope.Model, Revision: scope.Revision}.Root()
	hash := k.hash(modelDomain, root[:])
	copy(tag[:], hash[:])
	return tag
}

// ChainOf is the chain of a sequence, in units of so many tokens and of such a digest. The
// tokens behind the last whole unit are in none.
func ChainOf(k NamesKey, scope kv.Scope, digest UnitDigest, tokens []uint32, unitTokens int) Chain {
	root := scope.Root()
	parent := k.hash(rootDomain, root[:], digest[:])
	c, tag := Chain{Tenant: k.TenantOf(scope.Salt), Keys: make([]kv.Hash, 0, len(tokens)/unitTokens)}, k.ModelTag(scope)
	for ; len(tokens) >= unitTokens; tokens = tokens[unitTokens:] {
		parent = kv.NextBlockKey(parent, tokens[:unitTokens])
		key := parent
		copy(key[:], tag[:])
		c.Keys = append(c.Keys, key)
	}
	return c
}

// Part is units first to end of a chain.
func (c Chain) Part(first, end int) Chain {
	return Chain{Tenant: c.Tenant, Payer: c.Payer, Keys: c.Keys[first:end]}
}

// NamesKey is the cell's, for names that are shown: who lacks it cannot tell by trying which
// salt, or which prompt, a name is of.
type NamesKey [32]byte

// NamesKeyOf derives one from a key of the cell.
func NamesKeyOf(cell [32]byte) (k NamesKey) {
	blake3.DeriveKey("meridian 2026-11 names of kept caches", cell[:], k[:])
	return k
}

// PayerOf is who pays for what an engine keeps and finds: the tenant that a gateway says, or
// else the engine.
func PayerOf(tenant, engine string) string {
	if tenant != "" {
		return "tenant/" + tenant
	}
	return "engine/" + engine
}

// TenantOf is how the tenant of a salt is called.
func (k NamesKey) TenantOf(salt string) string {
	hash := k.hash(tenantDomain, []byte(salt))
	return kv.KeptTenants + hex.EncodeToString(hash[:12])
}

func (k NamesKey) hash(domain byte, parts ...[]byte) (sum kv.Hash) {
	h, err := blake3.NewKeyed(k[:])
	if err != nil {
		panic(err) // only a key of another length is refused
	}
	h.Write([]byte{domain})
	for _, part := range parts {
		h.Write(part)
	}
	h.Sum(sum[:0])
	return sum
}
