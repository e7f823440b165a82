package cell

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// Names of attributes that lines about a request have, in every process.
const (
	attributeRequest   = "request"   // the gateway's id of it
	attributeClient    = "client"    // what its client calls it
	attributeTransfer  = "transfer"  // a hand-off that it took part in
	attributeTransfers = "transfers" // all of them
)

// MinIDDigits is how much of an id has to be given at least.
const MinIDDigits = 4

// maxCandidates is how many ids that begin alike are told.
const maxCandidates = 8

var wholeID = regexp.MustCompile(`[0-9a-f]{32}`)

// ErrAmbiguous means that several requests begin as was asked.
var ErrAmbiguous = errors.New("several requests begin so")

// ErrShort means that what was given of an id could be that of too many.
var ErrShort = fmt.Errorf("an id is told by %d of its digits at least", MinIDDigits)

// logFilter is what lines about one request have in common: its id and those of its
// hand-offs, as far as the lines that were read tell them.
type logFilter struct {
	asked    string
	requests map[string]bool
	ids      map[string]bool // that a line about it names one of
}

func newLogFilter(asked string) (*logFilter, error) {
	if len(asked) < MinIDDigits {
		return nil, fmt.Errorf("%q: %w", asked, ErrShort)
	}
	return &logFilter{asked: asked, requests: make(map[string]bool), ids: make(map[string]bool)}, nil
}

// learn takes from a line which ids are of the request.
func (t *logFilter) learn(l Line) {
	var request, transfer string
	var transfers []string
	isMeant := false
	for _, a := range attributesOf(l.written()) {
		switch a.key {
		case attributeRequest:
			request = a.value
		case attributeTransfer:
			transfer = a.value
		case attributeTransfers:
			transfers = wholeID.FindAllString(a.value, -1)
		case attributeClient:
			isMeant = a.value == t.asked
		}
	}
	switch {
	case request != "" && (isMeant || strings.HasPrefix(request, t.asked)):
		t.requests[request], t.ids[request] = true, true
		for _, id := range append(transfers, transfer) {
			if id != "" {
				t.ids[id] = true
			}
		}
	case strings.HasPrefix(transfer, t.asked):
		t.ids[transfer] = true
	}
}

// check refuses a beginning that several requests have.
func (t *logFilter) check() error {
	if len(t.requests) < 2 {
		return nil
	}
	found := slices.Sorted(maps.Keys(t.requests))
	more := ""
	if len(found) > maxCandidates {
		more = fmt.Sprintf(" and %d others", len(found)-maxCandidates)
		found = found[:maxCandidates]
	}
	return fmt.Errorf("%w with %q: %s%s", ErrAmbiguous, t.asked, strings.Join(found, ", "), more)
}

// names reports whether a line is about the request.
func (t *logFilter) names(l Line) bool {
	text := l.written()
	if len(t.ids) == 0 {
		return strings.Contains(text, t.asked) // of a program that has ids of its own form
	}
	for id := range t.ids {
		if strings.Contains(text, id) {
			return true
		}
	}
	return false
}
