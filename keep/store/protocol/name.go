package protocol

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/zeebo/xxh3"

	"meridian/keep/store/arena"
	"meridian/kv"
)

// ErrName means that a tenant or a key cannot be one.
var ErrName = errors.New("store: bad key")

// ObjectName is how a tenant's key is named in arenas and in messages: no key of
// one tenant is a key of another.
func ObjectName(tenant, key string) ([]byte, error) {
	name := append(append(binary.AppendUvarint(nil, uint64(len(tenant))), tenant...), key...)
	if key == "" || len(name) > arena.MaxKey {
		return nil, fmt.Errorf("%w: a key of %d bytes of a tenant of %d: a key has at least 1, both together at most %d", ErrName, len(key), len(tenant), arena.MaxKey-2)
	}
	return name, nil
}

// SplitName is the tenant and the key of a name.
func SplitName(name []byte) (tenant, key string, err error) {
	n, at := binary.Uvarint(name)
	if at <= 0 || n > uint64(len(name)-at) {
		return "", "", fmt.Errorf("%w: the name of an object is not one", ErrName)
	}
	return string(name[at : at+int(n)]), string(name[at+int(n):]), nil
}

// PartOf is which part of its owner's tenant's objects a name is of: what programs call their
// tenant. It is empty for caches that engines keep, which their gateway says whose they are: what
// these are named after, a salt, a client makes up.
func PartOf(name []byte) []byte {
	n, at := binary.Uvarint(name)
	if at <= 0 || n > uint64(len(name)-at) || bytes.HasPrefix(name[at:at+int(n)], []byte(kv.KeptTenants)) {
		return nil
	}
	return name[at : at+int(n)]
}

// AgentTenant is who has a share of an owner's memory for what programs put at the door of an agent,
// and for what of engines no tenant is known of.
func AgentTenant(agent string) string { return "agent/" + agent }

// CopyKey is the key of a copy of an object that engines keep: the first is the object itself.
// A copy is an object like any, of one owner; that it is one, its name alone says.
func CopyKey(key string, number int) string {
	if number <= 1 {
		return key
	}
	return key + copyMark + strconv.Itoa(number)
}

const copyMark = "#"

// IsCopy reports whether a name is that of a second copy, or a later one.
func IsCopy(name []byte) bool {
	tenant, key, err := SplitName(name)
	return err == nil && strings.HasPrefix(tenant, kv.KeptTenants) && strings.Contains(key, copyMark)
}

// Rendezvous orders owners by where a key belongs, the first first: by a hash of
// both, so that an owner that comes or goes moves its own keys and no others.
func Rendezvous(hash uint64, owners []kv.Member) []kv.Member {
	weight := func(p kv.Member) uint64 { return xxh3.HashStringSeed(p.Name, hash) }
	ordered := slices.Clone(owners)
	slices.SortFunc(ordered, func(a, b kv.Member) int {
		return cmp.Or(cmp.Compare(weight(b), weight(a)), cmp.Compare(a.Name, b.Name))
	})
	return ordered
}
