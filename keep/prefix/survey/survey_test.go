package survey

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"meridian/keep/prefix/keys"
	"meridian/keep/store"
)

// What another agent tells of an engine is used only if it can be.
func TestKeeperThatCannotBe(t *testing.T) {
	good := func() Engine {
		return Engine{ID: "e", Home: "a", Model: "m", UnitTokens: 64, UnitBytes: 4096, UnitDigest: strings.Repeat("0a", 32), TokenUs: 10, FetchUs: 5, FetchTokenUs: 1}
	}
	k := good()
	f, err := k.facts()
	if err != nil || f.UnitTokens != 64 || f.Digest[31] != 10 {
		t.Fatalf("%+v, %v", f, err)
	}
	if fetch, compute, worth := f.Worth(100); fetch.Microseconds() != 105 || compute.Microseconds() != 1000 || !worth {
		t.Errorf("%v, %v, %v", fetch, compute, worth)
	}
	for name, spoil := range map[string]func(*Engine){
		"no tokens":       func(k *Engine) { k.UnitTokens = 0 },
		"negative tokens": func(k *Engine) { k.UnitTokens = -64 },
		"many tokens":     func(k *Engine) { k.UnitTokens = 1 << 40 },
		"no digest":       func(k *Engine) { k.UnitDigest = "" },
		"a long digest":   func(k *Engine) { k.UnitDigest = strings.Repeat("0a", 1<<20) + "0" },
		"no hex":          func(k *Engine) { k.UnitDigest = strings.Repeat("zz", 32) },
		"a long name":     func(k *Engine) { k.Model = strings.Repeat("m", 1<<20) },
		"not a number":    func(k *Engine) { k.FetchUs = math.NaN() },
		"for ever":        func(k *Engine) { k.TokenUs = math.Inf(1) },
		"before it began": func(k *Engine) { k.FetchTokenUs = -1 },
	} {
		k := good()
		spoil(&k)
		if f, err := k.facts(); err == nil {
			t.Errorf("%s: %+v", name, f)
		}
	}
}

