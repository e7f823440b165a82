package election_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"meridian/kv"
	"meridian/member/directory"
	"meridian/member/directory/election"
	"meridian/member/directory/memdir"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	ttl  = 5 * time.Second
	seat = "cache/master"
)

// candidate is an election with the client that it reaches the directory through.
type candidate struct {
	*election.Election
	client *memdir.Client
	name   string
}

// join opens an election; without a name it only follows.
func join(t *testing.T, store *memdir.Store, name string, clock directory.Clock) *candidate {
	t.Helper()
	client, err := store.Open(memdir.ClientOptions{Clock: clock})
	if err != nil {
		t.Fatal(err)
	}
	o := election.Options{Directory: client, Key: seat, TTL: ttl, Clock: clock}
	if name != "" {
		o.Self = kv.Member{Name: name, Incarnation: kv.ID{1}}
	}
	e, err := election.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	c := &candidate{e, client, name}
	t.Cleanup(func() { c.leave(t) })
	return c
}

func (c *candidate) leave(t *testing.T) {
	t.Helper()
	if err := errors.Join(c.Close(context.Background()), c.client.Close(context.Background())); err != nil && !errors.Is(err, directory.ErrUnavailable) {
		t.Error(err)
	}
}

// leads returns the term in which a candidate has authority; 0: it has none.
func (c *candidate) leads() uint64 {
	if term, left := c.Authority(); left > 0 {
		return term
	}
	return 0
}

// follows fails the test unless c knows of this leader.
func (c *candidate) follows(t *testing.T, name string, known bool) {
	t.Helper()
	if l, is := c.Leader(); l.Name != name || is != known || (l.Term == 0) != (name == "") {
		t.Errorf("knows %+v, confirmed %v; want %q, %v", l, is, name, known)
	}
}

