package prefix

import (
	"fmt"
	"strings"
	"time"

	"meridian/kv"
)

// Record is what came of one Find or Keep, for people who ask what became of a request. It
// has neither tokens nor a salt.
type Record struct {
	// Keep: it is of a Keep, else of a Find.
	Keep   bool   `json:"keep,omitempty"`
	Engine string `json:"engine"`
	// Request is what the engine called the request.
	Request string `json:"request,omitempty"`
	// Transfer is the Keep's own. The hand-offs that brought it have others.
	Transfer kv.ID `json:"transfer,omitzero"`
	// Tenant is the name that the cell gives to the requests of one salt.
	Tenant string `json:"tenant"`
	// Outcome is one of FindOutcomes or of KeepOutcomes.
	Outcome string `json:"outcome"`
	// Reason is why a Find did not find more, as Found has it, or the problem of a Keep.
	Reason string `json:"reason,omitempty"`
	// Tokens is how many the engine asked for, or let be kept.
	Tokens int `json:"tokens"`
	// Present is how many of them the engine of a Find had, or how many were kept before a
	// Keep, as far as it came to ask.
	Present int `json:"present,omitempty"`
	// Parts are what was found, or what an owner took.
	Parts []RecordPart `json:"parts,omitempty"`
	// EndedUnixUs is when it ended, in microseconds since 1970, and Micros how long it took.
	EndedUnixUs int64 `json:"ended_unix_us"`
	Micros      int64 `json:"micros"`
}

// RecordPart is tokens Start to End at an owner. Transfer is the hand-off that brings what
// was found, or brought what was kept; none where that took several.
type RecordPart struct {
	Owner string `json:"owner"`
	Start int    `json:"start"`
	End   int    `json:"end"`
	// From is in which tiers the owner had what was found.
	From     []TierPart `json:"from,omitempty"`
	Transfer kv.ID      `json:"transfer,omitzero"`
}

// maxReason is how much of a problem is kept.
const maxReason = 256

// record tells of a Find or Keep that has ended. Mu is not held.
func (c *Cache) record(r Record, began time.Time) {
	if c.options.Ended == nil {
		return
	}
	now := c.options.Clock.Now()
	r.EndedUnixUs, r.Micros = now.UnixMicro(), now.Sub(began).Microseconds()
	c.options.Ended(&r)
}

func (c *Cache) recordFind(f Find, found Found, began time.Time) {
	r := Record{
		Engine: f.Engine, Request: f.Request, Tenant: c.names.TenantOf(f.Content.Scope.Salt), Outcome: outcomeOf(found), Reason: found.Reason,
		Tokens: len(f.Content.Tokens), Present: f.Present,
	}
	for _, s := range found.Segments {
		part := RecordPart{Owner: s.Owner, Start: s.Start, End: s.End, From: s.From}
		ticket, _ := c.options.Transceiver.OpenTicket(s.Ticket, nil)
		part.Transfer = ticket.Transfer // a ticket that is none has no transfer
		r.Parts = append(r.Parts, part)
	}
	c.record(r, began)
}

// recordKeep tells of a Keep.
func (c *Cache) recordKeep(k *keeping, outcome string, why error) {
	r := Record{
		Keep: true, Engine: k.Engine, Request: k.Request, Transfer: k.Transfer, Tenant: c.names.TenantOf(k.Content.Scope.Salt), Outcome: outcome,
		Tokens: len(k.Content.Tokens), Present: k.present, Parts: k.parts,
	}
	if why != nil {
		r.Reason = fmt.Sprintf("%.*s", maxReason, why.Error())
	}
	c.record(r, k.began)
}

// InParts is how many tokens the parts have.
func (r *Record) InParts() (tokens int) {
	for _, p := range r.Parts {
		tokens += p.End - p.Start
	}
	return tokens
}

// findReasons say why a Find did not find more.
var findReasons = map[string]string{
	"short":   "the prompt is shorter than what is kept of one",
	"miss":    "no owner in the cell keeps what follows",
	"compute": "the engine computes it sooner than it could be fetched",
	"late":    "an owner did not answer in time",
	"busy":    "there was too much to do",
	"refused": "an owner refused",
	"unknown": "the cell's directory of what is kept did not answer in time",
}

// keepOutcomes say what came of a Keep.
var keepOutcomes = map[string]string{
	"kept":      "kept",
	"part":      "kept in part",
	"present":   "all of it was kept already",
	"short":     "nothing: it is shorter than a piece that is kept",
	"dropped":   "dropped: as much as may be was on its way already",
	"declined":  "not offered",
	"full":      "dropped: no owner had room",
	"busy":      "dropped: owners had too much to do, or did not answer",
	"refused":   "refused by its owner",
	"unknown":   "dropped: what others keep was not known in time",
	"failed":    "failed on its way to its owner",
	"withdrawn": "given up: its engine took it back, or has left",
}

// String tells it to a person.
func (r *Record) String() string {
	var b strings.Builder
	what := func(words map[string]string, word string) string {
		if text, known := words[word]; known {
			return text
		}
		return word
	}
	took := fmt.Sprintf("%.3f ms", float64(r.Micros)/1000)
	if r.Keep {
		fmt.Fprintf(&b, "shared cache, for engine %s: keep of %d tokens, %s", r.Engine, r.Tokens, what(keepOutcomes, r.Outcome))
		if r.Outcome != "dropped" && r.Reason != "" {
			fmt.Fprintf(&b, " (%s)", r.Reason)
		}
		if r.Present > 0 {
			fmt.Fprintf(&b, ", %d were there before", r.Present)
		}
		fmt.Fprintf(&b, ", in %s\n", took)
	} else {
		fmt.Fprintf(&b, "shared cache, for engine %s: found %d of %d tokens", r.Engine, r.InParts(), max(0, r.Tokens-r.Present))
		if r.Present > 0 {
			fmt.Fprintf(&b, " behind %d that it had", r.Present)
		}
		fmt.Fprintf(&b, ", in %s", took)
		if r.Reason != "" {
			not := "not more, because "
			if len(r.Parts) == 0 {
				not = ""
			}
			fmt.Fprintf(&b, "; %s%s", not, what(findReasons, r.Reason))
		}
		b.WriteByte('\n')
	}
	for _, p := range r.Parts {
		fmt.Fprintf(&b, "  at owner  %s: tokens %d to %d", p.Owner, p.Start, p.End)
		for _, f := range p.From {
			fmt.Fprintf(&b, ", %d in %s (%.3f ms)", f.Tokens, f.Tier, float64(f.Micros)/1000)
		}
		if p.Transfer != (kv.ID{}) {
			fmt.Fprintf(&b, ", hand-off %s", p.Transfer)
		}
		b.WriteByte('\n')
	}
	return b.String()
}
