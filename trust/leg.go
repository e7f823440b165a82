package trust

import (
	"crypto/hmac"
	"crypto/sha256"
	"fmt"
)

// LegKind is which part of a request a leg is for.
type LegKind uint8

// The kinds.
const (
	LegPrefill LegKind = 1
	LegDecode  LegKind = 2
)

func (k LegKind) String() string {
	switch k {
	case LegPrefill:
		return "prefill"
	case LegDecode:
		return "decode"
	}
	return fmt.Sprintf("leg(%d)", uint8(k))
}

// Leg is one leg of a user's request as a gateway of this cell sent it: this
// engine may do this part of this request. The engine passes it on unread, and
// the engine's agent checks it.
//
//	u8 version │ u8 kind │ id 16 bytes │ u8 length, engine │ MAC 32 bytes
//
// The MAC is HMAC-SHA256 under the cell's key for legs, of "meridian leg" and
// everything before.
type Leg struct {
	Kind   LegKind
	ID     [16]byte // the transfer's; zeros are none
	Engine string   // who may use it
}

const (
	legVersion = 1
	legHead    = 1 + 1 + 16 + 1
	// MaxLegBytes bounds a sealed leg.
	MaxLegBytes = legHead + 255 + sha256.Size
)

// Seal writes the leg. It panics for one that no agent would open: an engine's id
// has 1 to 255 bytes, and a transfer's is not zero.
func (l Leg) Seal(key [keyBytes]byte) []byte {
	if err := l.validate(); err != nil {
		panic(err)
	}
	b := make([]byte, 0, MaxLegBytes)
	b = append(b, legVersion, byte(l.Kind))
	b = append(b, l.ID[:]...)
	b = append(b, byte(len(l.Engine)))
	b = append(b, l.Engine...)
	return append(b, gatewayMAC(key, legLabel, b)...)
}

func (l Leg) validate() error {
	if l.Kind != LegPrefill && l.Kind != LegDecode {
		return because(ErrInvalid, fmt.Sprintf("a leg is for prefill or decode, not %v", l.Kind))
	}
	if len(l.Engine) < 1 || len(l.Engine) > 255 {
		return because(ErrInvalid, fmt.Sprintf("a leg names an engine of 1 to 255 bytes, not %d", len(l.Engine)))
	}
	if l.ID == [16]byte{} {
		return because(ErrInvalid, "a leg names the transfer that it is for")
	}
	return nil
}

// OpenLeg reads a leg from a stranger.
func OpenLeg(b []byte, key [keyBytes]byte) (Leg, error) {
	refuse := func(why string) (Leg, error) {
		return Leg{}, &Error{Op: "open leg", Err: because(ErrProof, why), Hint: "legs are made by the gateway of the cell, with the key in " + CellKeyFile}
	}
	if len(b) < legHead+1+sha256.Size || len(b) > MaxLegBytes {
		return refuse(fmt.Sprintf("it has %d bytes", len(b)))
	}
	if b[0] != legVersion {
		return refuse(fmt.Sprintf("it is of version %d, this build reads %d", b[0], legVersion))
	}
	body, mac := b[:len(b)-sha256.Size], b[len(b)-sha256.Size:]
	if !hmac.Equal(gatewayMAC(key, legLabel, body), mac) {
		return refuse("its seal is wrong")
	}
	l := Leg{Kind: LegKind(body[1]), ID: [16]byte(body[2:18]), Engine: string(body[legHead:])}
	if int(body[legHead-1]) != len(l.Engine) || l.validate() != nil {
		return refuse("it is malformed")
	}
	return l, nil
}

// Check says why a leg is not the one that is needed.
func (l Leg) Check(need Leg) error {
	refuse := func(what, has, wants string) error {
		return &Error{Op: "check leg", Err: because(ErrProof, fmt.Sprintf("it is for %s %s, here is %s", what, has, wants))}
	}
	switch {
	case l.Kind != need.Kind:
		return refuse("the part", l.Kind.String(), need.Kind.String())
	case l.Engine != need.Engine:
		return refuse("engine", l.Engine, need.Engine)
	case l.ID != need.ID || need.ID == [16]byte{}:
		return refuse("transfer", fmt.Sprintf("%x", l.ID), fmt.Sprintf("%x", need.ID))
	}
	return nil
}

const legLabel = "meridian leg"

// gatewayMAC is what a gateway seals with. The label keeps one kind of word from
// being taken for another: their key is the same.
func gatewayMAC(key [keyBytes]byte, label string, body []byte) []byte {
	mac := hmac.New(sha256.New, key[:])
	mac.Write([]byte(label))
	mac.Write(body)
	return mac.Sum(nil)
}
