package peerquery

import (
	"encoding/json"
	"fmt"
)

// Page builds an answer from records in their order, within its bounds.
type Page struct {
	answer Answer
	most   int
	bytes  int
}

// NewPage begins an answer to q: records from number first on are looked at, and one
// more than the last has number end.
func NewPage(q Question, first, end uint64) *Page {
	most := q.Most
	if most <= 0 || most > MaxRecords {
		most = MaxRecords
	}
	return &Page{answer: Answer{First: first, Next: first, End: end}, most: most}
}

// Pass goes over a record that was not asked for.
func (p *Page) Pass() { p.answer.Next++ }

// Add takes a record, and reports whether it fitted: else the page is full. A record
// that is larger than any page is passed over, and said to be.
func (p *Page) Add(record any) (fitted bool) {
	if len(p.answer.Records) == p.most {
		return false
	}
	line, err := json.Marshal(record)
	if err == nil && len(line) > MaxPageBytes {
		err = fmt.Errorf("a record of %d bytes", len(line))
	}
	if err != nil {
		p.answer.Next++
		return true
	}
	if p.bytes+len(line) > MaxPageBytes {
		return false
	}
	p.bytes += len(line)
	p.answer.Records = append(p.answer.Records, line)
	p.answer.Next++
	return true
}

// Answer is what has been built.
func (p *Page) Answer() Answer { return p.answer }

// Found answers with a few records that were looked for by their id.
func Found[T any](q Question, records []T) Answer {
	p := NewPage(q, min(q.After, uint64(len(records))), uint64(len(records)))
	for _, r := range records[p.answer.First:] {
		if !p.Add(r) {
			break
		}
	}
	return p.Answer()
}
