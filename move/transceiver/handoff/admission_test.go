package handoff

import (
	"errors"
	"testing"

	"meridian/kv"
	"meridian/move/reshard"
)

// refusalOf is the refusal that effects have as their only message, if they do.
func refusalOf(effects []Effect) error {
	if len(effects) == 1 {
		if sent, is := effects[0].(Send); is {
			if r, is := sent.Message.(*Refusal); is {
				return r.Problem.Err()
			}
		}
	}
	return nil
}

// What asks that come before their offers make a source keep is bounded: in
// number for each destination, and in bytes for all of them.
func TestEarlyAsksAreBounded(t *testing.T) {
	early := func(h *SourceHome, from kv.Member, n int, blocks int) error {
		transfer := kv.ID{byte(n), byte(n >> 8), 1}
		ticket := Ticket{Transfer: transfer, Home: memberP, Tokens: 6, Fingerprint: testContent.Fingerprint(testKey), Expires: Never}
		dst := Party{Engine: *oneRank("decode", 1, from), Holding: reshard.Holding{Tables: [][]uint32{make([]uint32, blocks)}}}
		return refusalOf(h.Receive(Second, from, transfer, &Ask{
			Session: uint64(n), Low: LowVersion, High: HighVersion, Ticket: ticket.Seal(testKey), Dst: dst, Tokens: kv.TokenRange{End: 6}, RemainingMs: 1000,
		}))
	}
	h := NewSourceHome(SourceOptions{Self: memberP, Key: testKey, MaxOffers: 10})
	kept := 0
	for n := range 20 {
		if err := early(h, memberD, n+1, 3); err == nil {
			kept++
		} else if !errors.Is(err, ErrDeclined) {
			t.Fatal(err)
		}
	}
	if err := early(h, memberX, 100, 3); kept > 6 || err != nil {
		t.Errorf("one destination has %d of 10 places, another has none: %v", kept, err)
	}
	h = NewSourceHome(SourceOptions{Self: memberP, Key: testKey})
	const large = maxAwaitedBytes / 4 / 10
	kept = 0
	for n := range 30 {
		if err := early(h, memberD, n+1, large); err == nil {
			kept++
		}
	}
	if kept == 0 || kept > 10 {
		t.Errorf("%d asks of %d bytes are kept", kept, 4*large)
	}
	// The same destination's next session takes the place of the one before.
	again := kv.ID{1, 0, 1}
	ticket := Ticket{Transfer: again, Home: memberP, Tokens: 6, Fingerprint: testContent.Fingerprint(testKey), Expires: Never}
	ask := &Ask{
		Session: 1000, Low: LowVersion, High: HighVersion, Ticket: ticket.Seal(testKey), RemainingMs: 1000,
		Dst: Party{Engine: *oneRank("decode", 1, memberD), Holding: reshard.Holding{Tables: [][]uint32{make([]uint32, 2*large)}}},
	}
	if err := refusalOf(h.Receive(Second, memberD, again, ask)); !errors.Is(err, ErrDeclined) {
		t.Errorf("a larger ask in the place of one: %v", err)
	}
}

// Homes have a follower run so many sessions at a time, and no more.
func TestFollowerSessionsAreBounded(t *testing.T) {
	f := NewFollower(Timing{})
	f.Join("e", "p")
	terms := &Terms{Src: Party{Engine: *oneRank("e", 1, memberD)}, Dst: Party{Engine: *oneRank("f", 1, memberX)}}
	order := func(session uint64) []Effect {
		return f.Receive(0, memberP, kv.ID{1}, &Order{Session: session, Number: 1, Kind: OrderGrant, As: Source, Engine: "e", Terms: terms, Flows: []FlowGrant{{}}, LeaseMs: 1 << 60})
	}
	for session := range uint64(maxFollowerSessions) {
		if _, is := order(session + 1)[0].(Grant); !is {
			t.Fatalf("session %d is refused", session+1)
		}
	}
	effects := order(maxFollowerSessions + 1)
	report, is := effects[0].(Send).Message.(*Report)
	if !is || !errors.Is(report.Problem.Err(), ErrDeclined) || f.Len() != maxFollowerSessions {
		t.Errorf("%+v, %d sessions", effects, f.Len())
	}
}

