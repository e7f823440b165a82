package handoff

import (
	"fmt"

	"github.com/zeebo/blake3"

	"meridian/internal/fields"
	"meridian/kv"
)

// Key is what tickets are sealed with. A cell has one; each home has its own,
// made of it, so that an engine can write tickets of its own home and of no other.
type Key [32]byte

// For is the key of one home's tickets. An agent that has the cell's can make it;
// it does not give the cell's away.
func (k Key) For(home kv.Member) Key {
	w := fields.Writer{B: []byte{homeDomain}}
	eachMember(fields.Writing(&w), &home)
	return k.mac(w.B)
}

// Ticket is a right to ask for a cache, not to read it. It goes from the prefill
// engine to the decode engine through programs that are not trusted.
//
//	"MRDT" u8 version │ transfer id │ home's name and incarnation │ tokens │ fingerprint │ expires │ MAC
//
// The MAC is BLAKE3-256 under the home's key, of everything before; so are the
// hashes of the fingerprint.
type Ticket struct {
	Transfer kv.ID
	// Home is the agent that speaks for the prefill engine. It is looked up in
	// the directory: a ticket carries no address.
	Home        kv.Member
	Tokens      int
	Fingerprint Fingerprint
	// Expires is by the home's own clock; to other agents it means nothing. They
	// write Never; see Redeemed.
	Expires Instant
}

// Redeemed is the ticket of an offer that was promised, as the decode side's
// agent writes it for what its engine's own request is of. The home compares
// that with the offer when it has come.
func Redeemed(transfer kv.ID, home kv.Member, own Content, k Key) Ticket {
	return Ticket{Transfer: transfer, Home: home, Tokens: len(own.Tokens), Fingerprint: own.Fingerprint(k.For(home)), Expires: Never}
}

// end is until when it must be remembered that a ticket was used. Of one that does
// not expire, or later than a home's own do, that is not known: a destination that shows it late waits in vain until its
// own deadline, because no transfer is offered twice.
func (t *Ticket) end(now Instant) Instant {
	if t.Expires > now+MaxKeep {
		return 0
	}
	return t.Expires
}

// MaxTicketBytes bounds a sealed ticket.
const MaxTicketBytes = 512

const (
	ticketMagic   = "MRDT"
	ticketVersion = 1
	macBytes      = 32
)

// Seal writes the ticket. k is the cell's key.
func (t Ticket) Seal(k Key) []byte {
	w := fields.Writer{B: append(make([]byte, 0, 256), ticketMagic...)}
	w.U8(ticketVersion)
	t.each(fields.Writing(&w))
	mac := k.For(t.Home).mac(w.B)
	return append(w.B, mac[:]...)
}

func (t *Ticket) each(c fields.Codec) {
	c.ID(&t.Transfer)
	eachMember(c, &t.Home)
	c.Int(&t.Tokens)
	t.Fingerprint.each(c)
	fields.UpTo(c, uint64(Never), &t.Expires)
}

// OpenTicket reads a ticket from a stranger. k is the cell's key.
func OpenTicket(b []byte, k Key) (Ticket, error) {
	if len(b) > MaxTicketBytes || len(b) < len(ticketMagic)+1+macBytes || string(b[:len(ticketMagic)]) != ticketMagic {
		return Ticket{}, fmt.Errorf("%w: %d bytes", ErrTicket, len(b))
	}
	if v := b[len(ticketMagic)]; v != ticketVersion {
		return Ticket{}, fmt.Errorf("%w: it is of version %d, this build reads %d", ErrTicket, v, ticketVersion)
	}
	body := b[:len(b)-macBytes]
	r := fields.Reader{B: body[len(ticketMagic)+1:]}
	var t Ticket
	t.each(fields.Reading(&r))
	malformed := whole(&r, "ticket") != nil
	// Nothing of it is believed before its seal is.
	if !sameMAC(k.For(t.Home).mac(body), [macBytes]byte(b[len(body):])) {
		return Ticket{}, fmt.Errorf("%w: its seal is wrong", ErrForged)
	}
	if malformed {
		return Ticket{}, fmt.Errorf("%w: malformed", ErrTicket)
	}
	return t, nil
}

// OpenTicketFor reads a ticket that an engine shows whose own request is of the content. One of
// another content is returned with the error that says what differs: a stranger's cache must not
// get into the engine's.
func OpenTicketFor(b []byte, k Key, own Content) (Ticket, error) {
	t, err := OpenTicket(b, k)
	if err == nil {
		err = t.Fingerprint.Check(own.Fingerprint(k.For(t.Home)))
	}
	return t, err
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
