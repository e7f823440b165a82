package protocol

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"meridian/internal/golden"
	"meridian/keep/store/master"
	"meridian/keep/store/owner"
	"meridian/kv"
)

// filled is one message of each kind with something in every field.
func filled() []Message {
	id := kv.ID{1, 2, 3}
	span := Span{1, 2, 3, 4, id}
	a := Attributes{PageSize: 4096, Pinned: true, Priority: 7}
	return []Message{
		&Put{[]byte("name"), []byte("value"), a, 9},
		&Open{Name: []byte("name"), Bytes: 1 << 40, Attributes: a, PatienceMs: 1, WriteMs: 2},
		&Plan{owner.Plan{Header: 1, Epoch: 2, KeyHash: 3, Offset: 4, Bytes: 5, Pages: 6, PageSize: 7}, span},
		&Commit{1, 2, 3, true, true, 1 << 60},
		&Get{[]byte("name"), span, 4},
		&Value{5, 6, false, []byte("value")},
		&Remove{[]byte("name"), 3},
		&Locate{[]byte("name"), 5},
		&Location{owner.Location{Header: 1, Epoch: 2, KeyHash: 3, Offset: 4, Bytes: 5, Checksum: 6, PageSize: 7}},
		&Has{[][]byte{[]byte("a"), []byte("bc")}},
		&Present{[]bool{true, false}},
		&List{"tenant", true, "pre", 3, 4},
		&Listing{[]owner.Object{{Name: []byte("n"), Bytes: 1, Checksum: 2, AgeSeconds: 3, Readers: 4, Priority: 5, Pinned: true}}, 9},
		&Describe{},
		&Description{Stats: owner.Stats{HeapUsed: 1, HeapTotal: 2, Ready: 3, Writing: 4, Waiting: 5, Hits: 6, Misses: 7, Evictions: 8, Reclaims: 9, Timeouts: 10, Refused: 11, OutOfMemory: 12, BytesIn: 13, BytesOut: 14, Overloaded: 15, CASFailures: 16, Torn: 17}, Answers: true, Term: 3, Master: "m"},
		&Evict{850},
		&Evicted{3},
		&Reply{Problem{4, "missing"}},
		&Where{[]uint64{1, 1 << 63}},
		&Owners{[]string{"", "a"}},
		&Forget{7},
		&Renew{master.Renew{Owner: "o", Incarnation: id, Term: 1, Seq: 2, Oldest: 3, Dropped: 4}},
		&Answer{master.Answer{Term: 1, Seq: 2, Verdict: master.Drop, Length: 3, All: true, Keys: []uint64{4}}},
		&Keys{master.Keys{Owner: "o", Incarnation: id, Term: 1, Seq: 2, Serial: 3, Part: 4, Last: true, Hashes: []uint64{5}}},
		&Claim{master.Claim{Owner: "o", Incarnation: id, Term: 1, Serial: 2, Oldest: 3, Hash: 4}},
		&Claimed{1, Problem{8, "taken"}},
		&Dropped{"o", id, 1, 2, []Drop{{3, 4}}},
		&DroppedAck{1},
		&PutFrom{[]byte("name"), span, a, 9},
		&Cold{[][]byte{[]byte("name")}},
		&DescribeTiers{}, &Tiers{[]Tier{{Name: "disk", Objects: 1, Bytes: 2, Limit: 3, Waiting: 4, Puts: 5, Hits: 6, Exceeds: 7, Down: true}, {Name: "s3"}}},
		&Inspect{[][]byte{[]byte("name")}},
		&Inspected{[]Availability{{Tier: Memory, Bytes: 1, AgeSeconds: 2, Readers: 3, Pinned: true}, {}, {Tier: "disk"}}},
		&Pin{[][]byte{[]byte("name")}, true},
		&Pins{1, 2, 3, 4, 5},
	}
}

func TestMessagesSurviveTheWire(t *testing.T) {
	all := filled()
	if len(all) != len(kinds)-1 {
		t.Fatalf("%d messages of %d kinds", len(all), len(kinds)-1)
	}
	for i, m := range all {
		if int(m.kind()) != i+1 || reflect.TypeOf(kinds[i+1]()) != reflect.TypeOf(m) {
			t.Errorf("%T is kind %d, and stands at %d", m, m.kind(), i+1)
		}
		wire := AppendMessage(nil, 1<<60, m)
		request, got, err := ParseMessage(wire)
		if err != nil || request != 1<<60 || !reflect.DeepEqual(got, m) {
			t.Errorf("%T: %+v became %+v, %v", m, m, got, err)
		}
		for n := range wire {
			if _, short, err := ParseMessage(wire[:n]); err == nil {
				t.Errorf("%T: %d of %d bytes are %+v", m, n, len(wire), short)
			}
		}
	}
}

// No other process says who pays: it pays itself.
func TestPayerIsNotOnTheWire(t *testing.T) {
	_, m, err := ParseMessage(AppendMessage(nil, 1, &Open{Name: []byte("name"), Payer: "tenant/rich"}))
	if err != nil || m.(*Open).Payer != "" {
		t.Errorf("%+v, %v", m, err)
	}
	for tenant, want := range map[string]string{"": "", "team": "team", "kv-0a1b": ""} {
		if name, err := ObjectName(tenant, "key"); err != nil || string(PartOf(name)) != want {
			t.Errorf("of tenant %q it is part %q, %v", tenant, PartOf(name), err)
		}
	}
}

