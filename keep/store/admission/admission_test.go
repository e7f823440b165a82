package admission

import (
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"meridian/kv"
)

// A sketch never counts too few, as long as nothing was halved.
func TestSketchNeverForgets(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := NewSketch(rapid.IntRange(1, 200).Draw(t, "hashes"))
		uses := make(map[uint64]int)
		for range rapid.IntRange(1, 400).Draw(t, "uses") {
			hash := rapid.Uint64Range(0, 60).Draw(t, "hash")
			uses[hash]++
			if got := s.Use(hash); got < min(uses[hash], maxCount) {
				t.Fatalf("%d uses of %d are %d", uses[hash], hash, got)
			}
		}
	})
}

// Of what was used once, few are taken for used twice; the memory is what was said.
func TestSketchTellsApart(t *testing.T) {
	const n = 1 << 14
	s := NewSketch(n)
	random, wrong := rand.New(rand.NewPCG(1, 2)), 0
	for range n {
		if s.Use(random.Uint64()) > 1 {
			wrong++
		}
	}
	if wrong > n/16 || len(s.counters) != 4*n {
		t.Errorf("%d of %d hashes are taken for used before; %d bytes", wrong, n, len(s.counters))
	}
}

// What was used long ago counts less and less.
func TestSketchAges(t *testing.T) {
	s := NewSketch(64)
	for range 12 {
		s.Use(7)
	}
	before := s.Count(7)
	for hash := range uint64(8 * 64) {
		s.Use(1000 + hash%40)
	}
	if after := s.Count(7); after >= before || after > before/2+1 {
		t.Errorf("counted %d before, %d after", before, after)
	}
}

func TestBreaker(t *testing.T) {
	var b Breaker
	now := kv.Instant(kv.Second)
	fail := func() {
		if !b.Allows(now) {
			t.Fatal("it is left alone too early")
		}
		b.Ended(now, false)
	}
	for range 3 {
		fail()
	}
	b.Ended(now, true) // not in a row
	for range 4 {
		fail()
	}
	if b.Allows(now) || !b.Down() || b.Allows(now+leftAlone-1) {
		t.Error("it is not left alone")
	}
	if !b.Rests(now) || b.Rests(now+leftAlone) {
		t.Error("it rests for as long as it is left alone")
	}
	now += leftAlone
	if !b.Allows(now) || b.Allows(now) {
		t.Error("one may try, and one only")
	}
	if !b.Allows(now + tryPatience) {
		t.Error("who tries and says nothing is not waited for for ever")
	}
	b.Ended(now, false)
	if b.Allows(now + leftAlone - 1) {
		t.Error("it failed again, and is not left alone")
	}
	now += leftAlone
	if !b.Allows(now) {
		t.Error("one may try again")
	}
	b.Ended(now, true)
	if b.Down() || !b.Allows(now) || !b.Allows(now) {
		t.Error("it works, and is left alone")
	}
}

// Over any span no more is spent than a second's, what the span brings, and one request
// that is larger than all.
func TestBudget(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		perSecond := rapid.Uint64Range(1, 1000).Draw(t, "a second")
		b := NewBudget(perSecond)
		now, spent, largest := kv.Instant(1), uint64(0), uint64(0)
		for range rapid.IntRange(1, 200).Draw(t, "requests") {
			now += kv.Instant(rapid.IntRange(0, 500_000).Draw(t, "pause"))
			amount := rapid.Uint64Range(1, 2*perSecond).Draw(t, "amount")
			if b.Spend(now, amount) {
				spent += amount
				largest = max(largest, amount)
			}
			if most := float64(perSecond)*(1+float64(now)/float64(kv.Second)) + float64(largest) + 1; float64(spent) > most {
				t.Fatalf("%d were spent by %d, at most %v", spent, now, most)
			}
		}
		if now += 10 * kv.Second; !b.Spend(now, perSecond) {
			t.Fatal("after a pause there is too little")
		}
	})
	free := NewBudget(0)
	if !free.Spend(1, 1<<60) {
		t.Error("no bound, and too little")
	}
}

func TestAhead(t *testing.T) {
	for _, c := range []struct {
		run  []Place
		most int
		want []int
	}{
		{nil, 4, nil},
		{[]Place{Memory, Cold, Cold, Cold}, 2, []int{1, 2}},
		{[]Place{Coming, Cold, Memory, Cold, Cold}, 3, []int{1, 3}},
		{[]Place{Cold, Nowhere, Cold}, 4, []int{0}},
		{[]Place{Nowhere, Cold}, 4, nil},
		{[]Place{Coming, Coming, Cold}, 2, nil},
		{[]Place{Cold}, 0, nil},
	} {
		if got := Ahead(c.run, c.most); !slices.Equal(got, c.want) {
			t.Errorf("%v, at most %d: %v, want %v", c.run, c.most, got, c.want)
		}
	}
}
