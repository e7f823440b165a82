package keeping

import (
	"encoding/hex"

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
}

// UnitDigest is what decides what the bytes of a unit mean.
type UnitDigest = kv.Hash

// first bytes of what is hashed here; kv has those of scopes and blocks.
const rootDomain byte = 3

// ChainOf is the chain of a sequence, in units of so many tokens and of such a digest. The
// tokens behind the last whole unit are in none.
func ChainOf(scope kv.Scope, digest UnitDigest, tokens []uint32, unitTokens int) Chain {
	root := scope.Root()
	parent := kv.Hash(blake3.Sum256(append(append([]byte{rootDomain}, root[:]...), digest[:]...)))
	c := Chain{Tenant: TenantOf(scope.Salt), Keys: make([]kv.Hash, 0, len(tokens)/unitTokens)}
	for ; len(tokens) >= unitTokens; tokens = tokens[unitTokens:] {
		parent = kv.NextBlockKey(parent, tokens[:unitTokens])
		c.Keys = append(c.Keys, parent)
	}
	return c
}

// Part is units first to end of a chain.
func (c Chain) Part(first, end int) Chain { return Chain{Tenant: c.Tenant, Keys: c.Keys[first:end]} }

// TenantOf is how the tenant of a salt is called.
func TenantOf(salt string) string {
	hash := blake3.Sum256(append([]byte("meridian offload tenant\x00"), salt...))
	return kv.KeptTenants + hex.EncodeToString(hash[:12])
}
