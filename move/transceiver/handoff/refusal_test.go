package handoff

import (
	"errors"
	"runtime"
	"slices"
	"strings"
	"testing"

	"meridian/kv"
	"meridian/move/reshard"
)

// A peer that says one thing and then the other is not believed at all.
func TestContradictions(t *testing.T) {
	t.Run("answer", func(t *testing.T) {
		s := newStage(t)
		s.offer(1)
		s.accept(false)
		s.play()
		at := slices.IndexFunc(s.said, func(l queuedMessage) bool { _, is := l.message.(*Answer); return is })
		l := s.said[at]
		other := *l.message.(*Answer)
		other.Digest = kv.Hash{1}
		l.message = &other
		s.deliver(l)
		s.play()
		if err := s.events[0].Problem.Err(); !errors.Is(err, ErrContradiction) {
			t.Errorf("%v", err)
		}
	})
	t.Run("end", func(t *testing.T) {
		s := newStage(t)
		s.move = func(Move) (Movement, bool) { return Movement{}, false }
		s.offer(2)
		s.accept(false)
		s.play()
		done := &End{Session: 1, Ticket: s.ticket, Final: true}
		failed := &End{Session: 1, Ticket: s.ticket, Problem: ProblemOf(ErrDeadline)}
		for _, m := range []Message{done, failed} {
			s.do(memberP, s.source.Receive(s.now, memberD, s.transfer, m))
		}
		s.play()
		if err := s.events[0].Problem.Err(); s.events[0].Kind != Freed || !errors.Is(err, ErrContradiction) {
			t.Errorf("%s", s.story())
		}
	})
	t.Run("report", func(t *testing.T) {
		s := newStage(t)
		s.offer(1)
		s.accept(false)
		s.play()
		at := slices.IndexFunc(s.said, func(l queuedMessage) bool { r, is := l.message.(*Report); return is && r.As == Destination })
		l := s.said[at]
		done := *l.message.(*Report)
		done.Serial, done.Flows = 100, slices.Clone(done.Flows)
		for i := range done.Flows {
			done.Flows[i].Layers = 2
		}
		failed := done
		failed.Serial, failed.Flows = 101, slices.Clone(done.Flows)
		failed.Flows[0].Problem = ProblemOf(ErrMove)
		l.message = &done
		s.deliver(l)
		l.message = &failed
		s.deliver(l)
		s.play()
		if err := s.events[0].Problem.Err(); !errors.Is(err, ErrContradiction) && !errors.Is(err, ErrMove) {
			t.Errorf("%s", s.story())
		}
		if slices.ContainsFunc(s.events, func(e Event) bool { return e.Kind == Ready }) {
			t.Errorf("%s", s.story())
		}
	})
}

// Who is not the destination, the home or a bearer of the ticket has no say.
func TestStrangers(t *testing.T) {
	s := newStage(t)
	s.move = func(Move) (Movement, bool) { return Movement{}, false } // it takes long
	s.offer(2)
	s.accept(false)
	s.play()
	lease := s.source.offers[s.transfer].session.lease
	s.now += Second
	for _, l := range []queuedMessage{
		{memberX, memberP, s.transfer, &Heartbeat{Session: 1}},
		{memberX, memberP, s.transfer, &End{Session: 1, Ticket: []byte("MRDT no ticket at all"), Problem: ProblemOf(ErrCancelled), Final: true}},
		{memberX, memberD, s.transfer, &Ended{Session: 1, Problem: ProblemOf(ErrWithdrawn)}},
		{memberX, memberD, s.transfer, &Refusal{Session: 1, Problem: ProblemOf(ErrUsed)}},
		{memberP, memberD, s.transfer, &Ended{Session: 7, Problem: ProblemOf(ErrWithdrawn)}},
		{memberX, memberD, s.transfer, &Order{Session: 1, Number: 9, Kind: OrderStop, As: Destination, Engine: "decode"}},
		{memberX, memberD, s.transfer, &Report{As: Destination, Session: 1, Number: 1, Serial: 1000, Phase: Stopped}},
	} {
		s.deliver(l)
	}
	s.play()
	if len(s.events) != 0 || s.source.offers[s.transfer].session.lease != lease {
		t.Errorf("%s; the lease went from %d to %d", s.story(), lease, s.source.offers[s.transfer].session.lease)
	}
	another := &Order{Session: 9, Number: 1, Kind: OrderMove, As: Destination, Engine: "decode", Terms: &Terms{}}
	effects := s.followers[memberD].Receive(s.now, memberX, s.transfer, another)
	if r := effects[0].(Send).Message.(*Report); !errors.Is(r.Problem.Err(), ErrMember) || len(effects) != 1 {
		t.Errorf("a stranger's order: %+v", r)
	}
}

