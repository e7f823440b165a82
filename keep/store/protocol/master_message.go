package protocol

import (
	"meridian/internal/fields"
	"meridian/keep/store/master"
	"meridian/kv"
)

// What clients and owners ask of the master, and what the master answers.

// Where asks the master who has the keys of these hashes. It is answered by Owners.
type Where struct{ Hashes []uint64 }

func (*Where) kind() uint8               { return 19 }
func (m *Where) append(w *fields.Writer) { appendHashes(w, m.Hashes) }
func (m *Where) parse(r *fields.Reader)  { m.Hashes = parseHashes(r, MaxKeys) }

func appendHashes(w *fields.Writer, hashes []uint64) {
	w.Count(len(hashes))
	for _, h := range hashes {
		w.Uint(h)
	}
}

func parseHashes(r *fields.Reader, most int) []uint64 {
	hashes := make([]uint64, r.Count(most))
	for i := range hashes {
		hashes[i] = r.Uint()
	}
	return hashes
}

// Owners is who has them, one entry for each; "" where no owner has.
type Owners struct{ Names []string }

func (*Owners) kind() uint8 { return 20 }

func (m *Owners) append(w *fields.Writer) {
	w.Count(len(m.Names))
	for _, name := range m.Names {
		w.Text(name)
	}
}

func (m *Owners) parse(r *fields.Reader) {
	for range r.Count(MaxKeys) {
		m.Names = append(m.Names, r.Text(maxName))
	}
}

// Forget asks the master who has a key that is to be removed. It is answered by
// Owners with that one, by Owners with "" when the key is gone by that, or by a
// Reply with a problem.
type Forget struct{ Hash uint64 }

func (*Forget) kind() uint8               { return 21 }
func (m *Forget) append(w *fields.Writer) { w.Uint(m.Hash) }
func (m *Forget) parse(r *fields.Reader)  { m.Hash = r.Uint() }

// Renew, Answer, Keys and Claim are those of package master.
type (
	Renew  struct{ master.Renew }
	Answer struct{ master.Answer }
	Keys   struct{ master.Keys }
	Claim  struct{ master.Claim }
)

func (*Renew) kind() uint8 { return 22 }

func (m *Renew) append(w *fields.Writer) {
	w.Text(m.Owner)
	w.ID(m.Incarnation)
	w.Uint(m.Term)
	w.Uint(m.Seq)
	w.Uint(m.Oldest)
	w.Uint(m.Dropped)
}

func (m *Renew) parse(r *fields.Reader) {
	m.Owner, m.Incarnation, m.Term, m.Seq, m.Oldest, m.Dropped = r.Text(maxName), r.ID(), r.Uint(), r.Uint(), r.Uint(), r.Uint()
}

// MaxLease is the longest lease that an owner believes in.
const MaxLease = kv.Minute

func (*Answer) kind() uint8 { return 23 }

func (m *Answer) append(w *fields.Writer) {
	w.Uint(m.Term)
	w.Uint(m.Seq)
	w.U8(uint8(m.Verdict))
	w.Uint(uint64(m.Length))
	w.Flag(m.All)
	appendHashes(w, m.Keys)
}

func (m *Answer) parse(r *fields.Reader) {
	m.Term, m.Seq, m.Verdict = r.Uint(), r.Uint(), master.Verdict(r.U8())
	m.Length, m.All = kv.Instant(r.UintTo(uint64(MaxLease))), r.Flag()
	m.Keys = parseHashes(r, master.MaxGiven)
}

func (*Keys) kind() uint8 { return 24 }

func (m *Keys) append(w *fields.Writer) {
	w.Text(m.Owner)
	w.ID(m.Incarnation)
	w.Uint(m.Term)
	w.Uint(m.Seq)
	w.Uint(m.Serial)
	w.Uint(uint64(m.Part))
	w.Flag(m.Last)
	appendHashes(w, m.Hashes)
}

func (m *Keys) parse(r *fields.Reader) {
	m.Owner, m.Incarnation, m.Term, m.Seq, m.Serial = r.Text(maxName), r.ID(), r.Uint(), r.Uint(), r.Uint()
	m.Part, m.Last, m.Hashes = uint32(r.UintTo(master.MaxParts-1)), r.Flag(), parseHashes(r, maxHashes)
}

func (*Claim) kind() uint8 { return 25 }

func (m *Claim) append(w *fields.Writer) {
	w.Text(m.Owner)
	w.ID(m.Incarnation)
	w.Uint(m.Term)
	w.Uint(m.Serial)
	w.Uint(m.Oldest)
	w.Uint(m.Hash)
}

func (m *Claim) parse(r *fields.Reader) {
	m.Owner, m.Incarnation, m.Term = r.Text(maxName), r.ID(), r.Uint()
	m.Serial, m.Oldest, m.Hash = r.Uint(), r.Uint(), r.Uint()
}

// Claimed answers a Claim of a term.
type Claimed struct {
	Term    uint64
	Problem Problem
}

func (*Claimed) kind() uint8 { return 26 }

func (m *Claimed) append(w *fields.Writer) {
	w.Uint(m.Term)
	m.Problem.append(w)
}

func (m *Claimed) parse(r *fields.Reader) {
	m.Term = r.Uint()
	m.Problem.parse(r)
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

func (m *Dropped) append(w *fields.Writer) {
	w.Text(m.Owner)
	w.ID(m.Incarnation)
	w.Uint(m.Term)
	w.Uint(m.Oldest)
	w.Count(len(m.Drops))
	for _, d := range m.Drops {
		w.Uint(d.Hash)
		w.Uint(d.Serial)
	}
}

func (m *Dropped) parse(r *fields.Reader) {
	m.Owner, m.Incarnation, m.Term, m.Oldest = r.Text(maxName), r.ID(), r.Uint(), r.Uint()
	for range r.Count(maxHashes) {
		m.Drops = append(m.Drops, Drop{r.Uint(), r.Uint()})
	}
}

// DroppedAck answers Dropped.
type DroppedAck struct{ Term uint64 }

func (*DroppedAck) kind() uint8               { return 28 }
func (m *DroppedAck) append(w *fields.Writer) { w.Uint(m.Term) }
func (m *DroppedAck) parse(r *fields.Reader)  { m.Term = r.Uint() }
