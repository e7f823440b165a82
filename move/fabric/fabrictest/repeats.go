package fabrictest

import (
	"context"
	"sync"
	"time"

	"meridian/move/fabric"
)

var repeatPlays = []testCase{
	{name: "post again while running", run: playRepeatRunning},
	{name: "post again when done", run: playRepeatDone},
	{name: "post at the same time", rounds: 3, run: playRepeatAtOnce},
}

func (s *fixture) once(t *posted) {
	s.Helper()
	time.Sleep(s.o.Quiet)
	if s.near.fabric.Capabilities().Notify {
		s.delivered(t.ID, []byte("once"))
	}
	s.checkAll()
}

func (s *fixture) onceOptions() fabric.PostOptions {
	notify := s.near.fabric.Capabilities().Notify
	o := fabric.PostOptions{ID: s.id(), Notify: notify}
	if notify {
		o.Notification = []byte("once")
	}
	return o
}

// An ID that is running is the running transfer.
func playRepeatRunning(s *fixture) {
	for _, op := range s.ops() {
		t := s.ready(s.light(op))
		o := s.onceOptions()
		resume := s.stall()
		t.startAs(context.Background(), o)
		for range 3 {
			if again, err := s.link.Post(context.Background(), t.prepared, o); again != t.Transfer || err != nil {
				s.Errorf("posting a running %v again made another transfer: %v", op, err)
			}
		}
		resume()
		t.must(fabric.Done)
		s.once(t)
	}
}

// An ID that is done stays done: its destination may long have another use, so
// a write that is repeated changes nothing there.
func playRepeatDone(s *fixture) {
	for _, op := range s.ops() {
		p := s.light(op)
		o := s.onceOptions()
		first := s.ready(p).startAs(context.Background(), o)
		first.must(fabric.Done)
		p.far[0].memory.renew()
		again := s.ready(p).startAs(context.Background(), o)
		if state := again.end(); state != fabric.Done {
			_, err := again.Status()
			s.Errorf("posting a %v again that was done: %v, %v", op, state, err)
		}
		if op == fabric.Read { // near may be read into again, or left as it was
			got := p.near.hold()
			again.verdict(fabric.InDoubt, p.near.gather(), got)
			p.near.scatter(got)
		}
		s.once(first)
	}
}

func playRepeatAtOnce(s *fixture) {
	for _, op := range s.ops() {
		t := s.ready(s.light(op))
		o := s.onceOptions()
		var posts sync.WaitGroup
		for range 8 {
			posts.Go(func() {
				t, err := s.link.Post(context.Background(), t.prepared, o)
				if err == nil {
					err = t.Await(s.soon())
				}
				if err != nil {
					s.Errorf("%v posted eight times at once: %v", op, err)
				}
			})
		}
		posts.Wait()
		t.plan.destination().scatter(t.data)
		time.Sleep(s.o.Quiet)
		if o.Notify {
			s.delivered(o.ID, o.Notification)
		}
		s.checkAll()
	}
}
