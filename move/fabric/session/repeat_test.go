package session

import (
	"errors"
	"testing"

	"meridian/move/fabric"
	"meridian/move/mrdn"
)

// An answer that is heard twice is one answer.
func TestAPartIsAcknowledgedOnce(t *testing.T) {
	s := posted(t, fabric.Write, 2, false)
	s.Leaving(id)
	for range 2 {
		s.Left(id)
	}
	for range 3 {
		if effects := s.Acked(mrdn.Ack{ID: id, Part: 1}); len(effects) != 0 {
			t.Fatalf("one part of two, heard again: %+v", effects)
		}
	}
	if end, over := ended(s.Acked(mrdn.Ack{ID: id, Part: 0})); !over || end.State != fabric.Done {
		t.Errorf("%+v", end)
	}
}

// A peer that has done a transfer before answers at once, while its bytes still
// leave here: they must stop before the caller hears that it is done.
func TestDoneBeforeAllHasLeftIsQuiet(t *testing.T) {
	s := posted(t, fabric.Write, 2, false)
	s.Leaving(id)
	s.Left(id)
	s.Acked(mrdn.Ack{ID: id, Part: 0})
	effects := s.Acked(mrdn.Ack{ID: id, Part: 1})
	if len(effects) != 2 || effects[0].Kind != Quiet || effects[1].Kind != Ended || effects[1].State != fabric.Done {
		t.Errorf("%+v", effects)
	}
}

// A part of a read that is heard twice does not stay for want of the others.
func TestAReadHeardTwiceDoesNotStay(t *testing.T) {
	in := NewServer(1, 4)
	begin := mrdn.Begin{ID: id, Parts: 2}
	for _, part := range []uint16{0, 1, 1} {
		begin.Part = part
		if _, err := in.Begin(begin); err != nil {
			t.Fatalf("part %d: %v", part, err)
		}
		in.Served(id)
	}
	if n := in.Len(); n != 0 {
		t.Errorf("%d reads run, and all was given", n)
	}
}

// A poster that repeats a transfer hears that nothing happened only if nothing did.
func TestRepeatsAreToldWhatHappened(t *testing.T) {
	cause := errors.New("cause")
	for name, c := range map[string]struct {
		end       func(*Server)
		parts     uint16
		untouched bool
	}{
		"refused":        {func(in *Server) { in.Refused(id, 0, cause) }, 1, true},
		"refused a part": {func(in *Server) { in.Refused(id, 0, cause) }, 2, false},
		"failed":         {func(in *Server) { in.Failed(id, 0, cause) }, 1, false},
		"cancelled":      {func(in *Server) { in.Cancelled(id) }, 1, false},
		"not notified":   {func(in *Server) { in.Placed(id, 0); in.Delivered(id, 0, cause) }, 1, false},
	} {
		in := NewServer(1, 4)
		begin := mrdn.Begin{ID: id, Write: true, Parts: c.parts, Notify: true}
		if _, err := in.Begin(begin); err != nil {
			t.Fatal(err)
		}
		c.end(in)
		effects, err := in.Begin(begin)
		if err == nil || len(effects) != 1 || effects[0].Kind != SendAck || effects[0].Untouched != c.untouched {
			t.Errorf("%s: %v, %+v", name, err, effects)
		}
	}
}

// A notification that follows a read does not end what is still given under its
// id: a fence must find it.
func TestANoticeLeavesAReadThatRuns(t *testing.T) {
	in := NewServer(1, 4)
	if _, err := in.Begin(mrdn.Begin{ID: id, Parts: 1}); err != nil {
		t.Fatal(err)
	}
	if effects := in.Noticed(mrdn.Notice{ID: id}); !has(effects, Deliver) {
		t.Fatalf("%+v", effects)
	}
	in.Delivered(id, mrdn.NoticeAck, nil)
	if effects := in.Failed(id, 0, errors.New("fenced")); !has(effects, Quiet) || !has(effects, SendAck) {
		t.Errorf("the transfer was not stopped, or the poster not told: %+v", effects)
	}
	if effects := in.Noticed(mrdn.Notice{ID: id}); has(effects, Deliver) {
		t.Error("the notification came twice")
	}
}
