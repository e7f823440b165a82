package session

import (
	"errors"
	"testing"

	"pgregory.net/rapid"

	"meridian/kv"
	"meridian/move/fabric"
	"meridian/move/mrdn"
)

func ended(effects []Effect) (Effect, bool) {
	for _, e := range effects {
		if e.Kind == Ended {
			return e, true
		}
	}
	return Effect{}, false
}

func has(effects []Effect, kind Kind) bool {
	for _, e := range effects {
		if e.Kind == kind {
			return true
		}
	}
	return false
}

var id = kv.ID{1}

func posted(t *testing.T, op fabric.Op, parts uint16, notice bool) *Poster {
	t.Helper()
	s := NewPoster(2)
	if err := s.Post(id, op, parts, notice); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestWriteIsDoneWithItsLastAck(t *testing.T) {
	s := posted(t, fabric.Write, 2, false)
	for range 2 {
		if _, goes := s.Leaving(id); !goes {
			t.Fatal("a part must leave")
		}
		s.Left(id)
	}
	if _, over := ended(s.Acked(mrdn.Ack{ID: id, Part: 1})); over {
		t.Fatal("done with one part of two")
	}
	end, over := ended(s.Acked(mrdn.Ack{ID: id, Part: 0}))
	if !over || end.State != fabric.Done || end.Err != nil || s.Len() != 0 {
		t.Errorf("%+v", end)
	}
	if late := s.Acked(mrdn.Ack{ID: id, Part: 0}); late != nil {
		t.Errorf("a late ack caused %+v", late)
	}
}

func TestReadIsDoneAfterItsNotice(t *testing.T) {
	s := posted(t, fabric.Read, 1, true)
	s.Leaving(id)
	if effects := s.Arrived(id); !has(effects, SendNotice) || s.Len() != 1 {
		t.Fatalf("%+v", effects)
	}
	if end, _ := ended(s.Acked(mrdn.Ack{ID: id, Part: mrdn.NoticeAck})); end.State != fabric.Done {
		t.Errorf("%+v", end)
	}
}

func TestHowItEnds(t *testing.T) {
	cause := errors.New("cause")
	for name, c := range map[string]struct {
		parts   uint16
		begun   bool
		do      func(*Poster) []Effect
		want    fabric.State
		wrapped error
		tells   bool
	}{
		"stopped before it left":  {1, false, func(s *Poster) []Effect { return s.Stop(id, cause) }, fabric.NotSubmitted, cause, false},
		"stopped on its way":      {1, true, func(s *Poster) []Effect { return s.Stop(id, cause) }, fabric.InDoubt, cause, true},
		"link lost before":        {1, false, func(s *Poster) []Effect { return s.Lost(cause) }, fabric.NotSubmitted, fabric.ErrPeerGone, false},
		"link lost on its way":    {1, true, func(s *Poster) []Effect { return s.Lost(cause) }, fabric.InDoubt, fabric.ErrPeerGone, false},
		"refused whole":           {1, true, nack(mrdn.CodeStaleEpoch, true), fabric.NotSubmitted, fabric.ErrStaleEpoch, false},
		"refused in part":         {2, true, nack(mrdn.CodeStaleEpoch, true), fabric.InDoubt, fabric.ErrStaleEpoch, true},
		"fenced on its way":       {1, true, nack(mrdn.CodeStaleEpoch, false), fabric.InDoubt, fabric.ErrStaleEpoch, true},
		"checksum":                {1, true, nack(mrdn.CodeChecksum, false), fabric.InDoubt, fabric.ErrChecksum, true},
		"answer out of turn":      {1, true, func(s *Poster) []Effect { return s.Acked(mrdn.Ack{ID: id, Part: 5}) }, fabric.InDoubt, fabric.ErrRefused, true},
		"notice it did not send":  {1, true, func(s *Poster) []Effect { return s.Acked(mrdn.Ack{ID: id, Part: mrdn.NoticeAck}) }, fabric.InDoubt, fabric.ErrRefused, true},
		"local memory went wrong": {1, true, func(s *Poster) []Effect { return s.Failed(id, cause) }, fabric.InDoubt, cause, true},
	} {
		s := posted(t, fabric.Write, c.parts, false)
		if c.begun {
			s.Leaving(id)
		}
		effects := c.do(s)
		end, over := ended(effects)
		if !over || end.State != c.want || !errors.Is(end.Err, c.wrapped) || s.Len() != 0 {
			t.Errorf("%s: %+v", name, effects)
		}
		if effects[0].Kind != Quiet || has(effects, SendCancel) != c.tells {
			t.Errorf("%s: %+v; memory must be quiet first, the peer told: %v", name, effects, c.tells)
		}
		if _, goes := s.Leaving(id); goes {
			t.Errorf("%s: a part left after the end", name)
		}
	}
}

func nack(code mrdn.Code, untouched bool) func(*Poster) []Effect {
	return func(s *Poster) []Effect { return s.Acked(mrdn.Ack{ID: id, Code: code, Untouched: untouched}) }
}

func TestBounds(t *testing.T) {
	s := posted(t, fabric.Write, 1, false)
	if err := s.Post(id, fabric.Write, 1, false); err == nil {
		t.Error("one id, two transfers")
	}
	if err := s.Post(kv.ID{2}, fabric.Write, 1, false); err != nil {
		t.Fatal(err)
	}
	if err := s.Post(kv.ID{3}, fabric.Write, 1, false); !errors.Is(err, fabric.ErrBusy) {
		t.Errorf("over the limit: %v", err)
	}
	in := NewServer(1, 4)
	if _, err := in.Begin(mrdn.Begin{ID: id, Write: true, Parts: 1}); err != nil {
		t.Fatal(err)
	}
	if effects, err := in.Begin(mrdn.Begin{ID: kv.ID{2}, Write: true, Parts: 1}); !errors.Is(err, fabric.ErrBusy) || !has(effects, SendAck) {
		t.Errorf("over the limit: %v, %+v", err, effects)
	}
}

func TestContradictionsPoison(t *testing.T) {
	for name, second := range map[string]mrdn.Begin{
		"same part again":   {ID: id, Write: true, Part: 0, Parts: 2},
		"second notice":     {ID: id, Write: true, Part: 1, Parts: 2, Notify: true},
		"other direction":   {ID: id, Part: 1, Parts: 2},
		"other part number": {ID: id, Write: true, Part: 1, Parts: 3},
	} {
		in := NewServer(4, 4)
		if _, err := in.Begin(mrdn.Begin{ID: id, Write: true, Part: 0, Parts: 2, Notify: true}); err != nil {
			t.Fatal(err)
		}
		effects, err := in.Begin(second)
		if err == nil || !has(effects, Quiet) || !has(effects, SendAck) || in.Len() != 0 {
			t.Errorf("%s: %v, %+v", name, err, effects)
		}
	}
}

// TestRepeatsFindTheSameEnd: whatever ended is answered again, not done again.
func TestRepeatsFindTheSameEnd(t *testing.T) {
	begin := mrdn.Begin{ID: id, Write: true, Parts: 1, Notify: true, Notification: []byte("n")}
	in := NewServer(4, 4)
	if _, err := in.Begin(begin); err != nil {
		t.Fatal(err)
	}
	if effects := in.Placed(id, 0); !has(effects, Deliver) {
		t.Fatalf("%+v", effects)
	}
	in.Delivered(id, 0, nil)
	effects, err := in.Begin(begin)
	if err == nil || has(effects, Deliver) || effects[0].Err != nil {
		t.Errorf("a repeat of what is done: %v, %+v", err, effects)
	}
	if effects := in.Noticed(mrdn.Notice{ID: id}); has(effects, Deliver) {
		t.Errorf("the notification came twice: %+v", effects)
	}
	cancelled := kv.ID{2}
	if effects := in.Cancelled(cancelled); effects != nil {
		t.Errorf("%+v", effects)
	}
	if _, err := in.Begin(mrdn.Begin{ID: cancelled, Write: true, Parts: 1}); !errors.Is(err, fabric.ErrCancelled) {
		t.Errorf("a cancel that came first was forgotten: %v", err)
	}
	for i := range byte(4) {
		in.Cancelled(kv.ID{10 + i})
	}
	if len(in.recent.ends) != 4 {
		t.Errorf("%d ends are remembered, the bound is 4", len(in.recent.ends))
	}
}

// TestConversation plays both sides over a lossless network that delivers in
// any order across parts, with cancels, corruption and a full notification
// queue thrown in, and checks what the two sides may claim.
func TestConversation(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		out, in := NewPoster(4), NewServer(4, 16)
		parts := rapid.Uint16Range(1, 4).Draw(t, "parts")
		if err := out.Post(id, fabric.Write, parts, false); err != nil {
			t.Fatal(err)
		}
		placed := make(map[uint16]bool)
		delivered, deliveredEarly := 0, false
		var end *Effect
		var toPoster []mrdn.Ack
		var serve func([]Effect)
		serve = func(effects []Effect) {
			for _, e := range effects {
				switch e.Kind {
				case Deliver:
					delivered++
					deliveredEarly = deliveredEarly || len(placed) < int(parts)
					var err error
					if rapid.IntRange(0, 4).Draw(t, "full") == 0 {
						err = fabric.ErrBusy
						delivered--
					}
					serve(in.Delivered(e.ID, e.Part, err))
				case SendAck:
					code, message := fabric.ToCode(e.Err)
					toPoster = append(toPoster, mrdn.Ack{ID: e.ID, Part: e.Part, Code: code, Message: message})
				}
			}
		}
		hear := func(effects []Effect) {
			for _, e := range effects {
				if e.Kind == Ended {
					if end != nil {
						t.Fatalf("ended twice: %+v and %+v", *end, e)
					}
					end = &e
				}
				if e.Kind == SendCancel {
					serve(in.Cancelled(e.ID))
				}
			}
		}
		waiting := make([]uint16, parts)
		for i := range waiting {
			waiting[i] = uint16(i)
		}
		for len(waiting) > 0 || len(toPoster) > 0 {
			choice := rapid.IntRange(0, 9).Draw(t, "choice")
			switch {
			case choice == 0:
				hear(out.Stop(id, fabric.ErrCancelled))
			case choice < 6 && len(waiting) > 0:
				k := rapid.IntRange(0, len(waiting)-1).Draw(t, "k")
				part := waiting[k]
				waiting = append(waiting[:k], waiting[k+1:]...)
				if _, goes := out.Leaving(id); !goes {
					continue
				}
				hear(out.Left(id))
				effects, refused := in.Begin(mrdn.Begin{ID: id, Write: true, Part: part, Parts: parts, Notify: part == 0, Notification: []byte("n")})
				serve(effects)
				switch {
				case refused != nil:
				case rapid.IntRange(0, 9).Draw(t, "corrupt") == 0:
					serve(in.Failed(id, part, fabric.ErrChecksum))
				default:
					placed[part] = true
					serve(in.Placed(id, part))
				}
			case len(toPoster) > 0:
				k := rapid.IntRange(0, len(toPoster)-1).Draw(t, "ack")
				a := toPoster[k]
				toPoster = append(toPoster[:k], toPoster[k+1:]...)
				hear(out.Acked(a))
			}
		}
		if end == nil {
			t.Fatal("every message was heard and the transfer has no end")
		}
		if end.State == fabric.Done && (len(placed) != int(parts) || delivered != 1) {
			t.Fatalf("done with %d of %d parts and %d notifications", len(placed), parts, delivered)
		}
		if delivered > 1 || deliveredEarly {
			t.Fatalf("%d notifications, early: %v", delivered, deliveredEarly)
		}
		if out.Len() != 0 || in.Len() != 0 && end.State == fabric.Done {
			t.Fatalf("%d and %d transfers are left over", out.Len(), in.Len())
		}
	})
}
