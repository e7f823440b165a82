package trust

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"fmt"
)

// Promise is a gateway's word that an offer of this transfer will come: the
// request is with a prefill engine of that home. It goes to the decode engine in
// the place of a ticket, before there is one. The engine passes it on unread, and
// its agent, who knows what the engine's own request is of, writes the ticket.
//
//	"MRDP" u8 version │ id 16 bytes │ incarnation 16 bytes │ u8 length, home │ MAC 32 bytes
//
// The MAC is HMAC-SHA256 under the cell's key for legs, of "meridian promise" and
// everything before.
type Promise struct {
	ID          [16]byte // the transfer's
	Incarnation [16]byte // the home's
	Home        string   // the agent that speaks for the prefill engine
}

const (
	promiseMagic   = "MRDP"
	promiseVersion = 1
	promiseLabel   = "meridian promise"
	promiseHead    = len(promiseMagic) + 1 + 16 + 16 + 1
	// MaxPromiseBytes bounds a sealed promise.
	MaxPromiseBytes = promiseHead + 255 + sha256.Size
)

// IsPromise tells a promise from a ticket. Whether it is genuine OpenPromise
// tells.
func IsPromise(b []byte) bool { return bytes.HasPrefix(b, []byte(promiseMagic)) }

// Seal writes the promise. It panics for one that no agent would open: an agent's
// name has 1 to 255 bytes.
func (p Promise) Seal(key [keyBytes]byte) []byte {
	if err := p.validate(); err != nil {
		panic(err)
	}
	b := append(make([]byte, 0, MaxPromiseBytes), promiseMagic...)
	b = append(b, promiseVersion)
	b = append(b, p.ID[:]...)
	b = append(b, p.Incarnation[:]...)
	b = append(b, byte(len(p.Home)))
	b = append(b, p.Home...)
	return append(b, gatewayMAC(key, promiseLabel, b)...)
}

func (p Promise) validate() error {
	if len(p.Home) < 1 || len(p.Home) > 255 {
		return because(ErrInvalid, fmt.Sprintf("a promise names an agent of 1 to 255 bytes, not %d", len(p.Home)))
	}
	return nil
}

// OpenPromise reads a promise from a stranger.
func OpenPromise(b []byte, key [keyBytes]byte) (Promise, error) {
	refuse := func(why string) (Promise, error) {
		return Promise{}, &Error{Op: "open promise", Err: because(ErrProof, why), Hint: "promises are made by the gateway of the cell, with the key in " + CellKeyFile}
	}
	if len(b) < promiseHead+1+sha256.Size || len(b) > MaxPromiseBytes || !IsPromise(b) {
		return refuse(fmt.Sprintf("%d bytes are none", len(b)))
	}
	if v := b[len(promiseMagic)]; v != promiseVersion {
		return refuse(fmt.Sprintf("it is of version %d, this build reads %d", v, promiseVersion))
	}
	body, mac := b[:len(b)-sha256.Size], b[len(b)-sha256.Size:]
	if !hmac.Equal(gatewayMAC(key, promiseLabel, body), mac) {
		return refuse("its seal is wrong")
	}
	ids := body[len(promiseMagic)+1:]
	p := Promise{ID: [16]byte(ids[:16]), Incarnation: [16]byte(ids[16:32]), Home: string(body[promiseHead:])}
	if int(body[promiseHead-1]) != len(p.Home) || p.validate() != nil {
		return refuse("it is malformed")
	}
	return p, nil
}