func FuzzKeeper(f *testing.F) {
	f.Add([]byte(`{"id":"e","unit_tokens":64,"unit_digest":"0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a","token_us":1e4,"fetch_us":3}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var k Engine
		if json.Unmarshal(b, &k) != nil {
			return
		}
		facts, err := k.facts()
		if err != nil {
			return
		}
		fetch, compute, _ := facts.Worth(facts.UnitTokens)
		if facts.UnitTokens < 1 || facts.UnitTokens > maxUnitTokens || fetch < 0 || compute < 0 {
			t.Fatalf("%+v", facts)
		}
	})
}

// However many tenants there are, few are told apart, and no object is left out.
func TestKeptGroups(t *testing.T) {
	var g keptGroups
	key := func(tag string) string { return keys.KeyPrefix + tag + strings.Repeat("0", 56) }
	var bytes, objects uint64
	for i := range 3 * maxGroups {
		g.add(&store.Object{Tenant: "t" + strings.Repeat("x", i), Key: key("aabbccdd"), Bytes: 10, AgeSeconds: uint64(i)})
	}
	for age := range 5 {
		g.add(&store.Object{Tenant: "t", Key: key("aabbccdd"), Bytes: 100, AgeSeconds: uint64(10 * age), Pinned: age == 0})
	}
	g.add(&store.Object{Tenant: "t", Key: "kv/other", Bytes: 1})
	all := g.uses()
	if len(all) > maxGroups+1 {
		t.Fatalf("%d groups", len(all))
	}
	for _, u := range all {
		bytes, objects = bytes+u.Bytes, objects+u.Objects
		if u.Tenant == "t" && (u.Tag != "aabbccdd" || u.Objects != 6 || u.PinnedBytes != 100 || u.MedianSeconds != 20 || u.OldestSeconds != 40) {
			t.Errorf("%+v", u)
		}
	}
	if objects != 3*maxGroups+6 || bytes != 30*maxGroups+501 {
		t.Errorf("%d objects of %d bytes", objects, bytes)
	}
	sums := (&Uses{Uses: append(all, Use{Model: "m", Tenant: "t", Finds: 3, TokensAsked: 10})}).By(func(u *Use) string { return u.Tenant })
	for _, u := range sums {
		if u.Model == "t" && (u.Bytes != 510 || u.Finds != 3 || u.MedianSeconds != 20) {
			t.Errorf("%+v", u)
		}
	}
}

// Ages are of one owner's tier, and what cannot be is not taken.
func TestAgesOfTiers(t *testing.T) {
	all := &Uses{Uses: []Use{
		{Agent: "a", Tag: "x", Bytes: 10, MedianSeconds: 5, OldestSeconds: 50},
		{Agent: "a", Tag: "y", Bytes: 20, MedianSeconds: 7, OldestSeconds: 40},
		{Agent: "b", Bytes: 99, MedianSeconds: 9, OldestSeconds: 90},
		{Agent: "a", Below: map[string]uint64{"disk": 31, "s3": 1}},
	}}
	for _, c := range []struct {
		owner, tier    string
		median, oldest uint64
	}{{"a", store.Memory, 7, 50}, {"b", store.Memory, 9, 90}, {"a", "disk", 0, 30}, {"a", "s3", 0, 0}, {"b", "disk", 0, 0}, {"c", store.Memory, 0, 0}} {
		if median, oldest := all.Ages(c.owner, c.tier); median != c.median || oldest != c.oldest {
			t.Errorf("%s of %s: %d and %d s", c.tier, c.owner, median, oldest)
		}
	}
	if rows := all.By(func(u *Use) string { return "all" }); len(rows) != 1 || rows[0].Below != nil || rows[0].Bytes != 129 {
		t.Errorf("%+v", rows)
	}
	many := make(map[string]uint64)
	for n := range 100 {
		many[fmt.Sprint("t", n)] = 1
	}
	for _, u := range []Use{{FoundIn: many}, {Below: many}, {FoundIn: map[string]uint64{"a\nb": 1}}, {Below: map[string]uint64{"": 1}}, {Tenant: strings.Repeat("t", 1<<20)}} {
		if canBe(&u) {
			t.Errorf("%d tiers, %d below", len(u.FoundIn), len(u.Below))
		}
	}
}

// A look at all objects that failed, or took long, is not repeated by the next that asks; a caller
// that waits for one that goes on waits no longer than it has time.
func TestUsesAreLookedAtOnceInAWhile(t *testing.T) {
	var u usesCache
	at, looks := time.Unix(1000, 0), 0
	now := func() time.Time { return at }
	broken := errors.New("broken")
	get := func(takes time.Duration, fails error) error {
		_, err := u.get(t.Context(), now, func(context.Context) ([]Use, error) {
			looks++
			at = at.Add(takes)
			return nil, fails
		})
		return err
	}
	for _, c := range []struct {
		after, takes time.Duration
		fails, want  error
		looks        int
	}{
		{0, 2 * time.Second, broken, broken, 1},
		{39 * time.Second, 0, nil, broken, 1}, // it is remembered
		{time.Second, 0, nil, nil, 2},
		{usesEvery - 1, 0, broken, nil, 2},
		{1, time.Hour, broken, broken, 3},
		{usesLatest, 0, nil, nil, 4},
	} {
		at = at.Add(c.after)
		if err := get(c.takes, c.fails); !errors.Is(err, c.want) || looks != c.looks {
			t.Fatalf("%+v: %v after %d looks", c, err, looks)
		}
	}
	at = at.Add(usesEvery)
	looking, end, ended := make(chan struct{}), make(chan struct{}), make(chan error)
	go func() {
		_, err := u.get(t.Context(), func() time.Time { return at }, func(context.Context) ([]Use, error) {
			close(looking)
			<-end
			return nil, broken
		})
		ended <- err
	}()
	<-looking
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := u.get(over, now, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("who has no time waits: %v", err)
	}
	close(end)
	if err := <-ended; !errors.Is(err, broken) {
		t.Error(err)
	}
}

// What a member tells of objects is bounded, and of objects alone.
func TestStoredThatCannotBe(t *testing.T) {
	long := strings.Repeat("x", 2000)
	o := Object{Key: "kv/1", Tenant: long, Owner: long, Tier: long, Model: long, Checksum: long}
	if !o.Bound() || len(o.String()) > 8*maxText {
		t.Errorf("%d bytes", len(o.String()))
	}
	for _, key := range []string{"", "other", "kv/" + long} {
		if (&Object{Key: key}).Bound() {
			t.Errorf("%.20q can be", key)
		}
	}
}
