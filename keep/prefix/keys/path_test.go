package keys_test

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"meridian/keep/prefix/keys"
	"meridian/kv"
)

// sights reads units of two letters: the owner, and m or d for its tier, x for none, s for
// silent; "--" is no owner.
func sights(text string) (all []keys.Availability) {
	for _, word := range strings.Fields(text) {
		u := keys.Availability{Bytes: 10, AgeSeconds: uint64(len(all))}
		if word != "--" {
			u.Owner = word[:1]
			u.Tier = map[byte]string{'m': "memory", 'd': "disk"}[word[1]]
			u.Silent = word[1] == 's'
		}
		all = append(all, u)
	}
	return all
}

func TestPathOf(t *testing.T) {
	for _, c := range []struct {
		units string
		known bool
		want  string
	}{
		{"", true, "0 short"},
		{"am am", true, "2 whole a/memory 0-2"},
		{"am ad bd --", true, "3 unknown a/memory 0-1 a/disk 1-2 b/disk 2-3"},
		{"-- am", true, "0 unknown"},
		{"am --", false, "1 master a/memory 0-1"},
		{"am ax am", true, "1 gone at a a/memory 0-1"},
		{"am bs bm", true, "1 silent at b a/memory 0-1"},
		{"am bm cm dm em", true, "4 pieces at e a/memory 0-1 b/memory 1-2 c/memory 2-3 d/memory 3-4"},
		{"am ad am bm cm dm", true, "6 whole a/memory 0-1 a/disk 1-2 a/memory 2-3 b/memory 3-4 c/memory 4-5 d/memory 5-6"},
	} {
		p := keys.PathOf(sights(c.units), c.known)
		got := fmt.Sprint(p.Units, " ", p.End)
		if p.At != "" {
			got += " at " + p.At
		}
		for _, piece := range p.Pieces {
			got += fmt.Sprintf(" %s/%s %d-%d", piece.Owner, piece.Tier, piece.First, piece.End)
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s", c.units, got, c.want)
		}
	}
}

// A path has as many units as a Find whose owners answer as they were seen to would be
// granted, and its pieces are that run without a gap.
func TestPathIsWhatFindWouldSay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var units []keys.Availability
		var owners []string
		for range rapid.IntRange(0, 12).Draw(t, "units") {
			u := keys.Availability{Owner: rapid.SampledFrom([]string{"", "a", "a", "b", "c", "d", "e"}).Draw(t, "owner")}
			if u.Owner != "" {
				u.Tier = rapid.SampledFrom([]string{"", "memory", "memory", "disk"}).Draw(t, "tier")
			}
			units, owners = append(units, u), append(owners, u.Owner)
		}
		p := keys.PathOf(units, true)
		stretches := keys.Cut(owners, 0)
		f := keys.NewFindMachine(stretches)
		answer := func(n int) {
			at := f.At(n)
			have := 0
			for i := at.First; i < at.End && units[i].Tier != ""; i++ {
				have++
			}
			if have == at.End-at.First {
				f.Answered(n, &keys.FindAnswer{Verdict: keys.Taken, Have: have, Ticket: []byte{1}})
			} else if ask, _ := f.Answered(n, &keys.FindAnswer{Verdict: keys.Missing, Have: have}); ask {
				f.Answered(n, &keys.FindAnswer{Verdict: keys.Taken, Have: have, Ticket: []byte{1}})
			}
		}
		for n := range stretches {
			answer(n)
		}
		granted, _, _ := f.Found()
		end := 0
		if len(granted) > 0 {
			end = granted[len(granted)-1].End
		}
		if end != p.Units {
			t.Fatalf("%+v: a path of %d units, a Find of %d", units, p.Units, end)
		}
		at := 0
		for _, piece := range p.Pieces {
			if piece.First != at || piece.End <= at {
				t.Fatalf("%+v has a gap", p.Pieces)
			}
			at = piece.End
		}
		if at != p.Units {
			t.Fatalf("pieces of %d units, %d in all", at, p.Units)
		}
	})
}

// Keys of one model begin alike, whatever they are of, and those of another do not.
func TestModelTags(t *testing.T) {
	k := keys.NamesKey{1}
	tokens := make([]uint32, 200)
	scope := kv.Scope{Model: "m", Revision: "r", Adapter: "a", Salt: "s"}
	tag := k.ModelTag(scope)
	for _, same := range []kv.Scope{scope, {Model: "m", Revision: "r"}, {Model: "m", Revision: "r", Media: "x"}} {
		for _, name := range keys.ChainOf(k, same, kv.Hash{1}, tokens, 64).Names() {
			if got, is := keys.TagOf(name); !is || got != tag || !strings.HasPrefix(name, keys.KeyPrefix+tag.String()) {
				t.Errorf("%s has the tag %v, %v", name, got, is)
			}
		}
	}
	for _, other := range []kv.Scope{{Model: "n", Revision: "r"}, {Model: "m", Revision: "q"}} {
		if k.ModelTag(other) == tag {
			t.Errorf("%+v has the same tag", other)
		}
	}
	for _, none := range []string{"", "kv/", "kv/zz", "other", "kv/" + strings.Repeat("z", 64)} {
		if _, is := keys.TagOf(none); is {
			t.Errorf("%q has a tag", none)
		}
	}
}
