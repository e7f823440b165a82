package protocol

import (
	"errors"
	"testing"

	"meridian/keep/store/arena"
	"meridian/keep/store/master"
	"meridian/keep/store/owner"
	"meridian/kv"
)

var (
	testOwner  = kv.Member{Name: "a", Incarnation: kv.ID{1}}
	testMaster = kv.Member{Name: "m", Incarnation: kv.ID{2}}
	testClient = kv.Member{Name: "c", Incarnation: kv.ID{3}}
)

// leasedServer is an owner with a lease of an hour under the first term.
func leasedServer(t *testing.T, o ServerOptions) (*Server, *owner.Owner) {
	t.Helper()
	return leasedServerIn(t, o, make([]byte, 1<<20))
}

// leasedServerIn is the same in memory that the test writes to.
func leasedServerIn(t *testing.T, o ServerOptions, memory []byte) (*Server, *owner.Owner) {
	t.Helper()
	heap, err := arena.Format(memory, arena.Options{Headers: 64})
	if err != nil {
		t.Fatal(err)
	}
	objects, err := owner.New(heap, owner.Options{})
	if err != nil {
		t.Fatal(err)
	}
	o.Self = testOwner
	s := NewServer(o, objects)
	s.Elected(0, testMaster, 1)
	s.Receive(0, testMaster, 0, &Answer{master.Answer{Term: 1, Seq: 1, Verdict: master.Granted, Length: 60 * kv.Minute}})
	return s, objects
}

// only is the effect of a kind, of which there must be one.
func only[E Effect](t *testing.T, effects []Effect) (found E) {
	t.Helper()
	n := 0
	for _, e := range effects {
		if e, is := e.(E); is {
			found = e
			n++
		}
	}
	if n != 1 {
		t.Fatalf("%d of %T in %+v", n, found, effects)
	}
	return found
}

// claimed has the master give a key to the owner that asks for it.
func claimed(t *testing.T, s *Server, now kv.Instant, effects []Effect) []Effect {
	t.Helper()
	ask := only[Send](t, effects)
	return s.Receive(now, testMaster, ask.Request, &Claimed{Term: 1})
}

// A writer that took too long may still write, on the owner's own agent as
// elsewhere: its room is no other object's until its grant is revoked.
func TestRoomIsKeptUntilItsWriterIsStopped(t *testing.T) {
	for _, from := range []kv.Member{testClient, testOwner} {
		s, objects := leasedServer(t, ServerOptions{WriteTimeout: kv.Second})
		grant := only[Grant](t, claimed(t, s, 0, s.Receive(0, from, 7, &Open{Name: []byte("\x00k"), Bytes: 100})))
		s.Granted(0, grant.Write, Span{Grant: kv.ID{9}}, nil)
		revoke := only[Revoke](t, s.Tick(2*kv.Second))
		s.Scan(kv.Minute)
		if objects.Stats().HeapUsed == 0 {
			t.Errorf("the room of a writer on %s is free before it is stopped", from.Name)
		}
		s.Revoked(kv.Minute, revoke.Write, nil)
		if used := objects.Stats().HeapUsed; used != 0 {
			t.Errorf("%d bytes of a writer on %s are taken after it was stopped", used, from.Name)
		}
	}
}

// What an operation has given up is not answered any more.
func TestGivenUpIsNotAnswered(t *testing.T) {
	o := NewOperation(&Remove{Name: []byte("\x00k")}, []kv.Member{testOwner}, kv.Minute)
	o.Begin(0)
	o.Answered(0, &Reply{problemOf(owner.ErrMissing)})
	if step := o.Unanswered(0, ErrUnavailable); step.Wake == 0 {
		t.Fatalf("it does not wait: %+v", step)
	}
	defer func() {
		if recover() == nil {
			t.Error("who the master names is taken for the end of the remove")
		}
	}()
	o.Answered(0, &Owners{Names: []string{"a"}})
}

// A put whose key another owner has goes there, and hears what is true of it: it
// exists, or it is only being written, or no owner has it any more.
func TestTakenIsAskedOfItsOwner(t *testing.T) {
	other := kv.Member{Name: "b", Incarnation: kv.ID{4}}
	taken := func(t *testing.T) *Operation {
		t.Helper()
		o := NewOperation(&Put{Name: []byte("\x00k"), Value: []byte("v")}, []kv.Member{testOwner, other}, kv.Minute)
		o.Begin(0)
		if step := o.Answered(0, &Reply{problemOf(master.ErrTaken)}); !step.ToMaster {
			t.Fatalf("it does not ask who has the key: %+v", step)
		}
		return o
	}
	for _, says := range []error{nil, owner.ErrExists, owner.ErrBusy} {
		o := taken(t)
		if step := o.Answered(0, &Owners{Names: []string{"b"}}); step.To != other {
			t.Fatalf("it does not ask b: %+v", step)
		}
		if step := o.Answered(0, &Reply{problemOf(says)}); !step.Over || !errors.Is(step.Err, says) {
			t.Errorf("b says %v, and the put is told %+v", says, step)
		}
	}
	for _, says := range []error{owner.ErrFull, owner.ErrStale, master.ErrTaken, master.ErrSilent} {
		o := taken(t)
		o.Answered(0, &Owners{Names: []string{"b"}})
		if step := o.Answered(0, &Reply{problemOf(says)}); step.Wake == 0 {
			t.Errorf("b says %v, and the put does not begin again: %+v", says, step)
		}
	}
	o := taken(t)
	step := o.Answered(0, &Owners{Names: []string{""}})
	if step.Wake == 0 {
		t.Fatalf("no owner has the key any more, and the put does not wait: %+v", step)
	}
	if step = o.Wake(step.Wake, nil); step.To != testOwner {
		t.Errorf("it does not begin again: %+v", step)
	}
}

