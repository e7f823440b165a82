package placement

import "testing"

// What people and their scripts read in X-Meridian-Placement and in records.
func TestReasonsForPeople(t *testing.T) {
	for want, r := range map[string]Reason{
		"several answers at once":              {Kind: SeveralAnswers},
		"short, 7 tokens":                      {Kind: Short, Tokens: 7},
		"cached, 700 of 768 tokens":            {Kind: Cached, Tokens: 768, Held: 700},
		"no prefill engine":                    {Kind: NoPrefillEngine},
		"the decode engine is the best for it": {Kind: DecodeIsBest},
		"failed lately, no other is there":     {Kind: FailedLately},
		"the only one":                         {Kind: OnlyOne},
		"prefix 512/768":                       {Kind: HoldsPrefix, Tokens: 768, Held: 512},
		"prefix 768/768 by its events":         {Kind: HoldsPrefix, Tokens: 768, Held: 800, Told: true},
		"least loaded":                         {Kind: LeastLoaded},
		"equal, drawn":                         {Kind: Drawn},
		"as before":                            {Kind: AsBefore},
		"stored, 512 of 768 tokens":            {Kind: Stored, Tokens: 768, Held: 512},
		"stored 768/768":                       {Kind: Fetches, Tokens: 768, Held: 800},
		"computing, 512 of 768 tokens":         {Kind: InFlightHere, Tokens: 768, Held: 512},
		"computing 768/768":                    {Kind: Computes, Tokens: 768, Held: 800},
		"decode engines are full":              {Kind: DecodeIsFull},
		"full lately, no other is there":       {Kind: TookNoMore},
		"has 3 to do, not 9":                   {Kind: RunsLess, Tokens: 9, Held: 3},
		"Because(0)":                           {},
	} {
		if got := r.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	c := Choice{Decode: "d1", PrefillWhy: Reason{Kind: Short, Tokens: 7}, DecodeWhy: Reason{Kind: LeastLoaded}}
	if want := "prefill=none (short, 7 tokens), decode=d1 (least loaded)"; c.String() != want {
		t.Errorf("%q, want %q", c.String(), want)
	}
}
