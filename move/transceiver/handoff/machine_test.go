package handoff

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"meridian/kv"
)

var allReady = []string{"source freed", "destination ready"}

// whole plays a hand-off from its offer to its end.
func (s *fixture) whole(push bool) {
	s.offer(1)
	s.accept(push)
	s.play()
	s.do(memberP, s.source.Progress(s.now, s.transfer, 2, 0))
	s.play()
}

// record is what was kept of one side.
func (s *fixture) record(as Role) *Record {
	for _, r := range s.records {
		if r.As == as {
			return r
		}
	}
	s.t.Fatalf("no record as %v", as)
	return nil
}

func bothWays(t *testing.T, play func(t *testing.T, push bool)) {
	t.Helper()
	for _, push := range []bool{false, true} {
		t.Run(fmt.Sprintf("push=%t", push), func(t *testing.T) { play(t, push) })
	}
}

func TestHandOff(t *testing.T) {
	bothWays(t, func(t *testing.T, push bool) {
		s := newStage(t)
		s.whole(push)
		s.ended(allReady...)
		s.empty()
		for _, as := range []Role{Source, Destination} {
			if r := s.record(as); r.Bytes != 96 || r.Problem != "" || len(r.Flows) != 2 || r.Flows[1] != (FlowRecord{Flow: Flow{1, 0}, Bytes: 48, Fabric: r.Flows[1].Fabric, Attempts: r.Flows[1].Attempts}) {
				t.Errorf("%v", r)
			}
		}
	})
}

// Every message twice, at once.
func TestMessagesTwice(t *testing.T) {
	bothWays(t, func(t *testing.T, push bool) {
		s := newStage(t)
		s.offer(2)
		s.accept(push)
		for len(s.post) > 0 {
			l := s.post[0]
			s.post = s.post[1:]
			s.deliver(l)
			s.deliver(l)
		}
		s.ended(allReady...)
		s.empty()
	})
}

// Every message again when all is over, forwards and backwards.
func TestMessagesAfterTheEnd(t *testing.T) {
	bothWays(t, func(t *testing.T, push bool) {
		s := newStage(t)
		s.whole(push)
		old := slices.Clone(s.said)
		for range 2 {
			for _, l := range old {
				s.deliver(l)
			}
			s.play()
			s.pass(Second)
			slices.Reverse(old)
		}
		s.ended(allReady...)
		s.pass(2 * Minute)
		s.ended(allReady...)
		s.empty()
	})
}

// Any one message is lost, or comes only when all is over: the hand-off succeeds
// all the same, by asking again.
func TestAnyMessageLateOrLost(t *testing.T) {
	bothWays(t, func(t *testing.T, push bool) {
		for missing := 0; ; missing++ {
			s := newStage(t)
			s.join(oneRank("prefill", 2, memberP, memberX), oneRank("decode", 2, memberX, memberD)) // with followers
			s.offer(2)
			s.accept(push)
			var late []queuedMessage
			for n := 0; len(s.post) > 0; n++ {
				l := s.post[0]
				s.post = s.post[1:]
				if n == missing && l.from != l.to { // what is said within a process is not lost
					late = append(late, l)
					continue
				}
				s.deliver(l)
			}
			s.pass(15 * Second)
			s.ended(allReady...)
			for _, l := range late {
				s.deliver(l)
			}
			s.pass(2 * Minute)
			s.ended(allReady...)
			s.empty()
			if missing > len(s.said) {
				return
			}
		}
	})
}

// failing moves nothing.
func failing(err error) func(Move) (Movement, bool) {
	return func(m Move) (Movement, bool) { return Movement{Flow: m.FlowGrant.Flow, Err: err}, true }
}

// One rank that fails fails all; another decode engine may come.
func TestOneRankFails(t *testing.T) {
	bothWays(t, func(t *testing.T, push bool) {
		s := newStage(t)
		good := s.move
		s.move = func(m Move) (Movement, bool) {
			if m.FlowGrant.Src == 1 {
				return failing(errors.New("a cable"))(m)
			}
			return good(m)
		}
		s.offer(2)
		s.accept(push)
		s.play()
		s.ended("source dropped", "destination failed", "destination freed")
		if err := s.events[0].Problem.Err(); !errors.Is(err, ErrMove) {
			t.Errorf("%v", err)
		}
		s.events, s.move = nil, good
		s.accept(push)
		s.play()
		s.ended(allReady...)
		s.pass(Minute)
		s.empty()
	})
}

