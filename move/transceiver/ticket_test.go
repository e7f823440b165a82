package transceiver_test

import (
	"errors"
	"testing"
	"time"

	"meridian/move/transceiver/handoff"
)

// Each bad ticket is refused with its own error, before anything is asked.
func TestTicketsAreRefused(t *testing.T) {
	x := newPair(t, handoff.Timing{})
	x.offered(t)
	good := x.accept
	for name, c := range map[string]struct {
		spoil func(*shown)
		want  error
	}{
		"not a ticket":     {func(a *shown) { a.Ticket = []byte("MRDT") }, handoff.ErrTicket},
		"forged":           {func(a *shown) { a.Ticket[30]++ }, handoff.ErrForged},
		"another model":    {func(a *shown) { a.Content.Scope.Model = "other" }, handoff.ErrOtherModel},
		"another revision": {func(a *shown) { a.Content.Scope.Revision = "other" }, handoff.ErrOtherModel},
		"another adapter":  {func(a *shown) { a.Content.Scope.Adapter = "other" }, handoff.ErrOtherModel},
		"another salt":     {func(a *shown) { a.Content.Scope.Salt = "other" }, handoff.ErrOtherSalt},
		"another image":    {func(a *shown) { a.Content.Scope.Media = "other" }, handoff.ErrOtherPrompt},
		"another prompt":   {func(a *shown) { a.Content.Tokens[50]++ }, handoff.ErrOtherPrompt},
		"another engine":   {func(a *shown) { a.Engine = "other" }, handoff.ErrMember},
	} {
		t.Run(name, func(t *testing.T) {
			a := good
			a.Ticket = append([]byte(nil), good.Ticket...)
			a.Content = prompt(pairTokens)
			c.spoil(&a)
			refused := x.d.Metrics().Refused
			if _, err := x.d.accept(soon(t), a); !errors.Is(err, c.want) {
				t.Errorf("%v, want %v", err, c.want)
			}
			if n := x.d.Metrics().Refused - refused; n != 1 {
				t.Errorf("%d refused accepts are counted", n)
			}
		})
	}
}

// A ticket that was used is refused everywhere, by the one who used it and by
// the one who made it.
func TestTicketIsUsedOnce(t *testing.T) {
	x := newPair(t, handoff.Timing{})
	out := x.offered(t)
	if err := x.accepted(t, soon(t)).Wait(soon(t)); err != nil {
		t.Fatal(err)
	}
	if err := out.Wait(soon(t)); err != nil {
		t.Fatal(err)
	}
	if _, err := x.d.accept(soon(t), x.accept); !errors.Is(err, handoff.ErrUsed) {
		t.Errorf("accepted again: %v", err)
	}
	other := x.start("e")
	x.engine("decode2", model, shape{tp: 1, pp: 1, blockTokens: 16, blocks: 20, layout: "LBHNC"}, other)
	a := x.accept
	a.Engine = "decode2"
	in, err := other.accept(soon(t), a)
	if err != nil {
		t.Fatal(err)
	}
	if err := in.Wait(soon(t)); !errors.Is(err, handoff.ErrUsed) {
		t.Errorf("replayed elsewhere: %v", err)
	}
	if _, err := x.p.Offer(x.offer); !errors.Is(err, handoff.ErrUsed) {
		t.Errorf("offered again: %v", err)
	}
}

// An offer that is not taken ends by itself, and its ticket with it.
func TestOfferExpires(t *testing.T) {
	x := newPair(t, handoff.Timing{})
	x.offer.Keep = 20 * time.Millisecond
	out := x.offered(t)
	if err := out.Wait(soon(t)); !errors.Is(err, handoff.ErrExpired) {
		t.Fatalf("it was not taken: %v", err)
	}
	if err := x.accepted(t, soon(t)).Wait(soon(t)); !errors.Is(err, handoff.ErrExpired) {
		t.Errorf("an expired ticket: %v", err)
	}
}
