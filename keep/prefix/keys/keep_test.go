package keys_test

import (
	"fmt"
	"strings"
	"testing"

	"meridian/keep/prefix/keys"
	"meridian/kv"
)

func split(text string) (names []string) {
	for _, r := range text {
		names = append(names, strings.Trim(string(r), "-"))
	}
	return names
}

// What is missing goes to one owner: the publisher's own, else where the chain is, else
// where it belongs; the next one when there is no room.
func TestKeeping(t *testing.T) {
	for _, c := range []struct {
		have, own   string
		answers     []keys.Verdict
		first, kept int
		asked       string
		wantOutcome keys.Verdict
	}{
		{"----", "a", []keys.Verdict{keys.Taken}, 0, 4, "a", keys.Taken},
		{"----", "", []keys.Verdict{keys.Taken}, 0, 4, "c", keys.Taken},
		{"bb--", "", []keys.Verdict{keys.Taken}, 2, 2, "b", keys.Taken},
		{"bb--", "a", []keys.Verdict{keys.Full, keys.Taken}, 2, 2, "ab", keys.Taken},
		{"b--b", "a", []keys.Verdict{keys.Full, keys.Full, keys.Full}, 1, 0, "abc", keys.Full},
		{"----", "a", []keys.Verdict{keys.Busy}, 0, 0, "a", keys.Busy},
		{"----", "a", []keys.Verdict{keys.Have}, 0, 0, "a", keys.Have},
		{"b--b-", "a", []keys.Verdict{keys.Taken, keys.Taken}, 1, 3, "aa", keys.Taken},
		{"aabb", "a", nil, 4, 0, "", keys.Have},
		{"", "a", nil, 0, 0, "", keys.Have},
		{"x---", "y", []keys.Verdict{keys.Taken}, 1, 3, "c", keys.Taken}, // neither is an owner now
	} {
		k := keys.NewKeepMachine(split(c.have), c.own, []string{"c", "a", "b", "d"}, 8)
		var asked string
		for range 10 {
			name := k.Ask()
			if name == "" {
				break
			}
			if k.Ask() != "" {
				t.Fatal("two are asked at once")
			}
			asked += name
			k.Answered(&keys.KeepAnswer{Verdict: c.answers[len(asked)-1]})
			k.Copied(0, 100)
		}
		outcome, over := k.Over()
		if k.First != c.first || k.Kept != c.kept || asked != c.asked || !over || outcome != c.wantOutcome {
			t.Errorf("%+v: from unit %d on %d, asked %q, %v", c, k.First, k.Kept, asked, outcome)
		}
	}
	if k := keys.NewKeepMachine([]string{""}, "", nil, 1); k.Ask() != "" {
		t.Error("an owner is asked although none keeps anything")
	}
	k := keys.NewKeepMachine([]string{""}, "a", []string{"a", "b"}, 1)
	if k.Ask(); k.Ask() != "" {
		t.Error("two are asked at once")
	}
	if k.Answered(nil); k.Ask() != "b" {
		t.Error("no answer ends it although another owner is there")
	}
	k.Answered(nil)
	if outcome, over := k.Over(); !over || outcome != keys.Busy {
		t.Errorf("when no owner answers it is %v", outcome)
	}
}

// A long one goes piece after piece, to the owner that took the last one. Who takes the beginning
// of a piece is asked for the rest, and then the next owner.
func TestKeepingInPieces(t *testing.T) {
	for _, c := range []struct {
		steps       string // what each that is asked does: takes it, takes one unit, takes none, takes all but the first, has it, is full, busy
		want        string // who was asked for which units
		kept        int
		wantOutcome keys.Verdict
	}{
		{"tttt", "a0-3 a3-6 a6-9 a9-10", 10, keys.Taken},
		{"t1tt", "a0-3 a3-6 a4-7 a7-10", 10, keys.Taken},
		{"t1ftt", "a0-3 a3-6 a4-7 c4-7 c7-10", 10, keys.Taken},
		{"t1btt", "a0-3 a3-6 a4-7 c4-7 c7-10", 10, keys.Taken},
		{"t1tb", "a0-3 a3-6 a4-7 a7-10", 7, keys.Busy},
		{"t1h1h", "a0-3 a3-6 a4-7 a7-10 a8-10", 5, keys.Taken},
		{"t0ttt", "a0-3 a3-6 c3-6 c6-9 c9-10", 10, keys.Taken},
		{"tftt1", "a0-3 a3-6 c3-6 c6-9 c9-10", 10, keys.Taken},
		{"tfff", "a0-3 a3-6 c3-6 b3-6", 3, keys.Full},
		{"t1f1ff", "a0-3 a3-6 a4-7 c4-7 c5-8 b5-8", 5, keys.Full},
		{"tb", "a0-3 a3-6", 3, keys.Busy},
		{"hstt", "a0-3 a3-6 a6-9 a9-10", 6, keys.Taken},
		{"hhhh", "a0-3 a3-6 a6-9 a9-10", 0, keys.Have},
		{"hfff", "a0-3 a3-6 c3-6 b3-6", 0, keys.Full},
	} {
		k := keys.NewKeepMachine(make([]string, 10), "a", []string{"c", "a", "b", "d"}, 3)
		var asked []string
		for _, step := range c.steps {
			first, end := k.Piece()
			name := k.Ask()
			if name == "" {
				t.Fatalf("%+v: after %v no owner is asked", c, asked)
			}
			asked = append(asked, fmt.Sprintf("%s%d-%d", name, first, end))
			k.Answered(&keys.KeepAnswer{Verdict: map[rune]keys.Verdict{'f': keys.Full, 'b': keys.Busy, 'h': keys.Have}[step]})
			switch step {
			case 't':
				k.Copied(0, end+5) // what an owner says is more than it was given counts as all
			case '0':
				k.Copied(first, first)
			case '1':
				k.Copied(first, first+1)
			case 's':
				k.Copied(first+1, end)
			}
		}
		outcome, over := k.Over()
		if got := strings.Join(asked, " "); !over || k.Ask() != "" || got != c.want || k.Kept != c.kept || outcome != c.wantOutcome {
			t.Errorf("%+v: %s, kept %d, %v", c, got, k.Kept, outcome)
		}
	}
}