// A link that breaks is tried again, so often and no more.
func TestMovesAreTriedAgain(t *testing.T) {
	s := newStage(t)
	good, tries := s.move, 0
	s.move = func(m Move) (Movement, bool) {
		if tries++; tries < 3 {
			return Movement{Flow: m.FlowGrant.Flow, Err: errors.New("reset"), Again: true}, true
		}
		return good(m)
	}
	s.whole(false)
	s.ended(allReady...)
	if r := s.record(Destination); r.Retries != 2 {
		t.Errorf("%d retries", r.Retries)
	}
	s = newStage(t)
	s.move = func(m Move) (Movement, bool) {
		return Movement{Flow: m.FlowGrant.Flow, Err: errors.New("reset"), Again: true}, true
	}
	s.offer(2)
	s.accept(false)
	s.play()
	s.ended("source dropped", "destination failed", "destination freed")
}

// A destination that cannot take layers one by one is answered when all are there.
func TestDestinationWithoutLayers(t *testing.T) {
	s := newStage(t)
	s.offer(1)
	s.accept(false)
	ask := *s.post[0].message.(*Ask)
	ask.Capabilities = 0
	s.post[0].message = &ask
	s.play()
	answered := func() bool {
		return slices.ContainsFunc(s.said, func(l queuedMessage) bool { _, is := l.message.(*Answer); return is })
	}
	if answered() {
		t.Fatal("it was answered while layers are missing")
	}
	s.do(memberP, s.source.Progress(s.now, s.transfer, 2, 0))
	s.play()
	if !answered() {
		t.Fatal("it was not answered")
	}
	s.ended(allReady...)
}

// A destination that falls silent loses its place: first everything is closed, then
// the offer is there for another.
func TestSilentDestination(t *testing.T) {
	s := newStage(t)
	s.move = func(Move) (Movement, bool) { return Movement{}, false }
	s.offer(2)
	s.accept(false)
	s.play()
	if n := s.grants[place{memberP, SessionID{HomeRole{memberP, Source}, 1}}]; n != 2 {
		t.Fatalf("%d grants", n)
	}
	for s.now += 31 * Second; len(s.events) == 0; { // and nothing of the destination's
		s.do(memberP, s.source.Tick(s.now))
		s.play()
	}
	s.ended("source dropped", "destination failed", "destination freed") // it hears of it in the end
	if n := s.grants[place{memberP, SessionID{HomeRole{memberP, Source}, 1}}]; n != 0 {
		t.Errorf("%d grants", n)
	}
}

// A follower that cannot be reached keeps blocks from being free, and it is said.
// When its agent is known to be gone they are.
func TestUnreachableFollower(t *testing.T) {
	bothWays(t, func(t *testing.T, push bool) {
		s := newStage(t)
		s.join(oneRank("prefill", 2, memberP, memberX), oneRank("decode", 1, memberD))
		s.offer(2)
		s.move = func(Move) (Movement, bool) { return Movement{}, false }
		s.accept(push)
		s.play()
		delete(s.followers, memberX)
		s.followers[memberX] = NewFollower(Timing{}) // it answers nothing that it is asked
		lost := func() {
			s.post = slices.DeleteFunc(s.post, func(l queuedMessage) bool { return l.to == memberX || l.from == memberX })
		}
		s.do(memberP, s.source.Withdraw(s.now, s.transfer))
		for end := s.now + 15*Second; s.now < end; s.now += 100 * Millisecond {
			s.tick()
			lost()
			s.play()
		}
		s.ended("source stuck", "destination failed", "destination freed")
		for here := range s.grants {
			if here.at == memberX {
				delete(s.grants, here)
			}
		}
		for here := range s.moves {
			if here.at == memberX {
				delete(s.moves, here)
			}
		}
		s.do(memberP, s.source.Gone(s.now, memberX))
		s.play()
		s.ended("source stuck", "source freed", "destination failed", "destination freed")
	})
}

