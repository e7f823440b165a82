package keys_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"meridian/keep/prefix/keys"
)

func TestCut(t *testing.T) {
	for _, c := range []struct {
		owners string
		first  int
		want   string
	}{
		{"aaaa", 0, "a0-4"},
		{"aabb-a", 0, "a0-2 b2-4"},
		{"-aa", 0, ""},
		{"-aa", 1, "a1-3"},
		{"abcde", 0, "a0-1 b1-2 c2-3 d3-4"},
		{"abab", 2, "a2-3 b3-4"},
		{"", 0, ""},
		{"aa", 2, ""},
	} {
		var got []string
		for _, s := range keys.Cut(split(c.owners), c.first) {
			got = append(got, fmt.Sprintf("%s%d-%d", s.Owner, s.First, s.End))
		}
		if text := strings.Join(got, " "); text != c.want {
			t.Errorf("%s from %d on: %q, want %q", c.owners, c.first, text, c.want)
		}
	}
}

// Whatever owners answer, and in whatever order: what is found begins where it was looked
// for and has no gap, and every ticket is either found or given back, once.
func TestFindingLosesNoTicket(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		owners := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "c"}), 1, 12).Draw(t, "owners")
		stretches := keys.Cut(owners, 0)
		f := keys.NewFindMachine(stretches)
		var waiting []int
		for i := range stretches {
			waiting = append(waiting, i)
		}
		issued, back := map[string]keys.UnitRange{}, map[string]bool{}
		take := func(unused [][]byte) {
			for _, ticket := range unused {
				if _, is := issued[string(ticket)]; !is || back[string(ticket)] {
					t.Fatalf("ticket %q is given back, which is not there", ticket)
				}
				back[string(ticket)] = true
			}
		}
		expired := false
		for len(waiting) > 0 {
			n := rapid.IntRange(0, len(waiting)-1).Draw(t, "which")
			number := waiting[n]
			waiting = slices.Delete(waiting, n, n+1)
			switch rapid.IntRange(0, 5).Draw(t, "what") {
			case 0:
				take(f.Failed(number))
			case 1:
				ask, unused := f.Answered(number, &keys.FindAnswer{Verdict: keys.Missing, Have: rapid.IntRange(0, 5).Draw(t, "have")})
				take(unused)
				if ask {
					waiting = append(waiting, number)
				}
			case 2:
				expired = true
				take(f.Expire())
			default:
				ticket := fmt.Sprintf("ticket %d of %d", len(issued), number)
				issued[ticket] = f.At(number)
				_, unused := f.Answered(number, &keys.FindAnswer{Verdict: keys.Taken, Ticket: []byte(ticket)})
				take(unused)
			}
			if expired && !f.Over() {
				t.Fatal("it waits although its time is over")
			}
		}
		if !f.Over() {
			t.Fatal("it waits for no owner, and is not over")
		}
		found, why, late := f.Found()
		at := 0
		for _, g := range found {
			if was := issued[string(g.Ticket)]; g.First != at || was != g.UnitRange || back[string(g.Ticket)] {
				t.Fatalf("%+v is found after %d units; its ticket is of %+v, given back: %v", g.UnitRange, at, was, back[string(g.Ticket)])
			}
			at, back[string(g.Ticket)] = g.End, true
		}
		if len(back) != len(issued) {
			t.Fatalf("of %d tickets %d are found or given back", len(issued), len(back))
		}
		if all := stretches[len(stretches)-1].End; at < all && why == keys.Taken && !late {
			t.Fatalf("%d of %d units are found, and no owner said why", at, all)
		}
	})
}
