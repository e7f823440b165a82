package keys

import (
	"slices"
	"testing"

	"meridian/keep/store/admission"
	"meridian/kv"

	"pgregory.net/rapid"
)

func TestChoose(t *testing.T) {
	copies := [][]string{{"a", "a", "", "a"}, {"b", "b", "b", ""}}
	for _, c := range []struct {
		own   string
		turn  int
		avoid string
		want  []string
	}{
		{"x", 0, "", []string{"a", "a", "b", "a"}},
		{"x", 1, "", []string{"b", "b", "b", "a"}},
		{"b", 0, "", []string{"b", "b", "b", "a"}},
		{"x", 0, "a", []string{"b", "b", "b", ""}},
		{"b", 0, "b", []string{"a", "a", "", "a"}},
	} {
		if got := Choose(copies, c.own, c.turn, map[string]bool{c.avoid: true}); !slices.Equal(got, c.want) {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

// Copies are made until each unit has all of them, or no owner is left; no owner gets two of
// one unit.
func TestCopyTo(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		owners := []string{"a", "b", "c", "d"}[:rapid.IntRange(1, 4).Draw(t, "owners")]
		copies := make([][]string, rapid.IntRange(2, 4).Draw(t, "copies"))
		length := rapid.IntRange(1, 5).Draw(t, "units")
		for n := range copies {
			copies[n] = make([]string, length)
		}
		first := owners[0] // has the run, and asks
		for i := range copies[0] {
			copies[0][i] = first
		}
		for range 20 {
			number, from, owner, ok := CopyTo(copies, owners[1:])
			if !ok {
				break
			}
			if copies[number-1][from] != "" {
				t.Fatal("it is there already")
			}
			for i := from; i < rapid.IntRange(from+1, length).Draw(t, "made"); i++ {
				copies[number-1][i] = owner
			}
		}
		whole := 0
		for n := range copies {
			if !slices.Contains(copies[n], "") {
				whole++
			}
			for i, owner := range copies[n] {
				for other := range copies[:n] {
					if owner != "" && copies[other][i] == owner {
						t.Fatalf("%s has unit %d twice", owner, i)
					}
				}
			}
		}
		if want := min(len(copies), len(owners)); whole != want {
			t.Fatalf("%d copies of %d, with %d owners", whole, want, len(owners))
		}
	})
}

func TestSole(t *testing.T) {
	for _, c := range []struct {
		copies [][]string
		number int
		want   []bool
	}{
		{[][]string{{"a", ""}, {"b", "b"}}, 1, []bool{false, true}},
		{[][]string{{"", ""}, {"b", "c"}}, 1, []bool{true, false}},
		{[][]string{{"", ""}, {"c", ""}, {"b", "b"}}, 2, []bool{false, true}}, // one of them is enough
		{[][]string{{"", ""}, {"b", ""}, {"c", "c"}}, 1, []bool{true, false}},
	} {
		if got := LastCopies(c.copies, c.number, "b"); !slices.Equal(got, c.want) {
			t.Errorf("%v, copy %d: %v", c.copies, c.number+1, got)
		}
	}
}

func TestTwice(t *testing.T) {
	for _, c := range []struct {
		copies [][]string
		want   bool
	}{
		{[][]string{{"a", "b"}}, false},
		{[][]string{{"a", "a"}, {"", ""}}, false},
		{[][]string{{"a", ""}, {"", "b"}}, false},
		{[][]string{{"a", "a"}, {"a", ""}}, false}, // both would be lost at once
		{[][]string{{"a", "a"}, {"", "b"}}, true},
		{[][]string{{"", ""}, {"", "a"}, {"", "b"}}, true},
	} {
		if got := Twice(c.copies); got != c.want {
			t.Errorf("%v: %v", c.copies, got)
		}
	}
}

// Runs of one model, whose keys all begin alike, are told apart as the sketch promises.
func TestRunsOfOneModelAreToldApart(t *testing.T) {
	const runs = 1 << 14
	names, scope := NamesKey{1}, kv.Scope{Model: "m"}
	s, wrong := admission.NewSketch(runs), 0
	for i := range runs {
		if s.Use(SketchOf(ChainOf(names, scope, UnitDigest{}, []uint32{uint32(i)}, 1).Keys[0])) > 1 {
			wrong++
		}
	}
	if wrong > runs/16 {
		t.Errorf("%d of %d runs that were used once are taken for used before", wrong, runs)
	}
}