// What an ask is refused for, by the source.
func TestAsksAreRefused(t *testing.T) {
	s := newStage(t)
	s.offer(2)
	s.accept(false)
	good := *s.post[0].message.(*Ask)
	s.post = nil
	elsewhere := Ticket{Transfer: s.transfer, Home: kv.Member{Name: "p", Incarnation: kv.ID{8}}, Tokens: 6, Fingerprint: testContent.Fingerprint(testKey), Expires: Never}
	otherPrompt := Ticket{Transfer: s.transfer, Home: memberP, Tokens: 6, Fingerprint: Content{}.Fingerprint(testKey), Expires: Never}
	otherTransfer := Ticket{Transfer: kv.ID{43}, Home: memberP, Tokens: 6, Expires: Never}
	expired := Ticket{Transfer: s.transfer, Home: memberP, Tokens: 6, Fingerprint: testContent.Fingerprint(testKey), Expires: s.now - 1}
	for name, c := range map[string]struct {
		change func(*Ask)
		want   error
	}{
		"forged":         {func(a *Ask) { a.Ticket = elsewhere.Seal(Key{}) }, ErrForged},
		"elsewhere":      {func(a *Ask) { a.Ticket = elsewhere.Seal(testKey) }, ErrElsewhere},
		"other prompt":   {func(a *Ask) { a.Ticket = otherPrompt.Seal(testKey) }, ErrOtherModel},
		"other transfer": {func(a *Ask) { a.Ticket = otherTransfer.Seal(testKey) }, ErrForged},
		"expired":        {func(a *Ask) { a.Ticket = expired.Seal(testKey) }, ErrExpired},
		"version":        {func(a *Ask) { a.Low, a.High = HighVersion+1, HighVersion+2 }, ErrVersion},
		"deadline":       {func(a *Ask) { a.RemainingMs = 0 }, ErrDeadline},
		"no such engine": {func(a *Ask) { a.Dst.Engine.Ranks = nil }, ErrTerms},
		// Whose model is another's is not looked at any further.
		"other model": {func(a *Ask) {
			a.Dst.Engine.Side.Geometry = kv.Uniform(1<<14, kv.Layer{KVHeads: 1, HeadDim: 1}, kv.Int8)
			a.Dst.Engine.Ranks = nil
		}, reshard.ErrIncompatible},
		"blocks": {func(a *Ask) { a.Dst.Holding.Tables = [][]uint32{{1}} }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s.post = nil
			ask := good
			ask.Session = 100
			c.change(&ask)
			s.do(memberP, s.source.Receive(s.now, kv.Member{Name: name, Incarnation: kv.ID{7}}, s.transfer, &ask))
			refusal, is := s.post[len(s.post)-1].message.(*Refusal)
			if !is || refusal.Problem.None() || c.want != nil && !errors.Is(refusal.Problem.Err(), c.want) {
				t.Errorf("%+v", s.post)
			}
		})
	}
	t.Run("taken", func(t *testing.T) {
		s.post = nil
		s.do(memberP, s.source.Receive(s.now, memberD, s.transfer, &good))
		s.play()
		other := good
		s.do(memberP, s.source.Receive(s.now, memberX, s.transfer, &other))
		refusal, is := s.post[0].message.(*Refusal)
		if !is || !errors.Is(refusal.Problem.Err(), ErrTaken) && !errors.Is(refusal.Problem.Err(), ErrUsed) {
			t.Errorf("%+v", s.post[0].message)
		}
	})
}

