package ledger

import (
	"fmt"
	"slices"
	"strings"
	"unicode"

	"meridian/internal/clip"
)

// Bounds of a record. Models, problems and reasons are words of clients and
// engines, and a ledger keeps thousands of records: it keeps of each word no
// more than this, from whichever room it comes.
const (
	maxText  = 1 << 10 // bytes, with the note that it was cut
	maxParts = 16      // legs of a record, and engines that held something; no request comes to more

	// MaxPrefix is how many numbers of a prompt's beginning are kept.
	MaxPrefix = 256
)

// bounded is the record as far as it is kept. The one that was given stays as
// it is.
func (r *Record) bounded() *Record {
	kept := *r
	for _, text := range []*string{&kept.ID, &kept.ClientID, &kept.Endpoint, &kept.Model, &kept.Placement, &kept.ForcedThinkEnd, &kept.Finish, &kept.Outcome, &kept.Problem} {
		*text = boundedText(*text)
	}
	if r.Trace != nil {
		trace := *r.Trace
		trace.ID, trace.Span, trace.Parent = boundedText(trace.ID), boundedText(trace.Span), boundedText(trace.Parent)
		kept.Trace = &trace
	}
	if r.Stored != nil {
		stored := *r.Stored
		kept.Stored = &stored
	}
	kept.Prefix = slices.Clone(r.Prefix[:min(len(r.Prefix), MaxPrefix)])
	kept.Held = slices.Clone(r.Held[:min(len(r.Held), maxParts)])
	for i := range kept.Held {
		kept.Held[i].Engine = boundedText(kept.Held[i].Engine)
	}
	kept.Moves = slices.Clone(r.Moves[:min(len(r.Moves), maxParts)])
	for i := range kept.Moves {
		m := &kept.Moves[i]
		for _, text := range []*string{&m.From, &m.To, &m.Why, &m.Placement, &m.KV} {
			*text = boundedText(*text)
		}
	}
	kept.Legs = slices.Clone(r.Legs[:min(len(r.Legs), maxParts)])
	for i := range kept.Legs {
		l := &kept.Legs[i]
		for _, text := range []*string{&l.Kind, &l.Engine, &l.Transfer, &l.Span, &l.KV, &l.KVReason, &l.Problem} {
			*text = boundedText(*text)
		}
	}
	return &kept
}

// boundedText is a text of at most maxText bytes that can be shown: what is
// longer is cut where a character ends, and says how long it was; a character
// that would move a terminal's cursor is replaced.
func boundedText(text string) string {
	if len(text) > maxText {
		text = clip.Text(text, maxText, fmt.Sprintf("… (cut, %d bytes)", len(text)))
	}
	if !strings.ContainsFunc(text, unicode.IsControl) {
		return text
	}
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, text)
}
