package placement

import "testing"

// What people and their scripts read in X-Meridian-Placement and in records.
func TestReasonsForPeople(t *testing.T) {
	for want, r := range map[string]Reason{
		"several answers at once":              {Because: SeveralAnswers},
		"short, 7 tokens":                      {Because: Short, Tokens: 7},
		"cached, 700 of 768 tokens":            {Because: Cached, Tokens: 768, Held: 700},
		"no prefill engine":                    {Because: NoPrefillEngine},
		"the decode engine is the best for it": {Because: DecodeIsBest},
		"failed lately, nobody else is there":  {Because: FailedLately},
		"the only one":                         {Because: OnlyOne},
		"prefix 512/768":                       {Because: HoldsPrefix, Tokens: 768, Held: 512},
		"prefix 768/768 by its events":         {Because: HoldsPrefix, Tokens: 768, Held: 800, Told: true},
		"least loaded":                         {Because: LeastLoaded},
		"equal, drawn":                         {Because: Drawn},
		"as before":                            {Because: AsBefore},
		"stored, 512 of 768 tokens":            {Because: Stored, Tokens: 768, Held: 512},
		"stored 768/768":                       {Because: Fetches, Tokens: 768, Held: 800},
		"computing, 512 of 768 tokens":         {Because: Coming, Tokens: 768, Held: 512},
		"computing 768/768":                    {Because: Computes, Tokens: 768, Held: 800},
		"decode engines are full":              {Because: DecodeIsFull},
		"full lately, no other is there":       {Because: TookNoMore},
		"has 3 to do, not 9":                   {Because: RunsLess, Tokens: 9, Held: 3},
		"Because(0)":                           {},
	} {
		if got := r.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	c := Choice{Decode: "d1", PrefillWhy: Reason{Because: Short, Tokens: 7}, DecodeWhy: Reason{Because: LeastLoaded}}
	if want := "prefill=none (short, 7 tokens), decode=d1 (least loaded)"; c.String() != want {
		t.Errorf("%q, want %q", c.String(), want)
	}
}
