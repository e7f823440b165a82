package peerquery

import (
	"errors"
	"fmt"

	"meridian/internal/clip"
	"meridian/internal/fields"
)

// Messages begin with
//
//	"MRDQ" │ u8 version of the form │ u8 kind │ varint number │ the kind's own
//
// An answer has the number of its question.
const (
	Magic       = "MRDQ"
	formVersion = 1

	questionKind = 1
	answerKind   = 2
)

// Bounds of what is said.
const (
	// MaxPageBytes is how much of records one answer carries, MaxRecords how many.
	MaxPageBytes = 128 << 10
	MaxRecords   = 512
	maxBeginning = 256
	maxProblem   = 1 << 10
)

// Kind is what is asked about.
type Kind uint8

// The kinds. A number keeps its meaning.
const (
	About     Kind = 1 // the agent itself: one record, as it is now
	Transfers Kind = 2
	HandOffs  Kind = 3
	Requests  Kind = 4 // of a gateway
	Keepers   Kind = 5 // engines that keep and find prefixes, as they are now
	Uses      Kind = 6 // what came of that by model and tenant, and what is kept
	Objects   Kind = 7 // pieces of prefixes that are kept, by their keys
	Prefixes  Kind = 8 // what came of each Find and Keep of requests
)

// Question asks for records of one kind, in the order in which they came.
type Question struct {
	Kind Kind
	// Beginning is how the id of a record begins, or what a client called its
	// request; empty asks for all.
	Beginning string
	// After is the number of the first record that is wanted.
	After uint64
	// Most is how many are wanted; 0 means MaxRecords.
	Most int
}

// Answer is a page of records.
type Answer struct {
	Records [][]byte // each one JSON object
	// First is the number from which on was looked: more than was asked for where
	// records are gone. Next is where to go on, and End one more than the last has.
	First, Next, End uint64
	// Problem says why there is no answer.
	Problem string
}

// More reports whether there is another page.
func (a *Answer) More() bool { return a.Next < a.End }

// ErrMessage means that bytes from a peer are no message.
var ErrMessage = errors.New("peerquery: bad message")

func head(kind uint8, number uint64) fields.Writer {
	w := fields.Writer{B: []byte(Magic)}
	w.U8(formVersion)
	w.U8(kind)
	w.Uint(number)
	return w
}

func appendQuestion(number uint64, q Question) []byte {
	w := head(questionKind, number)
	w.U8(uint8(q.Kind))
	w.Text(q.Beginning)
	w.Uint(q.After)
	w.Count(q.Most)
	return w.B
}

func appendAnswer(number uint64, a Answer) []byte {
	w := head(answerKind, number)
	w.Text(clip.Text(a.Problem, maxProblem, "…"))
	w.Uint(a.First)
	w.Uint(a.Next)
	w.Uint(a.End)
	w.Count(len(a.Records))
	for _, r := range a.Records {
		w.Bytes(r)
	}
	return w.B
}

// parse reads a message from a stranger: one of both is nil. Records are parts of the
// input.
func parse(b []byte) (number uint64, q *Question, a *Answer, err error) {
	bad := func(why string, args ...any) (uint64, *Question, *Answer, error) {
		return 0, nil, nil, fmt.Errorf("%w: %s", ErrMessage, fmt.Sprintf(why, args...))
	}
	if len(b) < len(Magic) || string(b[:len(Magic)]) != Magic {
		return bad("another magic")
	}
	r := fields.Reader{B: b[len(Magic):]}
	if form := r.U8(); form != formVersion {
		return bad("form %d, this build reads %d", form, formVersion)
	}
	kind := r.U8()
	number = r.Uint()
	switch kind {
	case questionKind:
		q = &Question{Kind: Kind(r.U8()), Beginning: r.Text(maxBeginning), After: r.Uint(), Most: int(r.UintTo(MaxRecords))}
	case answerKind:
		a = parseAnswer(&r)
	default:
		return bad("kind %d", kind)
	}
	if !r.End() {
		return bad("a field is missing, too large or left over")
	}
	return number, q, a, nil
}

func parseAnswer(r *fields.Reader) *Answer {
	a := &Answer{Problem: r.Text(maxProblem), First: r.Uint(), Next: r.Uint(), End: r.Uint()}
	total := 0
	for range r.Count(MaxRecords) {
		record := r.Bytes(MaxPageBytes)
		if total += len(record); total > MaxPageBytes || r.Failed() {
			r.Fail()
			break
		}
		a.Records = append(a.Records, record)
	}
	if a.First > a.Next || a.Next > a.End {
		r.Fail()
	}
	return a
}
