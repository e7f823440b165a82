package master

import (
	"testing"

	"meridian/kv"
)

// An order that comes late, or twice, when the owner has its lease again, would
// drop what was stored since.
func TestLateOrderIsNotObeyed(t *testing.T) {
	m := Member{Owner: "a", Incarnation: kv.ID{1}}
	m.Elected(1)
	ask := func(now kv.Instant) uint64 {
		r, due := m.Tick(now)
		if !due {
			t.Fatalf("nothing is due at %d", now)
		}
		return r.Seq
	}
	first := ask(0)
	second := ask(kv.Second)
	drop := Answer{Term: 1, Seq: second, Verdict: Drop, All: true}
	if order := m.Heard(drop); !order.Drop || !order.All {
		t.Fatalf("the order is %+v", order)
	}
	m.Dropped(second)
	if order := m.Heard(drop); order.Drop {
		t.Error("an order that was carried out is obeyed again")
	}
	third := ask(2 * kv.Second)
	m.Heard(Answer{Term: 1, Seq: third, Verdict: Granted, Length: kv.Second})
	for _, a := range []Answer{{Term: 1, Seq: first, Verdict: Drop, All: true}, {Term: 1, Seq: first, Verdict: Tell}} {
		if order := m.Heard(a); order.Drop || order.Tell || !m.Answers(2*kv.Second) {
			t.Errorf("%v of before the lease: %+v, answers: %t", a.Verdict, order, m.Answers(2*kv.Second))
		}
	}
}

// A Renew that is heard twice gets no second order under its number: the owner that
// has carried out the first would be taken for one that has carried out both.
func TestOneNumberIsOneOrder(t *testing.T) {
	const lease = kv.Second
	a, b := Mark{"a", kv.ID{1}}, Mark{"b", kv.ID{2}}
	m := New(0, Options{Term: 1, Lease: lease}, []Mark{a, b}, nil)
	now, seq := kv.Instant(0), uint64(0)
	renew := func(who Mark, seq, dropped uint64) Answer {
		answer, effects := m.Renew(now, Renew{Owner: who.Owner, Incarnation: who.Incarnation, Term: 1, Seq: seq, Dropped: dropped}, kv.Minute)
		for _, e := range effects {
			m.Marked(now, e)
		}
		return answer
	}
	for _, who := range []Mark{a, b} {
		seq++
		if v := renew(who, seq, 0).Verdict; v != Tell {
			t.Fatal(v)
		}
		k := Keys{Owner: who.Owner, Incarnation: who.Incarnation, Term: 1, Seq: seq, Last: true}
		if who == a {
			k.Hashes = []uint64{7}
		}
		if err := m.Tell(now, k); err != nil {
			t.Fatal(err)
		}
	}
	now += lease / 2
	renew(b, 3, 0) // a does not
	now += lease - 1
	for _, e := range m.Tick(now) {
		m.Marked(now, e)
	}
	if v := renew(a, 10, 0); v.Verdict != Drop || len(v.Keys) != 0 {
		t.Fatalf("%+v", v)
	}
	if err := m.Claim(now, Claim{Owner: "b", Incarnation: b.Incarnation, Term: 1, Serial: 1, Hash: 7}); err != nil {
		t.Fatal(err)
	}
	renew(a, 10, 0) // the same message once more
	if v := renew(a, 11, 10); v.Verdict != Drop || len(v.Keys) != 1 {
		t.Errorf("a is back with a key that is b's: %+v", v)
	}
}
