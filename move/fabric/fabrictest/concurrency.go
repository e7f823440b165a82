package fabrictest

import (
	"context"
	"errors"
	"sync"

	"meridian/kv"
	"meridian/move/fabric"
)

var crowdPlays = []testCase{
	{name: "many at a time", run: playCrowd},
	{name: "more than there is room for", run: playFlood},
	{name: "both ways", run: playBothWays},
}

// Transfers of several goroutines, each with pieces of its own in memory that
// all share.
func playCrowd(s *fixture) {
	const posters, each, size = 8, 8, 64 << 10
	near, far := s.memory(s.near, posters*each*size), s.memory(s.far, posters*each*size)
	all, ids := make([]*posted, posters*each), make([]kv.ID, posters*each)
	for i := range all {
		at := uint64(i) * size
		op := s.ops()[i%len(s.ops())]
		p := plan{op: op}
		for from := uint64(0); from < size; from += size / 16 {
			p.near = append(p.near, piece{near, at + from, size/16 - 1})
			p.far = append(p.far, piece{far, at + size - size/16 - from, size/16 - 1})
		}
		all[i] = &posted{s: s, plan: p, data: p.source().gather()}
		ids[i] = s.id()
	}
	var group sync.WaitGroup
	for g := range posters {
		group.Go(func() {
			for i := g * each; i < (g+1)*each; i++ {
				s.postInto(all[i], ids[i])
			}
		})
	}
	group.Wait()
	for _, t := range all {
		if t.Transfer != nil {
			t.must(fabric.Done)
		}
	}
	s.checkAll()
}

// postInto may be called from any goroutine.
func (s *fixture) postInto(t *posted, id kv.ID) {
	prepared, err := s.link.Prepare(t.plan.op, t.plan.near.list(s), t.plan.far.list(s))
	if err == nil {
		defer prepared.Release()
		t.Transfer, err = s.link.Post(context.Background(), prepared, fabric.PostOptions{ID: id})
	}
	if err != nil {
		s.Errorf("post: %v", err)
	}
}

// A fabric may refuse to take more, by name; what it took it does.
func playFlood(s *fixture) {
	const size = 64
	posts := uint64(20_000)
	if s.o.Brief {
		posts /= 4
	}
	near, far := s.memory(s.near, posts*size), s.memory(s.far, posts*size)
	var taken []*posted
	busy := 0
	for i := range posts {
		p := plan{s.ops()[0], pieces{{near, i * size, size}}, pieces{{far, i * size, size}}}
		prepared, err := s.link.Prepare(p.op, p.near.list(s), p.far.list(s))
		if err != nil {
			s.Fatalf("prepare: %v", err)
		}
		t, err := s.link.Post(context.Background(), prepared, fabric.PostOptions{ID: s.id()})
		prepared.Release()
		switch {
		case err == nil:
			taken = append(taken, &posted{Transfer: t, s: s, plan: p, data: p.source().gather()})
		case errors.Is(err, fabric.ErrBusy):
			busy++
		default:
			s.Fatalf("post %d: %v, want nil or %v", i, err, fabric.ErrBusy)
		}
	}
	refusedLater := 0
	for _, t := range taken {
		if state := t.settle(); state != fabric.Done {
			refusedLater++
			t.named(fabric.ErrBusy)
		}
	}
	s.Logf("%d posts: %d refused at once, %d by the peer", posts, busy, refusedLater)
	if len(taken) == refusedLater {
		s.Error("every post was refused")
	}
	s.checkAll()
}

// Both sides post to each other at the same time.
func playBothWays(s *fixture) {
	back := s.link
	if !s.o.Loopback {
		var err error
		if back, err = s.far.fabric.Connect(s.soon(), s.near.self); err != nil {
			s.Fatalf("connect back: %v", err)
		}
	}
	forth := s.link
	var running []*posted
	for _, op := range s.ops() {
		for range 3 {
			s.link = forth
			running = append(running, s.post(s.heavy(op)))
			s.near, s.far, s.link = s.far, s.near, back
			running = append(running, s.post(s.heavy(op)))
			s.near, s.far, s.link = s.far, s.near, forth
		}
	}
	for _, t := range running {
		t.must(fabric.Done)
	}
	s.checkAll()
	if back != forth {
		if err := s.bounded("Link.Close", back.Close); err != nil {
			s.Errorf("closing the link back: %v", err)
		}
	}
}