// Orders that cannot be carried out are refused before anything is touched.
func TestOrdersAreChecked(t *testing.T) {
	good := func() *Order {
		terms := &Terms{Src: Party{Engine: *oneRank("e", 2, memberD)}, Dst: Party{Engine: *oneRank("f", 1, memberX)}}
		return &Order{Session: 1, Number: 1, Kind: OrderMove, As: Source, Engine: "e", Terms: terms, Flows: []FlowGrant{{Flow: Flow{1, 0}}}, Computed: Computed{Layers: 2}}
	}
	for name, change := range map[string]func(*Order){
		"no such source rank":      func(o *Order) { o.Flows[0].Src = 2 },
		"no such destination rank": func(o *Order) { o.Flows[0].Dst = 1 },
		"too many layers":          func(o *Order) { o.Computed.Layers = 3 },
		"ranks without memory":     func(o *Order) { o.Terms.Src.Engine.Ranks[0].Memory = nil },
		"too few ranks":            func(o *Order) { o.Terms.Dst.Engine.Ranks = nil },
		"another home's engine":    func(o *Order) { o.Engine = "f" },
	} {
		h := NewFollower(Timing{})
		h.Join("e", "p")
		h.Join("f", "x")
		o := good()
		change(o)
		effects := h.Receive(0, memberP, kv.ID{1}, o)
		if r := effects[0].(Send).Message.(*Report); len(effects) != 1 || r.Phase != Stopped || r.Problem.None() || h.Len() != 0 {
			t.Errorf("%s: %+v", name, effects)
		}
	}
	for name, change := range map[string]func(*Order){
		"no such source rank":   func(o *Order) { o.Flows[0].Src = 7 },
		"other flows":           func(o *Order) { o.Flows[0].Src = 0 },
		"fewer ranks":           func(o *Order) { o.Flows, o.Terms.Src.Engine = nil, *oneRank("e", 1, memberD) },
		"no terms":              func(o *Order) { o.Terms = nil },
		"another plan":          func(o *Order) { o.Digest[0]++ },
		"another home's engine": func(o *Order) { o.Engine = "f" },
		"too many layers":       func(o *Order) { o.Computed.Layers = 3 },
	} {
		h := NewFollower(Timing{})
		h.Join("e", "p")
		h.Join("f", "x")
		if effects := h.Receive(0, memberP, kv.ID{1}, good()); len(effects) != 1 || effects[0].(Move).To.Layers != 2 {
			t.Fatalf("%+v", effects)
		}
		second := good() // what comes later ends the session
		second.Number = 2
		change(second)
		session := SessionID{HomeRole{memberP, Source}, 1}
		if effects := h.Receive(0, memberP, kv.ID{1}, second); len(effects) != 1 || effects[0] != (Quiesce{session}) {
			t.Errorf("%s: %+v", name, effects)
		}
		if !h.Busy("e") || h.Busy("f") {
			t.Errorf("%s: busy for e: %v, for f: %v", name, h.Busy("e"), h.Busy("f"))
		}
	}
	h := NewFollower(Timing{})
	h.Join("e", "p")
	h.Receive(0, memberP, kv.ID{1}, good())
	told := &Order{Session: 1, Number: 2, Kind: OrderNotifyRanks, As: Source, Engine: "f"}
	h.Receive(0, memberP, kv.ID{1}, told)
	effects := h.Quiesced(0, SessionID{HomeRole{memberP, Source}, 1})
	if len(effects) != 2 || effects[1].(NotifyRanks).Engine != "e" {
		t.Errorf("ranks of another engine are told: %+v", effects)
	}
}

func TestEnginesAreChecked(t *testing.T) {
	for name, change := range map[string]func(*Engine){
		"no id":           func(e *Engine) { e.ID = "" },
		"no layout":       func(e *Engine) { e.Side.Layout = kv.Layout{} },
		"a rank less":     func(e *Engine) { e.Ranks = e.Ranks[1:] },
		"a nameless rank": func(e *Engine) { e.Ranks[1].Agent.Name = "" },
		"a byte less":     func(e *Engine) { e.Ranks[1].Memory[0].Length-- },
		"wraps around":    func(e *Engine) { e.Ranks[1].Memory[0].Offset = 1<<64 - 1 },
		"empty extent":    func(e *Engine) { e.Ranks[1].Memory = append(e.Ranks[1].Memory, Extent{}) },
	} {
		e := oneRank("e", 2, memberD, memberX)
		if err := e.Validate(); err != nil {
			t.Fatal(err)
		}
		if change(e); e.Validate() == nil {
			t.Errorf("%s is possible", name)
		}
	}
}

