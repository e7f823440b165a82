package handoff

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"meridian/internal/fields"
	"meridian/kv"
	"meridian/move/reshard"
)

var testKey = Key{1, 2, 3}

func drawTicket(t *rapid.T) Ticket {
	return Ticket{
		Transfer: kv.ID(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "id")),
		Home:     kv.Member{Name: rapid.StringN(1, 60, 255).Draw(t, "home"), Incarnation: kv.ID{9}},
		Tokens:   rapid.IntRange(0, 1<<40).Draw(t, "tokens"), Expires: Instant(rapid.Int64Min(0).Draw(t, "expires")),
		Fingerprint: Content{Scope: kv.Scope{Model: rapid.String().Draw(t, "model")}}.Fingerprint(testKey),
	}
}

func TestTicketRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := drawTicket(t)
		sealed := want.Seal(testKey)
		if len(sealed) > MaxTicketBytes {
			t.Fatalf("%d bytes", len(sealed))
		}
		got, err := OpenTicket(sealed, testKey)
		if err != nil || got != want {
			t.Fatalf("%+v, %v", got, err)
		}
	})
}

// The longest name there can be still fits.
func TestTicketFits(t *testing.T) {
	name := make([]byte, 255)
	if n := len(Ticket{Home: kv.Member{Name: string(name)}, Tokens: 1 << 47, Expires: Never}.Seal(testKey)); n > MaxTicketBytes {
		t.Errorf("%d bytes", n)
	}
}

// A ticket with a bit changed, a byte cut off, or of another key is refused.
func TestForgedTickets(t *testing.T) {
	sealed := Ticket{Transfer: kv.ID{5}, Home: kv.Member{Name: "home", Incarnation: kv.ID{6}}, Tokens: 1000}.Seal(testKey)
	if _, err := OpenTicket(sealed, Key{1}); !errors.Is(err, ErrForged) {
		t.Errorf("another key: %v", err)
	}
	for i := range sealed {
		for bit := range 8 {
			changed := append([]byte(nil), sealed...)
			changed[i] ^= 1 << bit
			if _, err := OpenTicket(changed, testKey); !errors.Is(err, ErrForged) && !(i < 5 && errors.Is(err, ErrTicket)) {
				t.Fatalf("bit %d of byte %d: %v", bit, i, err)
			}
		}
		if _, err := OpenTicket(sealed[:i], testKey); !errors.Is(err, ErrForged) && !errors.Is(err, ErrTicket) {
			t.Fatalf("cut after %d bytes: %v", i, err)
		}
	}
}

func FuzzOpenTicket(f *testing.F) {
	f.Add(Ticket{Transfer: kv.ID{5}, Home: kv.Member{Name: "home", Incarnation: kv.ID{6}}, Tokens: 1000}.Seal(testKey))
	f.Add([]byte("MRDT\x01"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if ticket, err := OpenTicket(b, testKey); err == nil && string(ticket.Seal(testKey)) != string(b) {
			t.Errorf("%x is another form of %+v", b, ticket)
		}
		// A seal that is right does not make the rest right.
		mac := testKey.mac(b)
		if ticket, err := OpenTicket(append(b, mac[:]...), testKey); err == nil {
			if again, err := OpenTicket(ticket.Seal(testKey), testKey); err != nil || again != ticket {
				t.Errorf("%+v, %+v, %v", ticket, again, err)
			}
		}
	})
}

