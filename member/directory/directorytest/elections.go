package directorytest

import (
	"context"
	"testing"

	"meridian/internal/until"
	"meridian/kv"
	"meridian/member/directory/election"
)

var electionChecks = []check{
	{"one leads, and another when it falls silent", oneLeads},
}

// contend opens an election at a client of its own; without a name it only follows.
func contend(t *testing.T, w *World, name string) (*election.Election, Client) {
	t.Helper()
	c := w.client(t)
	o := election.Options{Directory: c.Directory, Key: home(t) + "seat", TTL: w.TTL}
	if name != "" {
		o.Self = kv.Member{Name: name, Incarnation: kv.ID{1}}
	}
	e, err := election.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), eventually)
		defer cancel()
		if err := e.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return e, c
}

func leads(e *election.Election) bool {
	_, left := e.Authority()
	return left > 0
}

func oneLeads(t *testing.T, w *World) {
	first, network := contend(t, w, "first")
	until.True(t, "the first one leads", func() bool { return leads(first) })
	second, _ := contend(t, w, "second")
	follower, _ := contend(t, w, "")
	seenBy := func(e *election.Election, name string) func() bool {
		return func() bool {
			l, known := e.Leader()
			return known && l.Name == name && l.Incarnation == kv.ID{1}
		}
	}
	sees := func(name string) func() bool { return seenBy(follower, name) }
	until.True(t, "the follower sees the first", sees("first"))
	until.True(t, "the first sees itself", seenBy(first, "first"))
	term, _ := first.Authority()
	if l, _ := follower.Leader(); l.Term != term || leads(second) {
		t.Errorf("the follower sees term %d, the first leads in %d; the second leads: %v", l.Term, term, leads(second))
	}

	network.Reach(Refused)
	until.True(t, "the follower sees the second", func() bool {
		if leads(second) && leads(first) {
			t.Error("two have authority")
		}
		return sees("second")()
	})
	if l, _ := first.Leader(); leads(first) || l.Name != "first" {
		t.Errorf("the first still leads: %v; cut off, it knows of %+v", leads(first), l)
	}
	until.True(t, "the second leads", func() bool { return leads(second) })
	if later, _ := second.Authority(); later <= term {
		t.Errorf("term %d after term %d", later, term)
	}

	network.Reach(Through)
	until.True(t, "the first follows", func() bool {
		own, _ := first.Authority()
		return own == 0 && seenBy(first, "second")()
	})
	if err := second.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	until.True(t, "the first leads again", func() bool { return leads(first) })
	if own, left := second.Authority(); own != 0 || left != 0 {
		t.Errorf("closed, the second leads for %v in term %d", left, own)
	}
	until.True(t, "the follower sees the first again", sees("first"))
	if _, err := election.Open(t.Context(), election.Options{Directory: network.Directory, Key: "not/a/key/"}); err == nil {
		t.Error("an election without a name")
	}
}