// The largest engine that a stranger may declare is a few hundred bytes on the
// wire. Looking at it takes little all the same.
func TestLargeEnginesCostLittle(t *testing.T) {
	const layers, ranks = 1 << 14, 1 << 10
	e := Engine{ID: "e", Side: oneRank("e", 1, memberD).Side}
	e.Side.Geometry, e.Side.Parallelism = kv.Uniform(layers, kv.Layer{KVHeads: 32, HeadDim: 1}, kv.Int8), kv.Split(layers, 32, 32)
	each, err := e.Side.MemoryBytes(0)
	if err != nil {
		t.Fatal(err)
	}
	for range ranks {
		e.Ranks = append(e.Ranks, Rank{Agent: memberD, Memory: Memory{{Region: 1, Epoch: 1, Length: uint64(each)}}})
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if err := e.Validate(); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if allocated := after.TotalAlloc - before.TotalAlloc; allocated > 8<<20 {
		t.Errorf("%d bytes were allocated for it", allocated)
	}
}

// Two sides that plan otherwise move nothing.
func TestDigestsDiffer(t *testing.T) {
	bothWays(t, func(t *testing.T, push bool) {
		s := newStage(t)
		s.move = func(Move) (Movement, bool) {
			t.Error("bytes move")
			return Movement{}, false
		}
		s.offer(2)
		s.accept(push)
		for len(s.post) > 0 {
			l := s.post[0]
			s.post = s.post[1:]
			switch m := l.message.(type) {
			case *Answer:
				changed := *m
				changed.Digest[0]++
				l.message = &changed
			case *Push:
				changed := *m
				changed.Digest[0]++
				l.message = &changed
			}
			s.deliver(l)
		}
		failed := s.events[slices.IndexFunc(s.events, func(e Event) bool { return e.Kind == Failed })]
		if !errors.Is(failed.Problem.Err(), ErrDigest) {
			t.Errorf("%s", s.story())
		}
	})
}

// An offer that is declined is declined for the destination that waits for it, too.
func TestDeclinedOffer(t *testing.T) {
	s := newStage(t)
	s.source.MaxHeldFraction = 0.1
	o := Offer{
		Transfer: s.transfer, Engine: "prefill", Fingerprint: testContent.Fingerprint(testKey), Tokens: 6,
		Holding: reshard.Holding{Tables: [][]uint32{{0, 1, 2}}}, Computed: Computed{Layers: 2}, Keep: Minute,
	}
	s.ticket = s.source.Issue(s.now, o)
	s.accept(false)
	s.play()
	_, effects, err := s.source.Offer(s.now, o)
	if !errors.Is(err, ErrDeclined) {
		t.Fatal(err)
	}
	s.do(memberP, effects)
	s.play()
	s.ended("destination failed", "destination freed")
	if !errors.Is(s.events[0].Problem.Err(), ErrDeclined) {
		t.Errorf("%s", s.story())
	}
	s.empty()
}

// A ticket without an end must not be remembered without one.
func TestRedeemedTicketsAreForgotten(t *testing.T) {
	s := newStage(t)
	s.ticket = Redeemed(s.transfer, memberP, testContent, testKey).Seal(testKey)
	effects, err := s.destination.Accept(s.now, Accept{
		Ticket: s.opened(), Engine: "decode", Holding: reshard.Holding{Tables: [][]uint32{{5, 3, 1}}},
		Tokens: kv.TokenRange{End: 6}, Deadline: s.now + 20*Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	s.do(memberD, effects)
	s.play() // the ask is there, and waits
	_, effects, err = s.source.Offer(s.now, Offer{
		Transfer: s.transfer, Engine: "prefill", Fingerprint: testContent.Fingerprint(testKey.For(memberP)), Tokens: 6,
		Holding: reshard.Holding{Tables: [][]uint32{{0, 1, 2}}}, Computed: Computed{Layers: 2}, Keep: Minute,
	})
	if err != nil {
		t.Fatal(err)
	}
	s.do(memberP, effects)
	s.play()
	if ending, over := s.source.endings[s.transfer]; !over || !ending.problem.None() || ending.until > s.now+Minute {
		t.Fatalf("over %v: %+v\n%s", over, ending, s.story())
	}
	other := Redeemed(kv.ID{43}, memberP, testContent, testKey).Seal(testKey)
	s.do(memberP, s.source.Receive(s.now, memberD, kv.ID{43}, &End{Session: 9, Ticket: other, Problem: ProblemOf(ErrCancelled), Final: true}))
	if _, over := s.source.endings[kv.ID{43}]; !over {
		t.Error("a promise was given back, and could still be offered for")
	}
	for range 4 {
		s.now += s.source.Timing.Lease
		s.do(memberP, s.source.Tick(s.now))
	}
	if len(s.source.endings) != 0 || s.source.Wake() != Never {
		t.Errorf("it is remembered still: %v", s.source.endings)
	}
	if !s.records[0].Promised && !s.records[1].Promised || !strings.Contains(s.records[0].String()+s.records[1].String(), "before it was offered") {
		t.Errorf("%v", s.records)
	}
}
