package trust

import (
	"bytes"
	"errors"
	"strings"
	"testing"
)

func testPromise() Promise {
	return Promise{ID: [16]byte{1, 15: 9}, Incarnation: [16]byte{2, 15: 8}, Home: "agent-0"}
}

func TestPromiseOpensAsSealed(t *testing.T) {
	key := newCellKey().Derive(ForGatewayLegs)
	for _, p := range []Promise{testPromise(), {Home: "a"}, {ID: [16]byte{0xff}, Home: strings.Repeat("x", 255)}} {
		sealed := p.Seal(key)
		if len(sealed) > MaxPromiseBytes || !IsPromise(sealed) {
			t.Errorf("%d bytes, at most %d: % x", len(sealed), MaxPromiseBytes, sealed)
		}
		if got, err := OpenPromise(sealed, key); err != nil || got != p {
			t.Errorf("%+v opens as %+v, %v", p, got, err)
		}
	}
}

// Engines read the id where a ticket has it.
func TestPromiseBytes(t *testing.T) {
	sealed := Promise{ID: [16]byte{2}, Incarnation: [16]byte{3}, Home: "h"}.Seal([32]byte{1})
	want := []byte("MRDP\x01\x02")
	want = append(append(want, make([]byte, 15)...), 3)
	want = append(append(want, make([]byte, 15)...), 1, 'h')
	if !bytes.HasPrefix(sealed, want) || len(sealed) != len(want)+32 {
		t.Errorf("% x is not % x and a seal", sealed, want)
	}
}

func TestPromisesOfOthersAreRefused(t *testing.T) {
	cell := newCellKey()
	key := cell.Derive(ForGatewayLegs)
	sealed := testPromise().Seal(key)
	for name, other := range map[string][32]byte{
		"of another cell": newCellKey().Derive(ForGatewayLegs), "of another purpose": cell.Derive(ForTickets), "of zeros": {},
	} {
		if _, err := OpenPromise(sealed, other); !errors.Is(err, ErrProof) {
			t.Errorf("a key %s: %v", name, err)
		}
	}
	// A leg is no promise, although the key is the same, and the other way round.
	if _, err := OpenPromise(testLeg().Seal(key), key); !errors.Is(err, ErrProof) {
		t.Errorf("a leg: %v", err)
	}
	if _, err := OpenLeg(sealed, key); !errors.Is(err, ErrProof) {
		t.Errorf("a promise as a leg: %v", err)
	}
}

func TestDamagedPromisesAreRefused(t *testing.T) {
	key := newCellKey().Derive(ForGatewayLegs)
	sealed := testPromise().Seal(key)
	for bit := range 8 * len(sealed) {
		damaged := bytes.Clone(sealed)
		damaged[bit/8] ^= 1 << (bit % 8)
		if p, err := OpenPromise(damaged, key); !errors.Is(err, ErrProof) {
			t.Fatalf("with bit %d flipped it opens as %+v, %v", bit, p, err)
		}
	}
	for n := range len(sealed) {
		if p, err := OpenPromise(sealed[:n], key); !errors.Is(err, ErrProof) {
			t.Fatalf("its first %d bytes open as %+v, %v", n, p, err)
		}
	}
}
