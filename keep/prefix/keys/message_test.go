package keys_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"meridian/keep/prefix/keys"
	"meridian/kv"
	"meridian/move/transceiver/handoff"
)

func samples() []keys.Message {
	layer := kv.Layer{KVHeads: 4, HeadDim: 8}
	shape := keys.Shape{Geometry: kv.Geometry{DType: kv.BFloat16, Layers: []kv.Layer{layer, layer, {KVHeads: 4, HeadDim: 16, IndexBytes: 132}}}, Tokens: 64}
	chain := keys.ChainOf(keys.NamesKey{1}, kv.Scope{Model: "m", Salt: "s"}, kv.Hash{1}, make([]uint32, 300), 64)
	paying := chain
	paying.Payer = keys.PayerOf("team", "")
	return []keys.Message{
		&keys.KeepAsk{Shape: shape, Chain: chain, First: 2, Ticket: []byte("ticket"), WithinMs: 1000},
		&keys.KeepAnswer{Verdict: keys.Full, Why: "no room"},
		&keys.FindAsk{Shape: shape, Units: chain, First: 7, Fingerprint: handoff.Fingerprint{Model: kv.Hash{1}, Prompt: kv.Hash{2}, Salt: kv.Hash{3}}, WithinMs: 5, PatienceMs: 6},
		&keys.FindAnswer{Verdict: keys.Taken, Have: 4, Ticket: []byte("ticket")},
		&keys.FindAnswer{Verdict: keys.Missing, Have: 3},
		&keys.FindAsk{Shape: shape, Units: chain, First: 7, WithinMs: 5, PatienceMs: 6, Tell: true},
		&keys.FindAnswer{Verdict: keys.Taken, Have: 4, Ticket: []byte("ticket"), Tell: true, From: []keys.TierWait{{Tier: "memory", Units: 1, Micros: 9}, {Tier: "s3", Units: 3, Micros: 1e6}}},
		&keys.Used{Units: chain},
		&keys.KeepAsk{Shape: shape, Chain: paying, First: 2, Ticket: []byte("ticket"), WithinMs: 1000, Pays: true},
		&keys.FindAsk{Shape: shape, Units: paying, First: 7, WithinMs: 5, PatienceMs: 6, Tell: true, Pays: true},
		&keys.CopyAsk{Shape: shape, Units: paying, First: 7, Have: 1, Number: 2, Ticket: []byte("ticket"), WithinMs: 5, Pays: true},
		&keys.CopyAsk{Shape: shape, Units: chain, First: 7, Have: 1, Number: 2, Ticket: []byte("ticket"), WithinMs: 5},
	}
}

func TestMessages(t *testing.T) {
	for _, m := range samples() {
		b := keys.AppendMessage(nil, 77, m)
		request, got, err := keys.ParseMessage(b)
		if err != nil || request != 77 {
			t.Fatalf("%T: %v", m, err)
		}
		if again := keys.AppendMessage(nil, 77, got); !bytes.Equal(again, b) {
			t.Errorf("%T changes on its way: %s", m, cmp.Diff(m, got))
		}
		for n := range b {
			if _, _, err := keys.ParseMessage(b[:n]); err == nil {
				t.Errorf("%T: %d of its %d bytes are one, too", m, n, len(b))
			}
		}
		if _, _, err := keys.ParseMessage(append(b, 0)); err == nil {
			t.Errorf("%T with a byte more is one, too", m)
		}
	}
}

// Whatever a stranger says, what is made of it is bounded by what it says, and written
// again it is the same.
func FuzzMessage(f *testing.F) {
	for _, m := range samples() {
		f.Add(keys.AppendMessage(nil, 1, m))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		request, m, err := keys.ParseMessage(b)
		if err != nil {
			return
		}
		again := keys.AppendMessage(nil, request, m)
		if _, _, err := keys.ParseMessage(again); err != nil {
			t.Fatalf("%T cannot be read again: %v", m, err)
		}
		if ask, is := m.(*keys.KeepAsk); is {
			_, _ = ask.Shape.Unit()
		}
	})
}

func TestUnit(t *testing.T) {
	ask := samples()[0].(*keys.KeepAsk)
	unit, err := ask.Shape.Unit()
	if err != nil || unit.Tokens != 64 || unit.Bytes != 64*(2*2*4*8*2+2*4*16*2+132) {
		t.Fatalf("%+v, %v", unit, err)
	}
}

// Where units were is shown to people: a name that is none, or more units than there are, is
// refused.
func TestTiersThatCannotBe(t *testing.T) {
	for name, from := range map[string][]keys.TierWait{
		"no name":     {{Units: 1}},
		"a long name": {{Tier: strings.Repeat("d", 100), Units: 1}},
		"two lines":   {{Tier: "disk\nroot", Units: 1}},
		"too many":    {{Tier: "disk", Units: 3}, {Tier: "s3", Units: 2}},
		"for ever":    {{Tier: "disk", Units: 1, Micros: 1 << 60}},
	} {
		b := keys.AppendMessage(nil, 1, &keys.FindAnswer{Verdict: keys.Missing, Have: 4, Tell: true, From: from})
		if _, m, err := keys.ParseMessage(b); err == nil {
			t.Errorf("%s: %+v", name, m)
		}
	}
}

// Who pays is said only to who reads it; what says it says who, in so many bytes.
func TestPayersInMessages(t *testing.T) {
	chain := samples()[0].(*keys.KeepAsk).Chain
	for payer, ok := range map[string]bool{"tenant/a": true, "": false, strings.Repeat("x", 400): false} {
		chain.Payer = payer
		for _, m := range []keys.Message{
			&keys.KeepAsk{Chain: chain, Ticket: []byte("t"), Pays: true, Shape: samples()[0].(*keys.KeepAsk).Shape},
			&keys.FindAsk{Units: chain, Tell: true, Pays: true, Shape: samples()[0].(*keys.KeepAsk).Shape},
		} {
			if _, _, err := keys.ParseMessage(keys.AppendMessage(nil, 1, m)); (err == nil) != ok {
				t.Errorf("a %T of %.10q: %v", m, payer, err)
			}
		}
		old := &keys.KeepAsk{Chain: chain, Ticket: []byte("t"), Shape: samples()[0].(*keys.KeepAsk).Shape}
		if _, m, err := keys.ParseMessage(keys.AppendMessage(nil, 1, old)); err != nil || m.(*keys.KeepAsk).Chain.Payer != "" {
			t.Errorf("one for a build before: %v", err)
		}
	}
	for _, reads := range []int{4, 8} {
		if keys.ReadsPayer(reads) {
			t.Errorf("who reads messages up to %d is told", reads)
		}
	}
	if !keys.ReadsPayer(keys.LastKind) || keys.PayerOf("e", "x") == keys.PayerOf("", "e") {
		t.Error("an engine is taken for a tenant of its name, or none is told")
	}
}

// No chain has a unit twice: a peer that says so would have it read as often.
func TestUnitsDoNotRepeat(t *testing.T) {
	for _, m := range samples() {
		switch m := m.(type) {
		case *keys.KeepAsk:
			m.Chain.Keys[3] = m.Chain.Keys[0]
		case *keys.FindAsk:
			m.Units.Keys[3] = m.Units.Keys[0]
		case *keys.Used:
			m.Units.Keys[3] = m.Units.Keys[0]
		default:
			continue
		}
		if _, _, err := keys.ParseMessage(keys.AppendMessage(nil, 1, m)); err == nil {
			t.Errorf("a %T with a unit twice is read", m)
		}
	}
}
