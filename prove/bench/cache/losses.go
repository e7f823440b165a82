package cache

import (
	"context"
	"slices"
	"time"

	"meridian/keep/prefix"
	"meridian/prove/bench/load"
	"meridian/prove/replay/workload"
	"meridian/see/history"
)

// Why tokens of a prompt were computed that the model without delay has.
const (
	lossComputing = "still computed" // no engine had computed them when the request was sent
	lossRounding  = "last piece"     // an engine computes the last token, and with it the unit
	lossUnkept    = "not kept"       // a Keep was dropped, or there was none
	lossKeeping   = "being kept"     // a Keep of them ended after the request had asked
	lossUnasked   = "not asked"      // too few for the engine to ask, or there is no store
	lossGone      = "not found"      // kept, and not there when it was asked for
	lossUnused    = "not fetched"    // found, and computed all the same
)

// asked is what a request did, as its client and the agent saw it.
type asked struct {
	span
	cached  int
	records []prefix.Record
}

// recorder takes down what clients see of each request.
func recorder(requests int) ([]asked, func(load.Answer), []string) {
	all, ids := make([]asked, requests), make([]string, requests)
	return all, func(a load.Answer) {
		all[a.Number] = asked{span: span{a.Sent, a.First}, cached: a.Cached}
		ids[a.Number] = a.ID
	}, ids
}

// remember asks the agent what it did for each request.
func (w *world) remember(ctx context.Context, all []asked, ids []string) (err error) {
	for i := range all {
		if all[i].records, err = history.Get[[]prefix.Record](ctx, history.AdminSocket(w.cell.StateDir(), owner), history.PrefixPath(ids[i])); err != nil {
			return err
		}
	}
	return nil
}

// find is the request's question, if it asked.
func (a *asked) find() (r prefix.Record, has bool) {
	for _, r := range a.records {
		if !r.Keep {
			return r, true
		}
	}
	return r, false
}

// keptAt is when tokens up to an end were kept for sure, by a Keep of the request.
func (a *asked) keptAt(end int) (at time.Time, kept bool) {
	for _, r := range a.records {
		upTo := r.Tokens
		if r.Outcome == "part" && len(r.Parts) > 0 {
			upTo = r.Parts[len(r.Parts)-1].End
		}
		if !r.Keep || upTo < end || !slices.Contains([]string{"kept", "part", "present"}, r.Outcome) {
			continue
		}
		if t := time.UnixMicro(r.EndedUnixUs); !kept || t.Before(at) {
			at, kept = t, true
		}
	}
	return at, kept
}

// losses says for each reason how many tokens were computed that a model has, and how many
// were not that it has not: those of the engines' own memory.
func losses(all []workload.Request, model []int, did []asked) (lost Ends, more int64) {
	lost = make(Ends)
	for i := range all {
		q := &all[i]
		more += int64(max(0, did[i].cached-model[i]))
		unit := int(q.PrefixTokens)
		for at := did[i].cached; at < model[i]; {
			end := min((at/unit+1)*unit, model[i])
			lost[reason(all, did, i, at/unit)] += int64(end - at)
			at = end
		}
	}
	return lost, more
}

// reason is why a unit of a prompt was computed.
func reason(all []workload.Request, did []asked, i, unit int) string {
	q, a := &all[i], &did[i]
	end := (unit + 1) * int(q.PrefixTokens)
	find, has := a.find()
	when := a.sent
	if has {
		when = time.UnixMicro(find.EndedUnixUs)
	}
	computed, kept, keeping := false, false, false
	for j := range all {
		if units := wholeUnits(&all[j]); j == i || unit >= len(units) || units[unit] != q.Prefix[unit] {
			continue
		}
		computed = computed || did[j].first.Before(a.sent)
		if at, has := did[j].keptAt(end); has {
			kept = kept || at.Before(when)
			keeping = true
		}
	}
	switch {
	case end >= int(q.Prompt):
		return lossRounding
	case !computed:
		return lossComputing
	case !has:
		return lossUnasked
	case find.Present+find.InParts() >= end && find.InParts() > 0:
		return lossUnused
	case !keeping:
		return lossUnkept
	case !kept:
		return lossKeeping
	case find.Reason == "miss" || find.Reason == "":
		return lossGone
	}
	return find.Reason
}
