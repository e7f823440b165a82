package agent_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"meridian/move/agent"
	"meridian/move/fabric"
)

// A post that repeats one which is just being made finds it.
func TestRepeatedPostsMeet(t *testing.T) {
	const posts = 8
	var begun sync.WaitGroup
	begun.Add(posts)
	first := &script{connect: func(context.Context) error {
		begun.Wait()
		return nil
	}}
	p := couple(t, first.open)
	o := agent.PostOptions{ID: agent.NewID(), Notification: []byte("once")}
	var all sync.WaitGroup
	var same atomic.Pointer[agent.Transfer]
	for range posts {
		all.Go(func() {
			begun.Done()
			tr, err := p.request.Post(soon(t), o)
			if err != nil {
				t.Error(err)
				return
			}
			if was := same.Swap(tr); was != nil && was != tr {
				t.Error("two transfers of one id")
			}
			if err := tr.Await(soon(t)); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	notified(t, p.b, 1)
	if m := p.a.Metrics(); m.Posted != 1 || m.Done != 1 {
		t.Errorf("counted %+v", m)
	}
	local, remote := lists(t, p.a, p.peer, p.b, blocks+1)
	if _, err := mustPrepare(t, p.a, local, remote).Post(t.Context(), o); err == nil || !strings.Contains(err.Error(), "another one") {
		t.Errorf("one id for two requests: %v", err)
	}
}

// What Post refused leaves a record, and its id free.
func TestRefusedPost(t *testing.T) {
	var working atomic.Bool
	first := &script{connect: func(context.Context) error {
		if !working.Load() {
			return fmt.Errorf("%w: not yet", fabric.ErrPeerGone)
		}
		return nil
	}}
	p := coupleOf(t, agent.Options{Fabrics: []agent.Opener{first.open}, Records: 1})
	o := agent.PostOptions{ID: agent.NewID()}
	if _, err := p.request.Post(t.Context(), o); !errors.Is(err, fabric.ErrPeerGone) {
		t.Fatalf("got %v", err)
	}
	if r, err := p.a.Explain(o.ID); err != nil || r.State != fabric.NotSubmitted || !strings.Contains(r.Error, "not yet") {
		t.Errorf("%+v, %v", r, err)
	}
	working.Store(true)
	over(t, p, p.post(t, o), fabric.Done, nil)
	if r, err := p.a.Explain(o.ID); err != nil || r.State != fabric.Done || len(p.a.Transfers()) != 1 {
		t.Errorf("%+v, %v", r, err)
	}
	if m := p.a.Metrics(); m.Posted != 2 || m.Done != 1 || m.Failed != 1 {
		t.Errorf("counted %+v", m)
	}
}

// However many run, each is found: only records of ended ones are limited.
func TestRunningTransfersKeepTheirRecords(t *testing.T) {
	first, posts := hold()
	p := coupleOf(t, agent.Options{Fabrics: []agent.Opener{first.open}, Records: 2})
	a := p.a
	var all []*agent.Transfer
	for range 5 {
		all = append(all, p.post(t, agent.PostOptions{}))
	}
	if again := p.post(t, agent.PostOptions{ID: all[0].ID}); again != all[0] {
		t.Error("a running transfer was forgotten")
	}
	records := a.Transfers()
	if len(records) != 5 || records[0].ID != all[0].ID || records[4].ID != all[4].ID {
		t.Errorf("%d records", len(records))
	}
	for range all {
		(<-posts).finish(fabric.Done, nil)
	}
	if records := a.Transfers(); len(records) != 2 || records[1].ID != all[4].ID {
		t.Errorf("%d records, want the last 2", len(records))
	}
	if _, err := a.Explain(all[0].ID); err == nil {
		t.Error("the oldest is still there")
	}
}
