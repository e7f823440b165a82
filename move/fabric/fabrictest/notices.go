package fabrictest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"meridian/kv"
	"meridian/move/fabric"
)

var noticePlays = []testCase{
	{name: "notified after the data is in place", rounds: 2, run: playNotified},
	{name: "notified without data", run: playNotifiedAlone},
	{name: "notified in order", rounds: 3, run: playNotifiedInOrder},
	{name: "notified into a full queue", run: playNotifiedBusy},
	{name: "not notified", run: playNotNotified},
}

// placed checks, in the callback, that the bytes are where they belong.
func (p *posted) placed() {
	if !bytes.Equal(p.plan.destination().hold(), p.data) {
		p.s.Errorf("the notification of a %v came before its data", p.plan.op)
	}
}

// delivered demands one notification of a transfer, and what it says.
func (s *fixture) delivered(id kv.ID, payload []byte) {
	s.Helper()
	got := s.far.events.of(id)
	if len(got) != 1 {
		s.Errorf("notified %d times, want once", len(got))
		return
	}
	n, self := got[0], s.near.self
	if n.From != self.Name || n.Incarnation != self.Incarnation || !bytes.Equal(n.Payload, payload) {
		s.Errorf("notified %q from %s %s, want %q from %s %s", n.Payload, n.From, n.Incarnation, payload, self.Name, self.Incarnation)
	}
}

func playNotified(s *fixture) {
	s.needNotify()
	for _, op := range s.ops() {
		for _, payload := range [][]byte{nil, []byte("x"), bytes.Repeat([]byte("payload "), 500)} {
			for _, p := range []plan{s.light(op), s.heavy(op), {op: op}} {
				o := fabric.PostOptions{ID: s.id(), Notify: true, Notification: payload}
				t := s.ready(p)
				s.far.events.onNotified(func(fabric.Notification) error {
					t.placed()
					return nil
				})
				t.startAs(context.Background(), o).must(fabric.Done)
				s.delivered(o.ID, payload)
			}
		}
	}
	time.Sleep(s.o.Quiet)
	if got, want := len(s.far.events.all()), 9*len(s.ops()); got != want {
		s.Errorf("%d notifications, want %d", got, want)
	}
	s.checkAll()
}

func playNotifiedAlone(s *fixture) {
	s.needNotify()
	for i, payload := range [][]byte{nil, []byte("alone"), bytes.Repeat([]byte{7}, 4096)} {
		id := s.id()
		for range 3 { // repeating is safe
			if err := s.link.Notify(s.soon(), id, payload); err != nil {
				s.Errorf("notify: %v", err)
			}
		}
		s.delivered(id, payload)
		time.Sleep(s.o.Quiet)
		if got := len(s.far.events.all()); got != i+1 {
			s.Errorf("%d notifications, want %d", got, i+1)
		}
	}
}

// Notify comes after everything posted before it, and one Notify after another.
func playNotifiedInOrder(s *fixture) {
	s.needNotify()
	var running []*posted
	for i := range 12 {
		op := s.ops()[s.random.IntN(len(s.ops()))]
		p := s.light(op)
		if i%4 == 0 {
			p = s.heavy(op)
		}
		running = append(running, s.ready(p))
	}
	for _, t := range running {
		t.startAs(context.Background(), fabric.PostOptions{ID: s.id(), Notify: true})
	}
	for i := range 5 {
		if err := s.link.Notify(s.soon(), s.id(), fmt.Append(nil, i)); err != nil {
			s.Fatalf("notify: %v", err)
		}
	}
	all := s.far.events.all()
	if len(all) != len(running)+5 {
		s.Fatalf("%d notifications when the last Notify returned, want %d", len(all), len(running)+5)
	}
	for i, n := range all[len(running):] {
		if string(n.Payload) != fmt.Sprint(i) {
			s.Errorf("%q came in place of %d", n.Payload, i)
		}
	}
	for _, t := range running {
		t.must(fabric.Done)
	}
	s.checkAll()
}

// A refusal reaches the poster; it is not Done, and data that arrived is
// not denied.
func playNotifiedBusy(s *fixture) {
	s.needNotify()
	var full atomic.Bool
	s.far.events.onNotified(func(fabric.Notification) error {
		if full.Load() {
			return fmt.Errorf("%w: 0 places", fabric.ErrBusy)
		}
		return nil
	})
	for _, op := range s.ops() {
		full.Store(true)
		refused := s.ready(s.light(op)).startAs(context.Background(), fabric.PostOptions{ID: s.id(), Notify: true})
		if state := refused.end(); state == fabric.Done {
			s.Errorf("%v is done, but its notification was refused", op)
		}
		refused.named(fabric.ErrBusy)
		refused.settle()
		s.checkAll()
		if err := s.link.Notify(s.soon(), s.id(), []byte("no room")); !errors.Is(err, fabric.ErrBusy) {
			s.Errorf("notify into a full queue: %v, want %v", err, fabric.ErrBusy)
		}
		full.Store(false)
		id := s.id()
		if err := s.link.Notify(s.soon(), id, []byte("room")); err != nil {
			s.Errorf("notify: %v", err)
		}
		s.delivered(id, []byte("room"))
	}
	if got, want := len(s.far.events.all()), len(s.ops()); got != want {
		s.Errorf("%d notifications, want %d", got, want)
	}
	s.works()
}

func playNotNotified(s *fixture) {
	s.works()
	time.Sleep(s.o.Quiet)
	if got := len(s.far.events.all()); got != 0 {
		s.Errorf("%d notifications of transfers that have none", got)
	}
}
