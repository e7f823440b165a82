package protocol

import (
	"meridian/internal/fields"
	"meridian/keep/store/master"
	"meridian/kv"
)

// What clients and owners ask of the master, and what the master answers.

// Where asks the master who has the keys of these hashes. It is answered by Owners.
type Where struct{ Hashes []uint64 }

func (*Where) kind() uint8           { return 19 }
func (m *Where) each(c fields.Codec) { eachHash(c, MaxKeys, &m.Hashes) }

func eachHash(c fields.Codec, most int, hashes *[]uint64) {
	fields.List(c, most, hashes, func(h *uint64) { c.Uint(h) })
}

// Owners is who has them, one entry for each; "" where no owner has.
type Owners struct{ Names []string }

func (*Owners) kind() uint8 { return 20 }

func (m *Owners) each(c fields.Codec) {
	fields.List(c, MaxKeys, &m.Names, func(name *string) { c.Text(maxName, name) })
}

// Forget asks the master who has a key that is to be removed. It is answered by
// Owners with that one, by Owners with "" when the key is gone by that, or by a
// Reply with a problem.
type Forget struct{ Hash uint64 }

func (*Forget) kind() uint8           { return 21 }
func (m *Forget) each(c fields.Codec) { c.Uint(&m.Hash) }

// Renew, Answer, Keys and Claim are those of package master.
type (
	Renew  struct{ master.Renew }
	Answer struct{ master.Answer }
	Keys   struct{ master.Keys }
	Claim  struct{ master.Claim }
)

func (*Renew) kind() uint8 { return 22 }

func (m *Renew) each(c fields.Codec) {
	c.Text(maxName, &m.Owner)
	c.ID(&m.Incarnation)
	c.Uint(&m.Term, &m.Seq, &m.Oldest, &m.Dropped)
}

// MaxLease is the longest lease that an owner believes in.
const MaxLease = kv.Minute

func (*Answer) kind() uint8 { return 23 }

func (m *Answer) each(c fields.Codec) {
	c.Uint(&m.Term, &m.Seq)
	fields.Enum(c, &m.Verdict)
	fields.UpTo(c, uint64(MaxLease), &m.Length)
	c.Flag(&m.All)
	eachHash(c, master.MaxGiven, &m.Keys)
}

func (*Keys) kind() uint8 { return 24 }

func (m *Keys) each(c fields.Codec) {
	c.Text(maxName, &m.Owner)
	c.ID(&m.Incarnation)
	c.Uint(&m.Term, &m.Seq, &m.Serial)
	fields.UpTo(c, master.MaxParts-1, &m.Part)
	c.Flag(&m.Last)
	eachHash(c, maxHashes, &m.Hashes)
}

func (*Claim) kind() uint8 { return 25 }

func (m *Claim) each(c fields.Codec) {
	c.Text(maxName, &m.Owner)
	c.ID(&m.Incarnation)
	c.Uint(&m.Term, &m.Serial, &m.Oldest, &m.Hash)
}

// Claimed answers a Claim of a term.
type Claimed struct {
	Term    uint64
	Problem Problem
}

func (*Claimed) kind() uint8 { return 26 }

func (m *Claimed) each(c fields.Codec) {
	c.Uint(&m.Term)
	m.Problem.each(c)
}

// Dropped tells the master of keys that are free again, each with the serial of
// that word. It is answered by Heard.
type Dropped struct {
	Owner       string
	Incarnation kv.ID
	Term        uint64
	Oldest      uint64
	Drops       []Drop
}

// Drop is one of them.
type Drop struct{ Hash, Serial uint64 }

func (*Dropped) kind() uint8 { return 27 }

func (m *Dropped) each(c fields.Codec) {
	c.Text(maxName, &m.Owner)
	c.ID(&m.Incarnation)
	c.Uint(&m.Term, &m.Oldest)
	fields.List(c, maxHashes, &m.Drops, func(d *Drop) { c.Uint(&d.Hash, &d.Serial) })
}

// DroppedAck answers Dropped.
type DroppedAck struct{ Term uint64 }

func (*DroppedAck) kind() uint8           { return 28 }
func (m *DroppedAck) each(c fields.Codec) { c.Uint(&m.Term) }
