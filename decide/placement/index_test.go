package placement

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestPrefixesShareWhatTheyShare(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		alphabet := rapid.ByteRange('a', 'b')
		common := rapid.SliceOfN(alphabet, 0, 1000).Draw(t, "common")
		one := append(slices.Clone(common), rapid.SliceOfN(alphabet, 0, 600).Draw(t, "one")...)
		two := append(slices.Clone(common), rapid.SliceOfN(alphabet, 0, 600).Draw(t, "two")...)
		shared := 0
		for shared < min(len(one), len(two)) && one[shared] == two[shared] {
			shared++
		}
		a, _ := OfText("m", one)
		b, _ := OfText("m", two)
		same := 0
		for same < min(len(a.Hashes), len(b.Hashes)) && a.Hashes[same] == b.Hashes[same] {
			same++
		}
		if same != shared/textChunk {
			t.Fatalf("texts share %d bytes and %d hashes", shared, same)
		}
	})
	text, tokens := OfText("m", make([]byte, 1024))
	if len(text.Hashes) != 4 || tokens != 256 {
		t.Errorf("1 KiB of text: %d hashes, %d tokens", len(text.Hashes), tokens)
	}
	other, _ := OfText("n", make([]byte, 1024))
	if text.Hashes[0] == other.Hashes[0] {
		t.Error("two scopes share a prefix")
	}
	if ids := OfTokens("m", make([]uint32, 40)); len(ids.Hashes) != 2 || ids.TokensPerHash != 16 {
		t.Errorf("40 ids: %+v", ids)
	}
}

// model is an Index in the simplest words.
type model struct {
	limit int
	uses  []uint64 // oldest first
}

func (m *model) note(hashes []uint64) {
	hashes = hashes[:min(len(hashes), m.limit)]
	for _, h := range slices.Backward(hashes) {
		if i := slices.Index(m.uses, h); i >= 0 {
			m.uses = slices.Delete(m.uses, i, i+1)
		}
		m.uses = append(m.uses, h)
		if len(m.uses) > m.limit {
			m.uses = m.uses[1:]
		}
	}
}

func (m *model) held(hashes []uint64) int {
	for i, h := range hashes {
		if !slices.Contains(m.uses, h) {
			return i
		}
	}
	return len(hashes)
}

func TestIndexIsAnLRU(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.IntRange(1, 9).Draw(t, "limit")
		x, m := NewIndex(limit), &model{limit: limit}
		for now := range int64(rapid.IntRange(1, 60).Draw(t, "steps")) {
			p := Prefix{Hashes: rapid.SliceOfNDistinct(rapid.Uint64Range(1, 14), 0, 6, rapid.ID).Draw(t, "hashes")}
			if got, want := x.Held("e", p, 0), m.held(p.Hashes); got != want {
				t.Fatalf("%v: held %d, want %d of %v", p.Hashes, got, want, m.uses)
			}
			x.Note("e", p, now)
			m.note(p.Hashes)
			if x.Len("e") != len(m.uses) {
				t.Fatalf("%d remembered, want %d", x.Len("e"), len(m.uses))
			}
		}
		x.Forget("e")
		if x.Len("e") != 0 {
			t.Fatal("it did not forget")
		}
	})
}

func TestIndexForgetsWhatIsOld(t *testing.T) {
	x := NewIndex(100)
	p := Prefix{Hashes: []uint64{1, 2, 3}}
	x.Note("e", p, 10)
	x.Note("e", Prefix{Hashes: p.Hashes[:1]}, 20)
	for since, want := range map[int64]int{5: 3, 10: 3, 11: 1, 21: 0} {
		if got := x.Held("e", p, since); got != want {
			t.Errorf("since %d: held %d, want %d", since, got, want)
		}
	}
	if x.Held("other", p, 0) != 0 {
		t.Error("another engine holds it too")
	}
	x.Limit("e", 2)
	if x.Len("e") > 2 {
		t.Errorf("%d are remembered, 2 fit", x.Len("e"))
	}
}
