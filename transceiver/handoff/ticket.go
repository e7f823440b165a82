package handoff

import (
	"fmt"

	"github.com/zeebo/blake3"

	"meridian/mrdn"
)

// Key is what tickets of a cell are sealed with.
type Key [32]byte

// Ticket is a right to ask for a cache, not to read it. It goes from the prefill
// engine to the decode engine through hands that are not trusted.
//
//	"MRDT" u8 version │ transfer id │ home's name and incarnation │ tokens │ fingerprint │ expires │ MAC
//
// The MAC is BLAKE3-256 under the cell's key for tickets, of everything before.
type Ticket struct {
	Transfer mrdn.ID
	// Home is the agent that speaks for the prefill engine. It is looked up in
	// the directory: a ticket carries no address.
	Home   Member
	Tokens int
	Of     Fingerprint
	// Expires is by the home's own clock; to anybody else it means nothing.
	Expires Instant
}

// MaxTicketBytes bounds a sealed ticket.
const MaxTicketBytes = 512

const (
	ticketMagic   = "MRDT"
	ticketVersion = 1
	macBytes      = 32
)

// Seal writes the ticket.
func (t Ticket) Seal(k Key) []byte {
	w := writer{b: append(make([]byte, 0, 256), ticketMagic...)}
	w.u8(ticketVersion)
	w.id(t.Transfer)
	t.Home.append(&w)
	w.uint(uint64(t.Tokens))
	t.Of.append(&w)
	w.uint(uint64(t.Expires))
	mac := k.mac(w.b)
	return append(w.b, mac[:]...)
}

// OpenTicket reads a ticket from a stranger.
func OpenTicket(b []byte, k Key) (Ticket, error) {
	if len(b) > MaxTicketBytes || len(b) < len(ticketMagic)+1+macBytes || string(b[:len(ticketMagic)]) != ticketMagic {
		return Ticket{}, fmt.Errorf("%w: %d bytes", ErrTicket, len(b))
	}
	if v := b[len(ticketMagic)]; v != ticketVersion {
		return Ticket{}, fmt.Errorf("%w: it is of version %d, this build reads %d", ErrTicket, v, ticketVersion)
	}
	body, mac := b[:len(b)-macBytes], k.mac(b[:len(b)-macBytes])
	if !sameMAC(mac, [macBytes]byte(b[len(body):])) {
		return Ticket{}, fmt.Errorf("%w: its seal is wrong", ErrForged)
	}
	r := reader{b: body[len(ticketMagic)+1:]}
	var t Ticket
	t.Transfer = r.id()
	t.Home.parse(&r)
	t.Tokens = r.int()
	t.Of.parse(&r)
	t.Expires = Instant(r.uintTo(uint64(Never)))
	if r.end("ticket") != nil {
		return Ticket{}, fmt.Errorf("%w: malformed", ErrTicket)
	}
	return t, nil
}

// mac is of the bytes, under the key.
func (k Key) mac(b []byte) [macBytes]byte {
	h, err := blake3.NewKeyed(k[:])
	if err != nil {
		panic(err) // only a key of another length is refused
	}
	h.Write(b)
	return [macBytes]byte(h.Sum(nil))
}

// sameMAC takes as long for two that differ early as for two that differ late.
func sameMAC(a, b [macBytes]byte) bool {
	var different byte
	for i := range a {
		different |= a[i] ^ b[i]
	}
	return different == 0
}