// passes lets time pass and everything that is due then happen.
func passes(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func simulated(t *testing.T, run func(t *testing.T, store *memdir.Store)) {
	synctest.Test(t, func(t *testing.T) { run(t, memdir.New(memdir.Options{})) })
}

func TestClosingLetsTheNextLead(t *testing.T) {
	simulated(t, func(t *testing.T, store *memdir.Store) {
		a := join(t, store, "a", nil)
		passes(0)
		b, follower := join(t, store, "b", nil), join(t, store, "", nil)
		passes(3 * ttl)
		term := a.leads()
		follower.follows(t, "a", true)
		b.follows(t, "a", true)
		if term == 0 || b.leads() != 0 || follower.leads() != 0 {
			t.Fatalf("a leads in %d, b in %d, the follower in %d", term, b.leads(), follower.leads())
		}
		if has, lost := a.client.Metrics().Leases, b.client.Metrics().Leases; has != 1 || lost != 0 {
			t.Errorf("the leader has %d leases, the other %d", has, lost)
		}
		changed := follower.Changed()
		if err := a.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		passes(ttl / 5)
		follower.follows(t, "b", true)
		select {
		case <-changed:
		default:
			t.Error("nothing changed")
		}
		if next := b.leads(); next <= term || a.leads() != 0 {
			t.Errorf("term %d after %d; the one that left leads in %d", next, term, a.leads())
		}
		b.leave(t)
		passes(ttl)
		follower.follows(t, "", true)
	})
}

// A leader that is cut off loses its authority before another member can lead; one
// that is back in time keeps its term.
func TestAuthorityEndsBeforeTheLease(t *testing.T) {
	simulated(t, func(t *testing.T, store *memdir.Store) {
		a := join(t, store, "a", nil)
		passes(0)
		b := join(t, store, "b", nil)
		passes(ttl)
		term := a.leads()
		a.client.SetOutage(memdir.Refused)
		passes(ttl / 2)
		a.client.SetOutage(memdir.None)
		passes(2 * ttl)
		if term == 0 || a.leads() != term {
			t.Fatalf("back in time, it leads in term %d; it was %d", a.leads(), term)
		}

		a.client.SetOutage(memdir.Refused)
		for a.leads() != 0 {
			if b.leads() != 0 {
				t.Fatal("two have authority")
			}
			passes(time.Millisecond)
		}
		if still, left := a.Authority(); still != term || left != 0 {
			t.Errorf("in doubt it is for %v in term %d, was in %d", left, still, term)
		}
		a.follows(t, "a", false) // unknown, not dead
		passes(2 * ttl)
		if a.leads() != 0 || b.leads() <= term {
			t.Errorf("a leads in %d, b in %d after %d", a.leads(), b.leads(), term)
		}
		a.client.SetOutage(memdir.None)
		passes(ttl)
		a.follows(t, "b", true)
		if lost, _ := a.Authority(); lost != 0 {
			t.Errorf("back too late, it is in term %d", lost)
		}
	})
}

// An outage of the directory deposes no leader.
func TestOutageKeepsTheLeader(t *testing.T) {
	simulated(t, func(t *testing.T, store *memdir.Store) {
		a := join(t, store, "a", nil)
		passes(0)
		follower := join(t, store, "", nil)
		passes(ttl)
		term := a.leads()
		store.Stop()
		passes(5 * ttl)
		follower.follows(t, "a", false)
		if still, left := a.Authority(); still != term || left != 0 {
			t.Errorf("without a directory it is for %v in term %d, was in %d", left, still, term)
		}
		during := join(t, store, "c", nil) // campaigns in vain
		passes(ttl)
		during.follows(t, "", false)
		store.Start()
		passes(ttl)
		for _, c := range []*candidate{a, follower, during} {
			c.follows(t, "a", true)
		}
		if a.leads() != term || during.leads() != 0 {
			t.Errorf("a leads in term %d, was %d; c in %d", a.leads(), term, during.leads())
		}
	})
}

// A leader whose record is taken away loses its authority, and a record that says
// nothing names no leader.
func TestDeposed(t *testing.T) {
	simulated(t, func(t *testing.T, store *memdir.Store) {
		a := join(t, store, "a", nil)
		passes(ttl)
		term := a.leads()
		if err := a.client.Delete(t.Context(), seat+"/leader", directory.Any); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if a.leads() != 0 {
			t.Error("it leads without its record")
		}
		passes(ttl)
		again := a.leads()
		if again <= term {
			t.Errorf("term %d after %d", again, term)
		}
		for _, value := range []string{"", "{", `{"name":""}`, `{"name":"x","incarnation":"12"}`, `{"name":"` + strings.Repeat("x", 300) + `"}`} {
			if _, err := a.client.Put(t.Context(), directory.Entry{Key: seat + "/leader", Value: []byte(value)}); err != nil {
				t.Fatal(err)
			}
			passes(ttl)
			a.follows(t, "", true)
			if a.leads() != 0 {
				t.Errorf("it leads although %q stands", value)
			}
		}
		if err := a.client.Delete(t.Context(), seat+"/leader", directory.Any); err != nil {
			t.Fatal(err)
		}
		passes(ttl)
		if a.leads() <= again {
			t.Errorf("term %d after %d", a.leads(), again)
		}
	})
}

// A record whose writing is in doubt is given up, not led by.
func TestElectedInDoubt(t *testing.T) {
	simulated(t, func(t *testing.T, store *memdir.Store) {
		watch := join(t, store, "", nil)
		a := join(t, store, "a", nil)
		a.client.SetOutage(memdir.Mute) // obeyed, not answered
		passes(directory.DefaultCallTimeout + ttl)
		if term, _ := a.Authority(); term != 0 {
			t.Errorf("without an answer it leads in term %d", term)
		}
		a.client.SetOutage(memdir.None)
		passes(4 * ttl)
		watch.follows(t, "a", true)
		if l, _ := watch.Leader(); a.leads() != l.Term {
			t.Errorf("it leads in term %d, in the directory it is %d", a.leads(), l.Term)
		}
	})
}

// Where the directory is closed first, nothing waits for ever.
func TestDirectoryClosesFirst(t *testing.T) {
	simulated(t, func(t *testing.T, store *memdir.Store) {
		a := join(t, store, "a", nil)
		passes(ttl)
		if err := a.client.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if _, known := a.Leader(); known || a.leads() != 0 {
			t.Error("it leads, or knows who does, without a directory")
		}
		if err := a.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestBadOptionsAreRefused(t *testing.T) {
	client, err := memdir.New(memdir.Options{}).Open(memdir.ClientOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close(context.Background())
	for name, o := range map[string]election.Options{
		"no directory":   {Key: seat},
		"no key":         {Directory: client},
		"negative time":  {Directory: client, Key: seat, TTL: -1},
		"nameless":       {Directory: client, Key: seat, Self: kv.Member{Incarnation: kv.ID{1}}},
		"too long named": {Directory: client, Key: seat, Self: kv.Member{Name: strings.Repeat("x", 256)}},
	} {
		if e, err := election.Open(t.Context(), o); err == nil {
			t.Errorf("%s was accepted", name)
			_ = e.Close(t.Context())
		}
	}
}
