package handoff

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"strings"
	"testing"

	"meridian/internal/golden"
	"meridian/kv"
)

// ticketVector is a ticket and what it is made of. Other languages make the same
// bytes of the same ticket.
type ticketVector struct {
	About       string   `json:"about"`
	Key         string   `json:"key"`
	Transfer    string   `json:"transfer"`
	Home        string   `json:"home"`
	Incarnation string   `json:"incarnation"`
	Model       string   `json:"model"`
	Revision    string   `json:"revision"`
	Adapter     string   `json:"adapter"`
	Media       string   `json:"media"`
	Salt        string   `json:"salt"`
	Tokens      []uint32 `json:"tokens"`
	ExpiresUs   Instant  `json:"expires_us"`
	Ticket      string   `json:"ticket"`
}

func newTicketVector(about string, k Key, t Ticket, c Content) ticketVector {
	home := k.For(t.Home)
	t.Tokens, t.Fingerprint = len(c.Tokens), c.Fingerprint(home)
	return ticketVector{
		About: about, Key: hex.EncodeToString(home[:]), Transfer: hex.EncodeToString(t.Transfer[:]),
		Home: t.Home.Name, Incarnation: hex.EncodeToString(t.Home.Incarnation[:]),
		Model: c.Scope.Model, Revision: c.Scope.Revision, Adapter: c.Scope.Adapter, Media: c.Scope.Media, Salt: c.Scope.Salt,
		Tokens: c.Tokens, ExpiresUs: t.Expires, Ticket: hex.EncodeToString(t.Seal(k)),
	}
}

func TestGeneratedTickets(t *testing.T) {
	scope := kv.Scope{Model: "small", Revision: "main", Adapter: "poet", Media: "image-1", Salt: "tenant-7"}
	counting := func(n int) []uint32 {
		tokens := make([]uint32, n)
		for i := range tokens {
			tokens[i] = uint32(i)
		}
		return tokens
	}
	ticket := Ticket{Transfer: kv.ID{1, 15: 2}, Home: kv.Member{Name: "prefill", Incarnation: kv.ID{3, 15: 4}}, Expires: 30 * Second}
	named := func(name string, expires Instant) Ticket {
		return Ticket{Transfer: kv.ID{5}, Home: kv.Member{Name: name, Incarnation: kv.ID{6}}, Expires: expires}
	}
	vectors := []ticketVector{
		newTicketVector("everything is said", Key{1, 31: 9}, ticket, Content{scope, counting(8)}),
		newTicketVector("another cell's key", Key{2, 31: 9}, ticket, Content{scope, counting(8)}),
		newTicketVector("nothing but one token", Key{1}, named("p", 0), Content{Tokens: []uint32{0}}),
		newTicketVector("the largest token", Key{1}, named("p", 1), Content{kv.Scope{Model: "m"}, []uint32{1<<32 - 1}}),
		newTicketVector("a prompt of several pieces", Key{1}, named("p", 128), Content{kv.Scope{Model: "m"}, counting(1100)}),
		newTicketVector("names beyond ASCII", Key{1}, named("préfill-東", 16383), Content{kv.Scope{Model: "modèle", Salt: "塩"}, counting(3)}),
		newTicketVector("the longest name", Key{1}, named(strings.Repeat("n", 255), 16384), Content{kv.Scope{Model: "m"}, counting(3)}),
		newTicketVector("one that does not expire", Key{1}, named("p", Never), Content{kv.Scope{Model: "m"}, counting(3)}),
	}
	var lines [][]byte
	for _, v := range vectors {
		line, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, line)
	}
	text := append([]byte("[\n"), bytes.Join(lines, []byte(",\n"))...)
	golden.File(t, "../../../testdata/ticket/tickets.json", append(text, "\n]\n"...))
}