// Contents that differ in anything have other fingerprints, in the part that
// says what.
func TestFingerprints(t *testing.T) {
	base := Content{Scope: kv.Scope{Model: "m", Revision: "r", Adapter: "a", Media: "i", Salt: "s"}, Tokens: []uint32{1, 2, 3}}
	for name, c := range map[string]struct {
		change func(*Content)
		want   error
	}{
		"nothing":       {func(*Content) {}, nil},
		"model":         {func(c *Content) { c.Scope.Model = "n" }, ErrOtherModel},
		"revision":      {func(c *Content) { c.Scope.Revision = "q" }, ErrOtherModel},
		"adapter":       {func(c *Content) { c.Scope.Adapter = "" }, ErrOtherModel},
		"moved letters": {func(c *Content) { c.Scope.Model, c.Scope.Revision = "mr", "" }, ErrOtherModel},
		"media":         {func(c *Content) { c.Scope.Media = "j" }, ErrOtherPrompt},
		"tokens":        {func(c *Content) { c.Tokens = []uint32{1, 2, 4} }, ErrOtherPrompt},
		"more tokens":   {func(c *Content) { c.Tokens = append(c.Tokens, 0) }, ErrOtherPrompt},
		"salt":          {func(c *Content) { c.Scope.Salt = "" }, ErrOtherSalt},
	} {
		other := base
		other.Tokens = append([]uint32(nil), base.Tokens...)
		c.change(&other)
		if err := base.Fingerprint(testKey).Check(other.Fingerprint(testKey)); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
		home := kv.Member{Name: "p", Incarnation: kv.ID{5}}
		sealed := Ticket{Transfer: kv.ID{3}, Home: home, Tokens: 3, Fingerprint: base.Fingerprint(testKey.For(home)), Expires: Never}.Seal(testKey)
		if ticket, err := OpenTicketFor(sealed, testKey, other); !errors.Is(err, c.want) || ticket.Transfer != (kv.ID{3}) {
			t.Errorf("a ticket shown with another %s: %v, of transfer %s", name, err, ticket.Transfer)
		}
	}
	if base.Fingerprint(testKey) == base.Fingerprint(Key{}) {
		t.Error("another cell has the same fingerprint")
	}
	long := Content{Tokens: make([]uint32, 10_000)}
	was := long.Fingerprint(testKey)
	long.Tokens[9_999] = 1
	if was.Check(long.Fingerprint(testKey)) == nil {
		t.Error("the last of many tokens does not count")
	}
}

func TestProblemsTravel(t *testing.T) {
	for code, sentinel := range errorOf {
		if sentinel == nil {
			continue
		}
		p := ProblemOf(sentinel)
		if p.Code != Code(code) || !errors.Is(p.Err(), sentinel) {
			t.Errorf("%v: %+v, %v", sentinel, p, p.Err())
		}
		w := fields.Writer{}
		p.each(fields.Writing(&w))
		var got Problem
		r := fields.Reader{B: w.B}
		got.each(fields.Reading(&r))
		if diff := cmp.Diff(p, got); diff != "" || whole(&r, "problem") != nil {
			t.Errorf("%v: %s", sentinel, diff)
		}
	}
	if p := ProblemOf(errors.New("anything")); p.None() || p.Err() == nil {
		t.Errorf("an unknown error is none: %+v", p)
	}
	if p := (Problem{Code: 200, Text: "of a later build"}); !errors.Is(p.Err(), ErrUnable) {
		t.Errorf("%v", p.Err())
	}
}

// What another agent writes of a failure is kept in part only.
func TestProblemsAreCut(t *testing.T) {
	long := strings.Repeat("ä", 3000)
	sent := Problem{Code: codeOf(reshard.ErrIncompatible), Text: long[:maxProblemText]}
	for range maxDifferences {
		sent.Differences = append(sent.Differences, reshard.Difference{Field: long[:250], Src: long[:250], Dst: long[:250], Why: long[:250]})
	}
	var w fields.Writer
	sent.each(fields.Writing(&w))
	var told Problem
	r := fields.Reader{B: w.B}
	if told.each(fields.Reading(&r)); whole(&r, "problem") != nil {
		t.Fatal("a long problem cannot be read")
	}
	for name, p := range map[string]Problem{"told": told, "own": ProblemOf(&reshard.Incompatible{Differences: sent.Differences}), "text": ProblemOf(errors.New("a" + long))} {
		kept := len(p.Text)
		for _, d := range p.Differences {
			kept += len(d.Field) + len(d.Src) + len(d.Dst) + len(d.Why)
		}
		if kept > 2*maxProblemText || len(p.Err().Error()) > 2*maxProblemText || !utf8.ValidString(p.Text) {
			t.Errorf("%s: %d bytes are kept, and read %d", name, kept, len(p.Err().Error()))
		}
	}
	few := ProblemOf(&reshard.Incompatible{Differences: []reshard.Difference{{Field: "tp", Src: "1", Dst: "2", Why: "so"}, {Field: "dtype", Src: "a", Dst: "b"}}})
	if len(few.Differences) != 2 {
		t.Errorf("of two short differences %d are left", len(few.Differences))
	}
}