// Who calls an object broken has its owner look: at that one, not at what was put in its
// place, and only what is found to be broken goes.
func TestBrokenIsLookedAt(t *testing.T) {
	s, objects := leasedServer(t, ServerOptions{})
	key := []byte("\x00k")
	plan, err := objects.Reserve(0, owner.Put{Key: key, Bytes: 100})
	if err != nil {
		t.Fatal(err)
	}
	if err := objects.Commit(0, plan, 7); err != nil {
		t.Fatal(err)
	}
	if effects := s.Receive(0, testClient, 1, &Remove{Name: key, Checksum: 6}); !errors.Is(only[Send](t, effects).Message.(*Reply).Problem.Err(), owner.ErrMissing) {
		t.Errorf("another object: %+v", effects)
	}
	for _, c := range []struct {
		found error
		left  bool
	}{{nil, true}, {arena.ErrTorn, false}} {
		look := only[Verify](t, s.Receive(0, testClient, 1, &Remove{Name: key, Checksum: 7}))
		if look.Location.Offset != plan.Offset || look.Location.Bytes != 100 || look.Location.Checksum != 7 {
			t.Fatalf("%+v", look)
		}
		answered := 0
		for _, e := range s.Looked(kv.Second, look, c.found) {
			if send, is := e.(Send); is && send.To == testClient && send.Message.(*Reply).Problem.Err() != nil {
				answered++
			}
		}
		if objects.Has(key) != c.left || answered != 1 || len(s.reads) != 0 || len(s.shares) != 0 {
			t.Errorf("%v: it is there: %t, %d answers, %d reads, %v", c.found, !c.left, answered, len(s.reads), s.shares)
		}
	}
}

// What an owner reads from its client's memory is written to its room until it says that
// it has ended: nothing else gets that room before, whatever becomes of the put.
func TestRoomIsKeptUntilItIsFetched(t *testing.T) {
	source := Span{Region: 1, Epoch: 1, Length: 100, Grant: kv.ID{9}}
	begin := func(s *Server) Fetch {
		return only[Fetch](t, claimed(t, s, 0, s.Receive(0, testClient, 7, &PutFrom{Name: []byte("\x00k"), Source: source, PatienceMs: 1000})))
	}
	answers := func(effects []Effect) (to []error) {
		for _, e := range effects {
			if send, is := e.(Send); is && send.To == testClient && send.Request == 7 {
				to = append(to, send.Message.(*Reply).Problem.Err())
			}
		}
		return to
	}
	for name, test := range map[string]struct {
		overdue bool
		err     error
		stored  bool
	}{
		"in time": {stored: true}, "overdue": {overdue: true}, "its source was closed": {err: ErrUnavailable}, "both": {overdue: true, err: ErrUnavailable},
		"other bytes came": {err: arena.ErrTorn},
	} {
		s, objects := leasedServer(t, ServerOptions{})
		fetch := begin(s)
		if fetch.Source != source || fetch.From != testClient || fetch.Plan.Bytes != 100 || fetch.For != kv.Second {
			t.Fatalf("%s: %+v", name, fetch)
		}
		var told []error
		came := test.err
		if test.overdue {
			told = answers(s.Scan(2 * kv.Second))
			test.err = ErrUnavailable
		}
		if objects.Stats().HeapUsed == 0 {
			t.Errorf("%s: its room is free while it is read", name)
		}
		told = append(told, answers(s.Fetched(2*kv.Second, fetch.Write, 5, came))...)
		if len(told) != 1 || !errors.Is(told[0], test.err) {
			t.Errorf("%s: its client was told %v", name, told)
		}
		if stats := objects.Stats(); (stats.Ready == 1) != test.stored || stats.Writing != 0 || (stats.HeapUsed > 0) != test.stored || len(s.shares) != 0 {
			t.Errorf("%s: %+v, %v", name, stats, s.shares)
		}
		if more := s.Fetched(2*kv.Second, fetch.Write, 5, nil); len(more) != 0 {
			t.Errorf("%s: once more: %+v", name, more)
		}
	}
}

// A value that was lent for a call is the server's own when its key must be waited for.
func TestLentValueIsKept(t *testing.T) {
	s, _ := leasedServer(t, ServerOptions{})
	m := &Put{Name: []byte("\x00k"), Value: []byte("value")}
	effects := s.Receive(0, testClient, 7, m)
	s.Keep(m)
	copy(m.Value, "other")
	if seal := only[Seal](t, claimed(t, s, 0, effects)); string(seal.Data) != "value" {
		t.Errorf("%q is stored", seal.Data)
	}
}

// A value that is stored at once is not copied.
func TestLentValueIsStored(t *testing.T) {
	s, _ := leasedServer(t, ServerOptions{})
	m := &Put{Name: []byte("\x00k"), Value: []byte("value")}
	seal := only[Seal](t, claimed(t, s, 0, s.Receive(0, testClient, 7, m)))
	s.Keep(m)
	if &seal.Data[0] != &m.Value[0] {
		t.Error("it was copied before")
	}
}
