package cache

import (
	"maps"
	"testing"
	"time"

	"meridian/keep/prefix"
	"meridian/prove/bench/load"
	"meridian/prove/replay/workload"
)

func at(second float64) time.Time { return time.UnixMicro(int64(second * 1e6)) }

// TestInTimeNothingIsFoundBeforeItIsComputed: a model that is given prompts at their first
// tokens has nothing for who is sent before, and all for who is sent later.
func TestInTimeNothingIsFoundBeforeItIsComputed(t *testing.T) {
	all := []workload.Request{short(10, 1, 2), short(10, 1, 2), short(10, 1, 2)}
	spans := []span{{at(0), at(5)}, {at(1), at(6)}, {at(5.5), at(7)}}
	for i, want := range []int{0, 0, 8} {
		if got := modelledInTime(all, 0, spans)[i]; got != want {
			t.Errorf("request %d finds %d tokens, not %d", i, got, want)
		}
	}
	if got := modelledInTime(all, 1, spans)[2]; got != 4 {
		t.Errorf("with room for one unit, %d tokens are found, not 4", got)
	}
}

// TestWhyTokensWereComputed: each token that a model has and that was computed is counted
// once, for the reason that the records give.
func TestWhyTokensWereComputed(t *testing.T) {
	kept := func(tokens int, end float64, outcome string) prefix.Record {
		return prefix.Record{Keep: true, Outcome: outcome, Tokens: tokens, EndedUnixUs: at(end).UnixMicro()}
	}
	found := func(reason string, end float64, parts ...prefix.Record) prefix.Record {
		r := prefix.Record{Reason: reason, Tokens: 10, EndedUnixUs: at(end).UnixMicro()}
		for _, p := range parts {
			r.Parts = append(r.Parts, p.Parts...)
		}
		return r
	}
	part := func(end int) prefix.Record {
		r := prefix.Record{}
		r.Parts = append(r.Parts, prefix.RecordPart{End: end})
		return r
	}
	first := func(records ...prefix.Record) asked {
		return asked{span: span{at(0), at(5)}, records: records}
	}
	second := func(sent float64, cached int, records ...prefix.Record) asked {
		return asked{span: span{at(sent), at(sent + 3)}, cached: cached, records: records}
	}
	for name, c := range map[string]struct {
		first, second asked
		prompt        int32
		want          Ends
		more          int64
	}{
		"all was found":            {first(kept(8, 6, "kept")), second(7, 8), 10, Ends{}, 0},
		"it is still computed":     {first(kept(8, 6, "kept")), second(4, 0, found("miss", 4)), 10, Ends{lossComputing: 8}, 0},
		"it is being kept":         {first(kept(8, 8, "kept")), second(7, 0, found("miss", 7)), 10, Ends{lossKeeping: 8}, 0},
		"it was dropped":           {first(kept(8, 6, "dropped")), second(7, 4, found("miss", 7)), 10, Ends{lossUnkept: 4}, 0},
		"less was kept":            {first(kept(4, 6, "kept")), second(7, 0, found("compute", 7)), 10, Ends{"compute": 4, lossUnkept: 4}, 0},
		"it is gone":               {first(kept(8, 6, "present")), second(7, 0, found("miss", 7)), 10, Ends{lossGone: 8}, 0},
		"none asked":               {first(kept(8, 6, "kept")), second(7, 4), 10, Ends{lossUnasked: 4}, 0},
		"an owner was late":        {first(kept(8, 6, "kept")), second(7, 0, found("late", 7)), 10, Ends{"late": 8}, 0},
		"it was found and not had": {first(kept(8, 6, "kept")), second(7, 0, found("miss", 7, part(4))), 10, Ends{lossUnused: 4, lossGone: 4}, 0},
		"the last token":           {first(kept(8, 6, "kept")), second(7, 4, found("", 7, part(4))), 8, Ends{lossRounding: 3}, 0},
		"the engine had more":      {first(), second(7, 9), 10, Ends{}, 1},
	} {
		all := []workload.Request{short(10, 1, 2), short(c.prompt, 1, 2)}
		lost, more := losses(all, modelled(all, 0), []asked{c.first, c.second})
		if !maps.Equal(lost, c.want) || more != c.more {
			t.Errorf("%s: lost %v, %d more, not %v and %d", name, lost, more, c.want, c.more)
		}
	}
}

// TestRecorder: what clients see is taken down by the request's number.
func TestRecorder(t *testing.T) {
	all, answered, ids := recorder(2)
	answered(load.Answer{Number: 1, ID: "b", Sent: at(1), First: at(2), Prompt: 10, Cached: 4})
	if ids[1] != "b" || ids[0] != "" || all[1].cached != 4 || all[1].span != (span{at(1), at(2)}) {
		t.Errorf("it is %+v, %v", all, ids)
	}
}

func TestStoredWeight(t *testing.T) {
	// Of 900 tokens 896 are fetched, and the others computed at 1 ms each.
	if got := storedWeight(900, 4+896*0.05, 900); got < 0.0499 || got > 0.0501 {
		t.Errorf("it is %v, not 0.05", got)
	}
	if got := storedWeight(128, 1, 128); got != 0 { // 64 are computed in any case
		t.Errorf("it is %v", got)
	}
}