// A peer whose ranks would take most of an agent's grants is refused before one
// is written.
func TestFlowsAreBounded(t *testing.T) {
	side := func(tp, cp int) reshard.Side {
		s := oneRank("e", 1, memberD).Side
		s.Geometry = kv.Uniform(2, kv.Layer{KVHeads: 1, HeadDim: 2}, kv.Int8)
		s.Parallelism, s.Blocks = kv.Split(2, tp, 1), 64
		s.Parallelism.CP, s.InterleaveTokens = cp, 1
		return s
	}
	plan := func(srcCP, dstTP, dstCP int) *reshard.Plan {
		shape, err := reshard.Prepare(side(1, srcCP), side(dstTP, dstCP))
		if err != nil {
			t.Fatal(err)
		}
		table := make([]uint32, 64)
		for i := range table {
			table[i] = uint32(i)
		}
		p, err := shape.Plan(reshard.Request{
			Tokens: kv.TokenRange{End: 128}, Src: reshard.Holding{Tables: [][]uint32{table}}, Dst: reshard.Holding{Tables: [][]uint32{table}},
		})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	if flows, err := flowsOf(plan(3, 2, 2)); err != nil || len(flows) != 3*2*2 {
		t.Errorf("%d flows, %v", len(flows), err)
	}
	if flows, err := flowsOf(plan(17, 64, 16)); !errors.Is(err, ErrTerms) {
		t.Errorf("%d flows are allowed, %v", len(flows), err)
	}
}

// However long an engine wants its offers to stand, and whatever its tickets say,
// a home need not remember them for longer than MaxKeep.
func TestMemoryOfTicketsIsBounded(t *testing.T) {
	s := newStage(t)
	_, _, err := s.source.Offer(s.now, Offer{
		Transfer: kv.ID{7}, Engine: "prefill", Fingerprint: testContent.Fingerprint(testKey), Tokens: 6,
		Holding: reshard.Holding{Tables: [][]uint32{{0, 1, 2}}}, Computed: Computed{Layers: 2}, Keep: MaxKeep + Millisecond,
	})
	if !errors.Is(err, ErrTerms) {
		t.Errorf("an offer that stands for ages: %v", err)
	}
	ticket := Ticket{Transfer: kv.ID{8}, Home: memberP, Tokens: 6, Fingerprint: testContent.Fingerprint(testKey), Expires: Never - 1}
	s.do(memberP, s.source.Receive(s.now, memberD, kv.ID{8}, &End{Session: 1, Ticket: ticket.Seal(testKey), Problem: ProblemOf(ErrCancelled), Final: true}))
	for _, id := range []kv.ID{{7}, {8}} {
		if over, is := s.source.endings[id]; !is || over.until > s.now+MaxKeep {
			t.Errorf("transfer %v is remembered: %v, until %d, now is %d", id, is, over.until, s.now)
		}
	}
}

// An engine that names more blocks than it has, or more tables than there can be
// groups of layers, is refused before any of that is kept.
func TestTablesAreBounded(t *testing.T) {
	for name, tables := range map[string][][]uint32{"blocks": {make([]uint32, 9)}, "tables": make([][]uint32, maxTables+1)} {
		s := newStage(t)
		s.offer(2)
		_, _, err := s.source.Offer(s.now, Offer{
			Transfer: kv.ID{7}, Engine: "prefill", Fingerprint: testContent.Fingerprint(testKey), Tokens: 6,
			Holding: reshard.Holding{Tables: tables}, Computed: Computed{Layers: 2}, Keep: Minute,
		})
		if !errors.Is(err, ErrTerms) {
			t.Errorf("offered with too many %s: %v", name, err)
		}
		_, err = s.destination.Accept(s.now, Accept{
			Ticket: s.opened(), Engine: "decode", Holding: reshard.Holding{Tables: tables},
			Tokens: kv.TokenRange{End: 6}, Deadline: s.now + Second,
		})
		if !errors.Is(err, ErrTerms) || s.destination.Len() != 0 {
			t.Errorf("accepted with too many %s: %v", name, err)
		}
	}
}

// What all tables of an engine take is bounded, too: an engine may say that it has billions of
// blocks, and each hand-off may name as many as a message takes.
func TestTablesOfAnEngineAreBounded(t *testing.T) {
	s := newStage(t)
	for _, e := range []*Engine{s.source.engines["prefill"], s.destination.engines["decode"]} {
		e.Side.Blocks = 1 << 32
	}
	large := make([]uint32, maxBlocks)
	transfer := func(n int) kv.ID { return kv.ID{9, byte(n)} }
	offer := func(n int, tables ...[]uint32) error {
		_, _, err := s.source.Offer(s.now, Offer{
			Transfer: transfer(n), Engine: "prefill", Fingerprint: testContent.Fingerprint(testKey), Tokens: 6,
			Holding: reshard.Holding{Tables: tables}, Computed: Computed{Layers: 2}, Keep: Minute,
		})
		return err
	}
	accept := func(n int, tables ...[]uint32) error {
		ticket := Ticket{Transfer: transfer(n), Home: memberP, Tokens: 6, Fingerprint: testContent.Fingerprint(testKey), Expires: Never}
		_, err := s.destination.Accept(s.now, Accept{
			Ticket: ticket, Engine: "decode", Holding: reshard.Holding{Tables: tables},
			Tokens: kv.TokenRange{End: 6}, Deadline: s.now + Second,
		})
		return err
	}
	for name, keep := range map[string]func(n int, tables ...[]uint32) error{"offered": offer, "accepted": accept} {
		if err := keep(99, large, large[:1]); !errors.Is(err, ErrTerms) {
			t.Errorf("more blocks than a message between homes names are %s: %v", name, err)
		}
		kept := 0
		for n := range 20 {
			if err := keep(n, large); err == nil {
				kept++
			} else if !errors.Is(err, ErrDeclined) {
				t.Fatal(err)
			}
		}
		if want := maxEngineTableBytes / (maxBlocks * blockNumberBytes); kept != want {
			t.Errorf("%d tables of %d blocks are %s, want %d", kept, len(large), name, want)
		}
	}
}

// An offer holds the blocks that what it is of lies in. An entry of a table stands for a block of
// each context rank.
func TestBlocksOfAnOffer(t *testing.T) {
	for ranks, want := range map[int]int{1: 6, 2: 8, 4: 9} {
		p := Party{Engine: Engine{Side: reshard.Side{BlockTokens: 16, Parallelism: kv.Parallelism{TP: 1, CP: ranks, DP: 1}}}, Holding: reshard.Holding{Tables: [][]uint32{make([]uint32, 10)}}}
		if n := (&Offer{First: 64}).blocks(&p); n != want {
			t.Errorf("%d context ranks: from token 64 on it holds %d of 10 blocks, want %d", ranks, n, want)
		}
	}
}
