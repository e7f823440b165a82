package history

import (
	"fmt"
	"net/url"
	"slices"
	"strings"

	"meridian/keep/prefix"
	"meridian/keep/prefix/keys"
	"meridian/kv"
	"meridian/move/agent/peerquery"
	"meridian/move/transceiver/handoff"
)

// minPrefixText is how much of a request's name must be said.
const minPrefixText = 8

// isOfPrefix tells whether a Find or a Keep is meant: by its request, of whose name
// engines may make a longer one (vLLM: cmpl-ID-0), or by a hand-off of it.
func isOfPrefix(r *prefix.Record, text string) bool {
	if len(text) < minPrefixText {
		return false
	}
	if strings.Contains(r.Request, text) || r.Keep && r.Transfer.String() == text {
		return true
	}
	return slices.ContainsFunc(r.Parts, func(p prefix.RecordPart) bool { return p.Transfer.String() == text })
}

// PrefixesOf are those of a request or a hand-off that the agent has in memory.
func (r *Records) PrefixesOf(text string) (found []*prefix.Record) {
	kept, _, _ := r.prefixes.Since(0, keptRecords)
	for _, p := range kept {
		if isOfPrefix(p, text) {
			found = append(found, p)
		}
	}
	return found
}

// ofPrefix finds what a request or a hand-off found and kept.
func (b *agentBook) ofPrefix(q peerquery.Question) (peerquery.Answer, error) {
	if q.Beginning == "" {
		return page(q, b.Records.prefixes, nil), nil
	}
	records := b.Records.PrefixesOf(q.Beginning)
	if len(records) == 0 && len(q.Beginning) >= minPrefixText {
		b.mu.Lock()
		defer b.mu.Unlock()
		written, err := PrefixesIn(b.Records.options.Dir, q.Beginning)
		return peerquery.Found(q, written), err
	}
	return peerquery.Found(q, records), nil
}

// PrefixPath is where the admin socket shows what a request or a hand-off found and kept.
func PrefixPath(text string) string { return "/prefixes/" + url.PathEscape(text) }

// PrefixesIn looks for what a request or a hand-off found and kept in what agents of a
// state directory have written down, whether or not they run.
func PrefixesIn(stateDir, text string) ([]prefix.Record, error) {
	var found []prefix.Record
	err := readRecords(stateDir, prefixFiles, "", func(r *prefix.Record) {
		if isOfPrefix(r, text) && len(found) < maxGathered {
			found = append(found, *r)
		}
	})
	return found, err
}

// SamePrefix tells whether two records are of one Find or Keep.
func SamePrefix(a, b prefix.Record) bool {
	return a.Keep == b.Keep && a.Engine == b.Engine && a.Request == b.Request && a.EndedUnixUs == b.EndedUnixUs && a.Transfer == b.Transfer
}

// maxPartTiers is more than an owner has.
const maxPartTiers = 8

// canBePrefix refuses a record that no agent would make.
func canBePrefix(r *prefix.Record) bool {
	if len(r.Parts) > prefix.MaxSegments || r.Tokens < 0 || r.Present < 0 {
		return false
	}
	last := 0
	for _, p := range r.Parts {
		if p.Start < last || p.End < p.Start || p.End > r.Tokens || len(p.From) > maxPartTiers {
			return false
		}
		left := p.End - p.Start // of which tiers had some; a sum of theirs could wrap
		for _, f := range p.From {
			if f.Tokens < 0 || f.Tokens > left || !keys.IsTier(f.Tier) {
				return false
			}
			left -= f.Tokens
		}
		last = p.End
	}
	return true
}

// TellPrefix tells of a Find or Keep, and by the hand-offs that brought what was found when
// all of it was there.
func TellPrefix(r *prefix.Record, handOffs []handoff.Record) string {
	text := r.String()
	if r.Keep || len(r.Parts) == 0 {
		return text
	}
	var readyUs int64
	for _, p := range r.Parts {
		i := slices.IndexFunc(handOffs, func(h handoff.Record) bool {
			return h.Transfer == p.Transfer && h.As == handoff.Destination && h.Engine == r.Engine
		})
		switch {
		case i < 0:
			return text
		case handOffs[i].Problem != "":
			return text + "  fetched   no: " + handOffs[i].Problem + "\n"
		}
		readyUs = max(readyUs, handOffs[i].EndedUnixUs)
	}
	asked := r.EndedUnixUs - r.Micros
	return text + fmt.Sprintf("  fetched   ready %.3f ms after it was asked for\n", float64(max(0, readyUs-asked))/1000)
}

// fetchesOf are the hand-offs that brought what was found, a few.
func fetchesOf(all []prefix.Record) (ids []kv.ID) {
	for i := range all {
		for _, p := range all[i].Parts {
			if !all[i].Keep && p.Transfer != (kv.ID{}) && !slices.Contains(ids, p.Transfer) {
				ids = append(ids, p.Transfer)
			}
		}
	}
	return limited(ids, 8)
}
