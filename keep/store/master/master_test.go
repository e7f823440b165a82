package master

import (
	"testing"

	"meridian/kv"
)

// A start of an owner that the roster does not name is asked to drop what it has, not
// to tell it: it may have been given up by a master before, and what it held removed.
func TestOldStartsAreNotBelieved(t *testing.T) {
	const grace = 10 * kv.Second
	old, young := kv.ID{1}, kv.ID{2}
	renew := func(incarnation kv.ID, seq uint64) Renew {
		return Renew{Owner: "x", Incarnation: incarnation, Term: 2, Seq: seq}
	}
	for name, c := range map[string]struct {
		roster []Mark
		at     kv.Instant
		want   Verdict
	}{
		"the roster is empty":                         {nil, 0, Drop},
		"the roster names others":                     {[]Mark{{"y", kv.ID{3}}}, 0, Drop},
		"the roster names another start":              {[]Mark{{"x", young}}, 0, NotYet},
		"the other start is not heard of in its time": {[]Mark{{"x", young}}, grace + kv.Second, Drop},
	} {
		m := New(0, Options{Term: 2, Grace: grace}, c.roster, nil)
		for _, e := range m.Tick(c.at) {
			m.Marked(c.at, e)
		}
		a, _ := m.Renew(c.at, renew(old, 1), kv.Minute)
		if a.Verdict != c.want || a.Verdict == Drop && !a.All {
			t.Errorf("%s: %v, all %v; want %v", name, a.Verdict, a.All, c.want)
		}
	}
	m := New(0, Options{Term: 2, Grace: grace}, []Mark{{"x", young}}, nil)
	if a, _ := m.Renew(0, renew(young, 1), kv.Minute); a.Verdict != Tell {
		t.Errorf("the start that the roster names: %v", a.Verdict)
	}
}

// A lease that was asked for before the machine slept is none.
func TestSleepEndsALease(t *testing.T) {
	m := Member{Owner: "x", Incarnation: kv.ID{1}}
	m.Elected(1)
	before, _ := m.Tick(kv.Second)
	grant := func(r Renew) { m.Heard(Answer{Term: 1, Seq: r.Seq, Verdict: Granted, Length: 3 * kv.Second}) }
	grant(before)
	late, _ := m.Tick(3 * kv.Second)
	if !m.Answers(2 * kv.Second) {
		t.Fatal("no lease")
	}
	m.Slept()
	grant(late)
	if m.Answers(3*kv.Second + 1) {
		t.Error("a lease of before the sleep")
	}
	after, due := m.Tick(3*kv.Second + 2)
	if !due {
		t.Fatal("it does not ask again")
	}
	grant(after)
	if !m.Answers(4 * kv.Second) {
		t.Error("no lease after the sleep")
	}
}

// A master that stood still blames no owner for what it did not hear meanwhile; one
// that says nothing afterwards lapses.
func TestAMasterThatStoodStill(t *testing.T) {
	const lease = 4 * kv.Second
	x := Mark{"x", kv.ID{1}}
	m := New(0, Options{Term: 1, Lease: lease, Grace: 3 * lease}, []Mark{x}, nil)
	now := kv.Instant(kv.Second)
	m.Tick(now)
	renew := func(seq uint64) Verdict {
		a, _ := m.Renew(now, Renew{Owner: x.Owner, Incarnation: x.Incarnation, Term: 1, Seq: seq}, kv.Minute)
		return a.Verdict
	}
	if v := renew(1); v != Tell {
		t.Fatal(v)
	}
	if err := m.Tell(now, Keys{Owner: x.Owner, Incarnation: x.Incarnation, Term: 1, Seq: 1, Last: true}); err != nil {
		t.Fatal(err)
	}
	if v := renew(2); v != Granted {
		t.Fatal(v)
	}
	now += 10 * lease
	if lapsed := m.Tick(now); len(lapsed) > 0 {
		t.Fatalf("at once: %v", lapsed)
	}
	lapses := 0
	for end := now + 2*lease; now < end; now += lease / 20 {
		lapses += len(m.Tick(now))
	}
	if lapses != 1 {
		t.Errorf("%d lapses of an owner that says nothing", lapses)
	}
}
