package master

import "meridian/kv"

// Renew asks for a lease.
type Renew struct {
	Owner       string
	Incarnation kv.ID
	Term        uint64
	Seq         uint64
	Oldest      uint64 // as in Claim
	// Dropped says that the owner has dropped what the master asked it to, by the
	// answer of that number.
	Dropped uint64
}

// Verdict is what a master answers to Renew.
type Verdict uint8

const (
	// Granted: the owner may answer for Length.
	Granted Verdict = iota
	// Tell: the owner must tell its keys first.
	Tell
	// Drop: the owner must drop keys first, Keys or all of them, and say so.
	Drop
	// OldTerm: there is another master, of Term.
	OldTerm
	// NotYet: the master is busy with something that has to come first.
	NotYet
)

var verdicts = [...]string{"granted", "tell", "drop", "old term", "not yet"}

func (v Verdict) String() string {
	if int(v) >= len(verdicts) {
		return "unknown verdict"
	}
	return verdicts[v]
}

// Answer is the master's to Renew.
type Answer struct {
	Term    uint64
	Seq     uint64
	Verdict Verdict
	Length  kv.Instant
	All     bool
	Keys    []uint64
}

// Keys is a part of what an owner holds, by hash. The parts of one telling are
// numbered from 0 and may come in any order.
type Keys struct {
	Owner       string
	Incarnation kv.ID
	Term        uint64
	Seq         uint64 // of the answer that asked for it
	Serial      uint64
	Part        uint32
	Last        bool
	Hashes      []uint64
}

// Claim asks for a key, or says that it was dropped.
type Claim struct {
	Owner       string
	Incarnation kv.ID
	Term        uint64
	// Serial orders what one owner says of its keys: messages may overtake one
	// another, and come twice.
	Serial uint64
	// Oldest is the first serial of a claim that the owner still waits for. Claims
	// before are given up: one that comes late, or twice, counts for nothing.
	Oldest uint64
	Hash   uint64
}
