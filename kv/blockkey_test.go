package kv

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// Changing these means that no cache written before can be found again.
func TestBlockKeysGolden(t *testing.T) {
	tokens := make([]uint32, 35)
	for i := range tokens {
		tokens[i] = uint32(i * i)
	}
	scope := Scope{Model: "qwen3-30b-a3b", Revision: "main", Salt: "tenant-7"}
	keys := appendBlockKeys(nil, scope, tokens, 16)
	want := []string{
		"6cb59a36d1c4bf04bdbea36f41f3e2c4797edc8327773b9776079813b10f9e93",
		"c67d0c53916210e4b97f00aa9318870c71be9ca6a64ce19d09de4f2fa2918633",
	}
	if len(keys) != len(want) {
		t.Fatalf("got %d keys of 35 tokens, want %d", len(keys), len(want))
	}
	for i, k := range keys {
		if k.String() != want[i] {
			t.Errorf("key %d: got %s, want %s", i, k, want[i])
		}
	}
}

func TestEqualPrefixesHaveEqualKeys(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		token := rapid.Uint32Max(1 << 18)
		a := rapid.SliceOfN(token, 1, 100).Draw(t, "tokens")
		blockTokens := rapid.IntRange(1, 20).Draw(t, "blockTokens")
		at := rapid.IntRange(0, len(a)-1).Draw(t, "at")
		b := slices.Clone(a)
		b[at]++
		keysA := appendBlockKeys(nil, Scope{}, a, blockTokens)
		keysB := appendBlockKeys(nil, Scope{}, b, blockTokens)
		if len(keysA) != len(a)/blockTokens {
			t.Fatalf("%d keys of %d tokens in blocks of %d", len(keysA), len(a), blockTokens)
		}
		for i := range keysA {
			if equal := keysA[i] == keysB[i]; equal != (i < at/blockTokens) {
				t.Fatalf("token %d differs; keys of block %d equal: %v", at, i, equal)
			}
		}
	})
}

func TestChainEqualsStepByStep(t *testing.T) {
	scope := Scope{Model: "m"}
	tokens := []uint32{1, 2, 3, 4, 5, 6}
	first := NextBlockKey(scope.Root(), tokens[:3])
	second := NextBlockKey(first, tokens[3:])
	if got := appendBlockKeys(nil, scope, tokens, 3); !slices.Equal(got, []BlockKey{first, second}) {
		t.Errorf("got %v", got)
	}
}

func TestScopesAreStrangers(t *testing.T) {
	seen := make(map[Hash]Scope)
	for _, s := range []Scope{
		{},
		{Model: "a"},
		{Revision: "a"},
		{Adapter: "a"},
		{Media: "a"},
		{Salt: "a"},
		{Model: "ab"},
		{Model: "a", Revision: "b"},
		{Model: "a\x01\x00\x00\x00\x00\x00\x00\x00b"},
	} {
		root := s.Root()
		if other, taken := seen[root]; taken {
			t.Errorf("%+v and %+v share a root", s, other)
		}
		seen[root] = s
	}
}

// appendBlockKeys appends the keys of every full block of blockTokens tokens.
func appendBlockKeys(keys []BlockKey, scope Scope, tokens []uint32, blockTokens int) []BlockKey {
	for parent := scope.Root(); len(tokens) >= blockTokens; tokens = tokens[blockTokens:] {
		parent = NextBlockKey(parent, tokens[:blockTokens])
		keys = append(keys, parent)
	}
	return keys
}
