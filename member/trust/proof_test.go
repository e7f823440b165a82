package trust

import (
	"encoding/hex"
	"errors"
	"testing"

	"pgregory.net/rapid"
)

func transcript() Transcript {
	return Transcript{
		Version: 1, Link: [16]byte{1, 2, 3}, Stream: 4,
		Dialer:   Party{Name: "a", Incarnation: [16]byte{5}, Nonce: NewNonce()},
		Listener: Party{Name: "b", Incarnation: [16]byte{6}, Nonce: NewNonce()},
	}
}

func TestBothSidesProve(t *testing.T) {
	key, said := newCellKey(), transcript()
	for _, role := range []Role{Dialer, Listener} {
		if err := Verify(key, role, said, Proof(key, role, said)); err != nil {
			t.Error(err)
		}
	}
}

func TestProofsThatAreRefused(t *testing.T) {
	key, said := newCellKey(), transcript()
	listeners := Proof(key, Listener, said)
	same := said
	same.Dialer.Nonce = same.Listener.Nonce
	flipped := Proof(key, Dialer, said)
	flipped[31] ^= 1
	for name, c := range map[string]struct {
		key   CellKey
		role  Role
		said  Transcript
		proof [ProofBytes]byte
	}{
		"reflected":        {key, Dialer, said, listeners},
		"reflected back":   {key, Listener, said, Proof(key, Dialer, said)},
		"other key":        {key, Dialer, said, Proof(newCellKey(), Dialer, said)},
		"one bit":          {key, Dialer, said, flipped},
		"zeros":            {key, Dialer, said, [ProofBytes]byte{}},
		"nonce sent back":  {key, Dialer, same, Proof(key, Dialer, same)},
		"the key's own":    {key, Dialer, said, key.Derive("link proof 1")},
		"a third role":     {key, 3, said, Proof(key, 3, said)},
		"no role":          {key, 0, said, Proof(key, 0, said)},
		"exchanged":        {key, Dialer, swapped(said), Proof(key, Dialer, said)},
		"exchanged, other": {key, Listener, swapped(said), Proof(key, Dialer, said)},
	} {
		err := Verify(c.key, c.role, c.said, c.proof)
		if !errors.Is(err, ErrProof) && !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func swapped(t Transcript) Transcript {
	t.Dialer, t.Listener = t.Listener, t.Dialer
	return t
}

// A proof holds for one transcript only: whatever differs in it, replayed or
// moved to another link, stream, agent, incarnation or version, it is refused.
func TestProofsAreBoundToTheirTranscript(t *testing.T) {
	key, said := newCellKey(), transcript()
	for name, change := range map[string]func(*Transcript){
		"replayed to a new listener nonce": func(t *Transcript) { t.Listener.Nonce = NewNonce() },
		"replayed to a new dialer nonce":   func(t *Transcript) { t.Dialer.Nonce = NewNonce() },
		"other link":                       func(t *Transcript) { t.Link[15] ^= 1 },
		"other stream":                     func(t *Transcript) { t.Stream++ },
		"other version":                    func(t *Transcript) { t.Version++ },
		"other dialer":                     func(t *Transcript) { t.Dialer.Name = "c" },
		"other listener":                   func(t *Transcript) { t.Listener.Name = "c" },
		"no name":                          func(t *Transcript) { t.Dialer.Name = "" },
		"reborn dialer":                    func(t *Transcript) { t.Dialer.Incarnation[0]++ },
		"reborn listener":                  func(t *Transcript) { t.Listener.Incarnation[15]++ },
	} {
		for _, role := range []Role{Dialer, Listener} {
			other := said
			change(&other)
			if err := Verify(key, role, other, Proof(key, role, said)); !errors.Is(err, ErrProof) {
				t.Errorf("%s, role %d: %v", name, role, err)
			}
		}
	}
}

// No two transcripts have the same bytes, however names are chosen.
func TestTranscriptsAreUnambiguous(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		party := rapid.Custom(func(t *rapid.T) Party {
			p := Party{Name: string(rapid.SliceOfN(rapid.ByteRange(0, 3), 0, 60).Draw(t, "name"))}
			p.Incarnation[0], p.Nonce[0] = rapid.ByteRange(0, 1).Draw(t, "incarnation"), rapid.ByteRange(0, 1).Draw(t, "nonce")
			return p
		})
		one := Transcript{Dialer: party.Draw(t, "dialer"), Listener: party.Draw(t, "listener")}
		two := Transcript{Dialer: party.Draw(t, "dialer"), Listener: party.Draw(t, "listener")}
		if same := string(one.appendTo(nil)) == string(two.appendTo(nil)); same != (one == two) {
			t.Fatalf("%v and %v have the same bytes: %v", one, two, same)
		}
	})
}

// The bytes of a proof are a contract between versions. This vector was made
// with another implementation, after the description of Proof:
//
//	python3 -c '
//	import hmac, struct
//	h = lambda k, m: hmac.digest(k, m, "sha256")
//	p = lambda n, i, r: struct.pack("<I", len(n)) + n + bytes([i]*16) + bytes([r]*32)
//	key = h(h(bytes(32), bytes(range(32))), b"meridian link proof 1\x01")
//	t = struct.pack("<H16sH", 1, bytes([7]*16), 2) + p(b"prefill-0", 1, 3) + p(b"decode-0", 2, 4)
//	for role in (b"\x01", b"\x02"): print(h(key, role + t).hex())'
func TestProofVector(t *testing.T) {
	var secret [keyBytes]byte
	for i := range secret {
		secret[i] = byte(i)
	}
	said := Transcript{
		Version: 1, Link: filled16(7), Stream: 2,
		Dialer:   Party{Name: "prefill-0", Incarnation: filled16(1), Nonce: filled32(3)},
		Listener: Party{Name: "decode-0", Incarnation: filled16(2), Nonce: filled32(4)},
	}
	for role, want := range map[Role]string{
		Dialer:   "25bdfb403e7afb8287bd1ac321045b6511caa5a0571342a86fe3b8577d27dd06",
		Listener: "15cd6e547da1771c91630f53120a89cfc1dc17c8386d2da9dfc56744d21e1527",
	} {
		proof := Proof(CellKey{&secret}, role, said)
		if got := hex.EncodeToString(proof[:]); got != want {
			t.Errorf("role %d: %s, want %s", role, got, want)
		}
	}
}

func filled16(b byte) (a [16]byte) {
	for i := range a {
		a[i] = b
	}
	return a
}

func filled32(b byte) (n Nonce) {
	for i := range n {
		n[i] = b
	}
	return n
}