// Every word of a scope, the unit and every token before decide a key.
func TestChain(t *testing.T) {
	tokens := make([]uint32, 200)
	scope := kv.Scope{Model: "m", Revision: "r", Adapter: "a", Media: "i", Salt: "s"}
	base := keys.ChainOf(keys.NamesKey{1}, scope, kv.Hash{1}, tokens, 64)
	if len(base.Keys) != 3 {
		t.Fatalf("%d units of 200 tokens", len(base.Keys))
	}
	longer := keys.ChainOf(keys.NamesKey{1}, scope, kv.Hash{1}, append(tokens, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14), 128)
	for what, other := range map[string]keys.Chain{
		"model":    keys.ChainOf(keys.NamesKey{1}, kv.Scope{Model: "n", Revision: "r", Adapter: "a", Media: "i", Salt: "s"}, kv.Hash{1}, tokens, 64),
		"revision": keys.ChainOf(keys.NamesKey{1}, kv.Scope{Model: "m", Revision: "q", Adapter: "a", Media: "i", Salt: "s"}, kv.Hash{1}, tokens, 64),
		"adapter":  keys.ChainOf(keys.NamesKey{1}, kv.Scope{Model: "m", Revision: "r", Adapter: "b", Media: "i", Salt: "s"}, kv.Hash{1}, tokens, 64),
		"media":    keys.ChainOf(keys.NamesKey{1}, kv.Scope{Model: "m", Revision: "r", Adapter: "a", Media: "j", Salt: "s"}, kv.Hash{1}, tokens, 64),
		"salt":     keys.ChainOf(keys.NamesKey{1}, kv.Scope{Model: "m", Revision: "r", Adapter: "a", Media: "i", Salt: "t"}, kv.Hash{1}, tokens, 64),
		"unit":     keys.ChainOf(keys.NamesKey{1}, scope, kv.Hash{2}, tokens, 64),
		"size":     longer,
		"token":    keys.ChainOf(keys.NamesKey{1}, scope, kv.Hash{1}, append([]uint32{1}, tokens...), 64),
	} {
		for i, key := range other.Keys {
			if i < len(base.Keys) && key == base.Keys[i] {
				t.Errorf("unit %d has the same key with another %s", i, what)
			}
		}
		if (what == "salt") != (other.Tenant != base.Tenant) {
			t.Errorf("another %s: tenants %s and %s", what, base.Tenant, other.Tenant)
		}
	}
	other := keys.ChainOf(keys.NamesKey{2}, scope, kv.Hash{1}, tokens, 64)
	if other.Tenant == base.Tenant || other.Keys[0] == base.Keys[0] {
		t.Error("names of another cell are the same: who has a salt can try which it is")
	}
	if a, b := keys.NamesKeyOf([32]byte{1}), keys.NamesKeyOf([32]byte{2}); a == b || a == (keys.NamesKey{1}) {
		t.Error("the key of names is not derived")
	}
	if same := keys.ChainOf(keys.NamesKey{1}, scope, kv.Hash{1}, tokens[:130], 64); same.Keys[0] != base.Keys[0] || same.Keys[1] != base.Keys[1] || len(same.Keys) != 2 {
		t.Error("a shorter sequence has other keys")
	}
}

func TestBudget(t *testing.T) {
	b := keys.Budget{MaxBytes: 100, MaxCount: 2}
	for i, want := range []bool{true, false, true, false} {
		if got := b.Take([]uint64{60, 50, 40, 0}[i]); got != want {
			t.Fatalf("%d: %v", i, got)
		}
	}
	b.Give(60)
	if bytes, count := b.InFlight(); bytes != 40 || count != 1 || !b.Take(60) {
		t.Fatalf("%d bytes of %d", bytes, count)
	}
}
