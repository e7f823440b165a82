package keys_test

import (
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
		first, end  int
		asked       string
		wantOutcome keys.Verdict
	}{
		{"----", "a", []keys.Verdict{keys.Taken}, 0, 4, "a", keys.Taken},
		{"----", "", []keys.Verdict{keys.Taken}, 0, 4, "c", keys.Taken},
		{"bb--", "", []keys.Verdict{keys.Taken}, 2, 4, "b", keys.Taken},
		{"bb--", "a", []keys.Verdict{keys.Full, keys.Taken}, 2, 4, "ab", keys.Taken},
		{"b--b", "a", []keys.Verdict{keys.Full, keys.Full, keys.Full}, 1, 3, "abc", keys.Full},
		{"----", "a", []keys.Verdict{keys.Busy}, 0, 4, "a", keys.Busy},
		{"----", "a", []keys.Verdict{keys.Have}, 0, 4, "a", keys.Have},
		{"aabb", "a", nil, 4, 4, "", keys.Have},
		{"", "a", nil, 0, 0, "", keys.Have},
		{"x---", "y", []keys.Verdict{keys.Taken}, 1, 4, "c", keys.Taken}, // neither is an owner now
	} {
		k := keys.NewKeepMachine(split(c.have), c.own, []string{"c", "a", "b", "d"})
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
		}
		outcome, over := k.Over()
		if k.First != c.first || k.End != c.end || asked != c.asked || !over || outcome != c.wantOutcome {
			t.Errorf("%+v: units %d to %d, asked %q, %v", c, k.First, k.End, asked, outcome)
		}
	}
	if k := keys.NewKeepMachine([]string{""}, "", nil); k.Ask() != "" {
		t.Error("an owner is asked although none keeps anything")
	}
	k := keys.NewKeepMachine([]string{""}, "a", []string{"a", "b"})
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
	if b.Grow(1) {
		t.Fatal("one grew beyond all")
	}
	b.Give(60)
	if bytes, count := b.InFlight(); bytes != 40 || count != 1 || !b.Take(60) {
		t.Fatalf("%d bytes of %d", bytes, count)
	}
}
