package kv

import (
	"errors"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func drawParallelism(t *rapid.T) (Parallelism, int) {
	stages := rapid.SliceOfN(rapid.IntRange(1, 20), 1, 8).Draw(t, "stages")
	layers := 0
	for _, n := range stages {
		layers += n
	}
	degree := rapid.IntRange(1, 8)
	return Parallelism{
		TP: rapid.IntRange(1, 64).Draw(t, "tp"), Stages: stages,
		CP: degree.Draw(t, "cp"), DP: degree.Draw(t, "dp"),
	}, layers
}

func TestRankNumbersAreABijection(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, layers := drawParallelism(t)
		if err := p.Validate(layers); err != nil {
			t.Fatal(err)
		}
		seen := make(map[Rank]bool)
		for i := range p.Ranks() {
			r := p.Rank(i)
			if p.Index(r) != i {
				t.Fatalf("rank %d is %+v, which is numbered %d", i, r, p.Index(r))
			}
			if r.PP >= len(p.Stages) || r.DP >= p.DP || r.TP >= p.TP || r.CP >= p.CP || seen[r] {
				t.Fatalf("rank %d is %+v: out of range or seen before", i, r)
			}
			seen[r] = true
		}
	})
}

func TestRankOrder(t *testing.T) {
	p := Parallelism{TP: 2, Stages: []int{1, 1}, CP: 2, DP: 2}
	want := []Rank{
		{CP: 0},
		{CP: 1},
		{TP: 1, CP: 0},
		{TP: 1, CP: 1},
		{DP: 1, CP: 0},
		{DP: 1, CP: 1},
		{DP: 1, TP: 1, CP: 0},
		{DP: 1, TP: 1, CP: 1},
		{PP: 1},
	}
	for i, r := range want {
		if got := p.Rank(i); got != r {
			t.Errorf("rank %d: got %+v, want %+v", i, got, r)
		}
	}
}

func TestEveryHeadIsHeldAndSharesAreFair(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := Parallelism{TP: rapid.IntRange(1, 64).Draw(t, "tp")}
		kvHeads := rapid.IntRange(1, 64).Draw(t, "heads")
		holders := make([]int, kvHeads)
		smallest, largest := kvHeads+1, 0
		for tp := range p.TP {
			first, end := p.Heads(tp, kvHeads)
			if first < 0 || end > kvHeads || first >= end {
				t.Fatalf("rank %d of %d holds heads [%d,%d) of %d", tp, p.TP, first, end, kvHeads)
			}
			for h := first; h < end; h++ {
				holders[h]++
			}
			smallest, largest = min(smallest, end-first), max(largest, end-first)
		}
		if largest-smallest > 1 {
			t.Fatalf("shares of %d heads over %d ranks differ by %d", kvHeads, p.TP, largest-smallest)
		}
		if slices.Min(holders) < 1 || slices.Max(holders)-slices.Min(holders) > 1 {
			t.Fatalf("holders of each head: %v", holders)
		}
		if p.TP <= kvHeads && slices.Max(holders) > 1 {
			t.Fatalf("copies although every rank has heads of its own: %v", holders)
		}
	})
}

// As TensorRT-LLM and vLLM place them: copies of a head are neighbours.
func TestHeadsGolden(t *testing.T) {
	for _, c := range []struct {
		tp, kvHeads int
		first       []int
	}{
		{2, 4, []int{0, 2}},
		{8, 4, []int{0, 0, 1, 1, 2, 2, 3, 3}},
		{3, 8, []int{0, 2, 5}},
		{6, 4, []int{0, 0, 1, 2, 2, 3}},
		{4, 1, []int{0, 0, 0, 0}},
	} {
		p := Parallelism{TP: c.tp}
		for tp, want := range c.first {
			if first, _ := p.Heads(tp, c.kvHeads); first != want {
				t.Errorf("%d heads over %d ranks: rank %d starts at %d, want %d", c.kvHeads, c.tp, tp, first, want)
			}
		}
	}
}

func TestStagesCoverTheModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, layers := drawParallelism(t)
		next := 0
		for pp := range p.Stages {
			first, end := p.Layers(pp)
			if first != next || end-first != p.Stages[pp] {
				t.Fatalf("stage %d holds [%d,%d)", pp, first, end)
			}
			next = end
		}
		if next != layers {
			t.Fatalf("stages hold %d of %d layers", next, layers)
		}
	})
	if got := EvenStages(7, 3); !slices.Equal(got, []int{3, 2, 2}) {
		t.Errorf("7 layers in 3 stages: %v", got)
	}
}

func TestParallelismTextRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, layers := drawParallelism(t)
		back, err := ParseParallelism(p.String(), layers)
		if err != nil || !reflect.DeepEqual(back, p) {
			t.Fatalf("%v was read back as %v, %v", p, back, err)
		}
	})
	p, err := ParseParallelism("tp=2, pp=4+3", 7)
	if err != nil || !reflect.DeepEqual(p, Parallelism{TP: 2, Stages: []int{4, 3}, CP: 1, DP: 1}) {
		t.Errorf("got %v, %v", p, err)
	}
	if !reflect.DeepEqual(p, Split(7, 2, 2)) {
		t.Errorf("two stages of seven layers are cut as %v", Split(7, 2, 2))
	}
}

func TestParallelismRefusesNonsense(t *testing.T) {
	for _, text := range []string{
		"", "tp", "tp=0", "tp=-1", "tp=x", "tp=2,tp=2", "tp=1+1", "xp=2", "pp=4+4", "pp=8", "pp=0", "pp=3+0+4",
		"tp=65537", "tp=65536,cp=2", "tp=999999999999999999999",
	} {
		if p, err := ParseParallelism(text, 7); !errors.Is(err, ErrShape) {
			t.Errorf("%q: got %v, %v, want ErrShape", text, p, err)
		}
	}
	if err := (Parallelism{}).Validate(1); !errors.Is(err, ErrShape) {
		t.Errorf("zero value: %v", err)
	}
	if EvenStages(4, 0) != nil {
		t.Error("no stages of nothing")
	}
}