// A ticket that is given back while its source still closes what it opened for
// the session before ends the offer, too.
func TestDeclineWhileClosing(t *testing.T) {
	s := newStage(t)
	s.join(oneRank("prefill", 2, memberP, memberX), oneRank("decode", 1, memberD))
	s.move = func(Move) (Movement, bool) { return Movement{}, false }
	s.offer(2)
	s.accept(false)
	s.play()
	var late []queuedMessage
	playWithoutX := func() {
		for len(s.post) > 0 {
			l := s.post[0]
			if s.post = s.post[1:]; l.to == memberX {
				late = append(late, l)
			} else {
				s.deliver(l)
			}
		}
	}
	s.do(memberP, s.source.offers[s.transfer].close(s.now, ProblemOf(ErrDeadline), false))
	playWithoutX()
	s.do(memberD, s.destination.ReturnTicket(s.now, s.opened()))
	playWithoutX()
	s.post = late
	s.play()
	s.ended("source freed", "destination failed", "destination freed")
	s.empty()
}

// A ticket that is given back after its accept was cancelled before it began ends the
// offer: no source has heard of that cancel. Giving it back again says nothing more.
func TestReturnOfWhatNeverBegan(t *testing.T) {
	s := newStage(t)
	s.join(oneRank("prefill", 1, memberP), oneRank("decode", 1, memberD))
	s.offer(2)
	s.do(memberD, s.destination.Cancel(s.now, s.transfer))
	s.do(memberD, s.destination.Cancel(s.now, s.transfer))
	s.play()
	for range 2 {
		s.do(memberD, s.destination.ReturnTicket(s.now, s.opened()))
		s.play()
	}
	s.ended("source freed")
	s.empty()
}

// A follower forgets old sessions, but not that they are over.
func TestLateOrders(t *testing.T) {
	h := NewFollower(Timing{})
	h.Join("e", "p")
	terms := &Terms{Src: Party{Engine: *oneRank("e", 1, memberD)}, Dst: Party{Engine: *oneRank("f", 1, memberX)}}
	begin := func(session uint64) []Effect {
		return h.Receive(0, memberP, kv.ID{1}, &Order{Session: session, Number: 1, Kind: OrderGrant, As: Source, Engine: "e", Terms: terms, Flows: []FlowGrant{{}}})
	}
	for session := uint64(1); session <= 3*rememberedSessions; session++ {
		id := SessionID{HomeRole{memberP, Source}, session}
		if effects := begin(session); len(effects) != 1 || effects[0].(Grant).Session != id {
			t.Fatalf("session %d: %+v", session, effects)
		}
		h.Receive(0, memberP, kv.ID{1}, &Order{Session: session, Number: 2, Kind: OrderStop, As: Source, Engine: "e"})
		h.Quiesced(0, id)
		h.Receive(0, memberP, kv.ID{1}, &Order{Session: session, Number: 3, Kind: OrderNotifyRanks, As: Source, Engine: "e"})
	}
	for _, session := range []uint64{1, rememberedSessions, 3 * rememberedSessions} {
		effects := begin(session)
		if r, is := effects[0].(Send).Message.(*Report); len(effects) != 1 || !is || r.Phase != Stopped {
			t.Errorf("session %d begins again: %+v", session, effects)
		}
	}
	if len(h.past[HomeRole{memberP, Source}].recent) > rememberedSessions || h.Len() != 0 {
		t.Error("it remembers too much")
	}
}

// A session that has stopped is forgotten in the end, also when its home is on the
// same agent, tells it to stop once more, and then has no more to say.
func TestStoppedSessionOfTheSameAgentIsForgotten(t *testing.T) {
	h := NewFollower(Timing{})
	h.Join("e", "p")
	terms := &Terms{Src: Party{Engine: *oneRank("e", 1, memberP)}, Dst: Party{Engine: *oneRank("f", 1, memberX)}}
	session := SessionID{HomeRole{memberP, Source}, 1}
	h.Receive(0, memberP, kv.ID{1}, &Order{Session: 1, Number: 1, Kind: OrderGrant, As: Source, Engine: "e", Terms: terms, Flows: []FlowGrant{{}}})
	h.Leave("e")
	h.Quiesced(0, session)
	h.Receive(0, memberP, kv.ID{1}, &Order{Session: 1, Number: 2, Kind: OrderStop, As: Source, Engine: "e"})
	if wake := h.Wake(); wake == Never {
		t.Fatal("nothing would ever forget the session")
	} else if h.Tick(wake); h.Len() != 0 {
		t.Errorf("%d sessions are left", h.Len())
	}
}