// A field that is never written is noticed: every one of filled's has a value.
func TestMessagesAreFilled(t *testing.T) {
	for _, m := range filled() {
		v := reflect.ValueOf(m).Elem()
		for i := range v.NumField() {
			if f := v.Type().Field(i); v.Field(i).IsZero() && f.Name != "Landed" && f.Name != "Payer" {
				t.Errorf("%T.%s is empty", m, f.Name)
			}
		}
	}
}

func FuzzParseMessage(f *testing.F) {
	for _, m := range filled() {
		f.Add(AppendMessage(nil, 3, m))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		request, m, err := ParseMessage(b)
		if err != nil {
			return
		}
		again, twice, err := ParseMessage(AppendMessage(nil, request, m))
		if err != nil || again != request || !reflect.DeepEqual(m, twice) {
			t.Fatalf("%+v became %+v, %v", m, twice, err)
		}
	})
}

// What other languages make of a tenant and a key is what is made of them here.
func TestGeneratedNames(t *testing.T) {
	b := []byte("# Made by keep/store/protocol: how many bytes \"t\" a tenant has, how many \"k\" a key; the name in hex.\n")
	for _, n := range [][2]int{{0, 1}, {1, 13}, {127, 1}, {128, 5}, {300, 2}} {
		name, err := ObjectName(strings.Repeat("t", n[0]), strings.Repeat("k", n[1]))
		if err != nil {
			t.Fatal(err)
		}
		b = fmt.Appendf(b, "%d %d %x\n", n[0], n[1], name)
	}
	golden.File(t, "../../../testdata/store/names.txt", b)
}

func TestNames(t *testing.T) {
	seen := map[string][2]string{}
	parts := []string{"", "a", "ab", "b", "\x00", "\x01a", "\x02", "key"}
	for _, tenant := range parts {
		for _, key := range parts[1:] {
			name, err := ObjectName(tenant, key)
			if err != nil {
				t.Fatal(err)
			}
			if other, is := seen[string(name)]; is {
				t.Errorf("%q of %q and %q of %q are both %q", key, tenant, other[1], other[0], name)
			}
			seen[string(name)] = [2]string{tenant, key}
			if who, what, err := SplitName(name); err != nil || who != tenant || what != key {
				t.Errorf("%q of %q became %q of %q, %v", key, tenant, what, who, err)
			}
		}
	}
	for _, bad := range [][2]string{{"", ""}, {"", string(make([]byte, 1024))}, {string(make([]byte, 1020)), "abcdef"}} {
		if _, err := ObjectName(bad[0], bad[1]); err == nil {
			t.Errorf("a tenant of %d bytes and a key of %d", len(bad[0]), len(bad[1]))
		}
	}
}

// That an object is a copy its key says, and nothing else of its name.
func TestIsCopy(t *testing.T) {
	for _, c := range []struct {
		tenant, key string
		is          bool
	}{
		{"kv-0123", CopyKey("kv/ab", 1), false},
		{"kv-0123", CopyKey("kv/ab", 2), true},
		{"kv-0123#", "kv/ab", false},                             // the last byte of a tenant
		{"kv-" + strings.Repeat("0", 200) + "#", "kv/ab", false}, // whose length has two bytes
		{"kv-" + strings.Repeat("0", 32), "kv/ab", false},        // whose length, 35, is the mark
		{"other", CopyKey("kv/ab", 2), false},
	} {
		name, err := ObjectName(c.tenant, c.key)
		if err != nil {
			t.Fatal(err)
		}
		if IsCopy(name) != c.is {
			t.Errorf("%+v", c)
		}
	}
	if IsCopy([]byte{200, 'k', 'v', '-', '#'}) {
		t.Error("what is no name is one of a copy")
	}
}

// An owner that goes takes its own keys along, and no others move.
func TestRendezvousMovesLittle(t *testing.T) {
	var owners []kv.Member
	for _, name := range []string{"a", "b", "c", "d"} {
		owners = append(owners, kv.Member{Name: name})
	}
	moved, random := 0, rand.New(rand.NewPCG(1, 1))
	count := map[string]int{}
	for range 4000 {
		hash := random.Uint64()
		all, without := Rendezvous(hash, owners), Rendezvous(hash, owners[1:])
		count[all[0].Name]++
		if all[0].Name == "a" {
			moved++
		} else if all[0] != without[0] {
			t.Fatalf("%x moved from %v to %v", hash, all[0], without[0])
		}
	}
	for name, n := range count {
		if n < 800 || n > 1200 {
			t.Errorf("%s has %d of 4000", name, n)
		}
	}
}

func TestAValueIsFilledInWhereItTravels(t *testing.T) {
	want := AppendMessage([]byte("before"), 7, &Value{Bytes: 5, Checksum: 6, Data: []byte("value")})
	got, data := AppendValue([]byte("before"), 7, &Value{Bytes: 5, Checksum: 6})
	copy(data, "value")
	if !bytes.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// What an owner tells the master of itself waits behind nothing that peers asked for.
func TestTellsMaster(t *testing.T) {
	for _, m := range filled() {
		name := reflect.TypeOf(m).Elem().Name()
		if want := strings.Contains(" Renew Keys Claim Dropped ", " "+name+" "); TellsMaster(m) != want {
			t.Errorf("%s: %v", name, !want)
		}
	}
}
