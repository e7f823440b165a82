package trust

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
)

// ProofBytes is the size of a nonce and of a proof.
const ProofBytes = 32

// Nonce is random and used once, by one side of one stream.
type Nonce [ProofBytes]byte

// NewNonce draws a nonce.
func NewNonce() (n Nonce) {
	rand.Read(n[:])
	return n
}

// Role is the side that makes a proof. A proof of one side is never one of the
// other, so that no peer can be answered with its own words.
type Role uint8

// Roles.
const (
	Dialer   Role = 1
	Listener Role = 2
)

// Party is one side as it introduced itself.
type Party struct {
	Name        string
	Incarnation [16]byte
	Nonce       Nonce
}

// Transcript is everything that the two sides of a stream have said. Both make
// it of what they sent and what they got; where the two differ, so do the
// proofs.
type Transcript struct {
	Version  uint16 // of the protocol that both will speak
	Link     [16]byte
	Stream   uint16 // of the link
	Dialer   Party
	Listener Party
}

// Proof shows that role knows the cell's key and has taken part in t. It is
// HMAC-SHA256 under a derived key ("meridian link proof 1") of
//
//	role u8, version u16, link 16 bytes, stream u16,
//	dialer, listener: each name length u32, name, incarnation 16 bytes, nonce 32 bytes
//
// with all integers little endian.
func Proof(key CellKey, role Role, t Transcript) [ProofBytes]byte {
	secret := key.derive("link proof 1")
	mac := hmac.New(sha256.New, secret[:])
	mac.Write(t.appendTo([]byte{byte(role)}))
	return [ProofBytes]byte(mac.Sum(nil))
}

func (t Transcript) appendTo(b []byte) []byte {
	b = binary.LittleEndian.AppendUint16(b, t.Version)
	b = append(b, t.Link[:]...)
	b = binary.LittleEndian.AppendUint16(b, t.Stream)
	for _, p := range []Party{t.Dialer, t.Listener} {
		b = binary.LittleEndian.AppendUint32(b, uint32(len(p.Name)))
		b = append(b, p.Name...)
		b = append(b, p.Incarnation[:]...)
		b = append(b, p.Nonce[:]...)
	}
	return b
}

// Verify checks the proof that a peer in the given role has sent, in a time
// that does not depend on where it is wrong. A wrong one ends the connection.
func Verify(key CellKey, role Role, t Transcript, proof [ProofBytes]byte) error {
	peer := t.Dialer.Name
	switch role {
	case Dialer:
	case Listener:
		peer = t.Listener.Name
	default:
		return &Error{Op: "verify proof", Err: because(ErrInvalid, "the peer is neither dialer nor listener")}
	}
	if t.Dialer.Nonce == t.Listener.Nonce {
		return &Error{Op: "verify proof of", Subject: peer, Err: because(ErrProof, "both sides have the same nonce")}
	}
	want := Proof(key, role, t)
	if !hmac.Equal(want[:], proof[:]) {
		return &Error{
			Op: "verify proof of", Subject: peer, Err: ErrProof,
			Hint: "agents of one cell share " + CellKeyFile + " in one state directory; between hosts, use certificates",
		}
	}
	return nil
}