// Whatever happens in whatever order, each side is told its end once, never
// before it is quiet, and all ends when time passes.
func TestAnyOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newStage(t)
		if rapid.Bool().Draw(t, "followers") {
			s.join(oneRank("prefill", 2, memberP, memberX), oneRank("decode", 2, memberX, memberD))
		}
		s.move = func(m Move) (Movement, bool) { return s.done(m), !rapid.Bool().Draw(t, "it takes long") }
		push := rapid.Bool().Draw(t, "push")
		offered, accepted := false, false
		actions := map[string]func(*rapid.T){
			"offer": func(t *rapid.T) {
				if !offered && s.source.endings[s.transfer].until == 0 {
					offered = true
					s.offer(rapid.IntRange(0, 2).Draw(t, "layers"))
				}
			},
			"accept": func(t *rapid.T) {
				if s.ticket != nil && !accepted {
					accepted = s.tryAccept(push) == nil
				}
			},
			"deliver": func(t *rapid.T) {
				for range rapid.IntRange(1, 8).Draw(t, "letters") {
					if len(s.post) > 0 {
						at := rapid.IntRange(0, len(s.post)-1).Draw(t, "letter")
						l := s.post[at]
						s.post = slices.Delete(s.post, at, at+1)
						s.deliver(l)
					}
				}
			},
			"lose": func(t *rapid.T) {
				if len(s.post) > 0 && s.post[0].from != s.post[0].to {
					s.post = s.post[1:]
				}
			},
			"repeat": func(t *rapid.T) {
				if len(s.said) > 0 {
					s.deliver(s.said[rapid.IntRange(0, len(s.said)-1).Draw(t, "letter")])
				}
			},
			"end a move": func(t *rapid.T) {
				for _, at := range []kv.Member{memberP, memberD, memberX} {
					for _, post := range []HomeRole{{memberP, Source}, {memberD, Destination}} {
						here := place{at, SessionID{post, 1}}
						if moves := s.moves[here]; len(moves) > 0 {
							s.moves[here] = moves[1:]
							s.do(at, s.followers[at].Moved(s.now, here.SessionID, s.done(moves[0]).or(rapid.Bool().Draw(t, "fails"))))
						}
					}
				}
			},
			"compute": func(t *rapid.T) {
				s.do(memberP, s.source.Progress(s.now, s.transfer, rapid.IntRange(0, 2).Draw(t, "layers"), 0))
			},
			"wait": func(t *rapid.T) {
				s.now += Instant(rapid.IntRange(0, int(Second)).Draw(t, "time"))
				s.tick()
			},
		}
		if rapid.Bool().Draw(t, "regret") {
			actions["cancel"] = func(t *rapid.T) { s.do(memberD, s.destination.Cancel(s.now, s.transfer)) }
			actions["withdraw"] = func(t *rapid.T) { s.do(memberP, s.source.Withdraw(s.now, s.transfer)) }
		}
		t.Repeat(actions)
		s.move = func(m Move) (Movement, bool) { return s.done(m), true }
		for range 40 { // all that is still on its way, and time
			s.pass(10 * Second)
		}
		for session, moves := range s.moves {
			if len(moves) > 0 {
				t.Fatalf("%v still moves", session)
			}
		}
		if s.destination.Len() != 0 || s.source.Len() != 0 {
			t.Fatalf("%d offers and %d accepts are left: %s", s.source.Len(), s.destination.Len(), s.story())
		}
		if offered && !slices.ContainsFunc(s.events, func(e Event) bool { return e.As == Source && e.Kind == Freed }) {
			t.Fatalf("the offer's blocks are lost: %s", s.story())
		}
	})
}

func (m Movement) or(fails bool) Movement {
	if fails {
		return Movement{Flow: m.Flow, Err: errors.New("reset"), Again: true}
	}
	return m
}
