package handoff

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"meridian/kv"
	"meridian/move/reshard"
)

// storeEngine is an object cache of units of two tokens, 32 bytes each, at 256 places.
func storeEngine(id string, at kv.Member) *Engine {
	unit, err := reshard.UnitOf(oneRank("e", 1, at).Side, 2)
	if err != nil {
		panic(err)
	}
	side, err := unit.Side(1 << 20)
	if err != nil {
		panic(err)
	}
	return &Engine{ID: id, Side: side, Ranks: []Rank{{Agent: at, Memory: Memory{{Region: 7, Epoch: 1, Length: 1 << 20}}}}}
}

func storeOffer(n byte, units ...uint32) Offer {
	return Offer{
		Transfer: kv.ID{n, 1}, Engine: "store", Fingerprint: testContent.Fingerprint(testKey), Tokens: 2 * len(units),
		Holding: reshard.Holding{Tables: [][]uint32{units}}, Computed: Computed{Layers: 2}, Keep: 5 * Second,
	}
}

// An object cache at either end, and what it does not hold.
func TestStoresOnStage(t *testing.T) {
	for _, push := range []bool{false, true} {
		s := newStage(t)
		s.join(storeEngine("prefill", memberP), oneRank("decode", 1, memberD))
		s.whole(push)
		s.empty()
		if len(s.source.units.readers) != 0 || s.source.units.bytes != 0 {
			t.Errorf("units are held after the end: %+v", s.source.units)
		}
		s = newStage(t)
		s.join(oneRank("prefill", 2, memberP), storeEngine("decode", memberD))
		s.whole(push)
		s.empty()
	}
}

// An agent that has not said that it knows places is refused before one is named
// to it; an engine serves it as ever.
func TestOlderAgents(t *testing.T) {
	for id, e := range map[string]*Engine{"engine": oneRank("store", 1, memberP), "cache": storeEngine("store", memberP)} {
		h := NewSourceHome(SourceOptions{Self: memberP, Key: testKey, MaxHeldFraction: 1})
		h.Join(e)
		ticket, _, err := h.Offer(Second, storeOffer(1, 3, 4, 5))
		if err != nil {
			t.Fatal(err)
		}
		effects := h.Receive(Second, memberD, kv.ID{1, 1}, &Ask{
			Session: 1, Low: LowVersion, High: HighVersion, Capabilities: CanLayers, Ticket: ticket, RemainingMs: 1000,
			Dst: Party{Engine: *oneRank("decode", 1, memberD), Holding: reshard.Holding{Tables: [][]uint32{{0, 1, 2}}}}, Tokens: kv.TokenRange{End: 6},
		})
		refused := refusalOf(effects)
		if id == "cache" && (!errors.Is(refused, ErrUnable) || !strings.Contains(refused.Error(), "is an object cache")) || id == "engine" && refused != nil {
			t.Errorf("%s: %v", id, refused)
		}
	}
}

func TestOffersOfStoresThatCannotBe(t *testing.T) {
	for name, change := range map[string]func(*Offer){
		"two tables":             func(o *Offer) { o.Holding.Tables = [][]uint32{{1}, {2}} },
		"a table too short":      func(o *Offer) { o.Tokens = 100 },
		"the first beyond":       func(o *Offer) { o.First = 7 },
		"the first before":       func(o *Offer) { o.First = -1 },
		"more units than places": func(o *Offer) { o.Holding.Tables[0] = make([]uint32, 300) },
	} {
		h := NewSourceHome(SourceOptions{Self: memberP, Key: testKey})
		h.Join(storeEngine("store", memberP))
		o := storeOffer(1, 3, 4, 5)
		change(&o)
		if _, _, err := h.Offer(Second, o); !errors.Is(err, ErrTerms) || h.Len() != 0 || len(h.endings) != 0 {
			t.Errorf("%s: %v, %d offers, %d endings", name, err, h.Len(), len(h.endings))
		}
	}
}

// Units that readers share count once, and until the last of them is through.
func TestSharedUnitsCountOnce(t *testing.T) {
	h := NewSourceHome(SourceOptions{Self: memberP, Key: testKey, Stores: StoreLimits{MaxHeldFraction: 100. / (1 << 20)}}) // three units
	h.Join(storeEngine("store", memberP))
	offer := func(n byte, units ...uint32) error {
		_, _, err := h.Offer(Second, storeOffer(n, units...))
		return err
	}
	if err := errors.Join(offer(1, 10, 20), offer(2, 20, 10), offer(3, 10, 30)); err != nil {
		t.Fatal(err)
	}
	if err := offer(4, 40); !errors.Is(err, ErrDeclined) || h.units.bytes != 96 {
		t.Errorf("a fourth unit of %d bytes: %v", h.units.bytes, err)
	}
	h.Withdraw(Second, kv.ID{1, 1})
	if err := offer(5, 40); !errors.Is(err, ErrDeclined) {
		t.Errorf("unit 20 has a reader: %v", err)
	}
	h.Withdraw(Second, kv.ID{2, 1})
	if err := offer(6, 40); err != nil {
		t.Errorf("no engine reads unit 20: %v", err)
	}
	segment := storeOffer(7, 0, 0, 10)
	segment.First = 4
	if _, _, err := h.Offer(Second, segment); err != nil {
		t.Errorf("what a table says before the first token counts: %v", err)
	}
}

// A used ticket of an object cache is remembered until it has expired and not
// longer, and leaves what engines may remember alone.
func TestSpentTickets(t *testing.T) {
	h := NewSourceHome(SourceOptions{Self: memberP, Key: testKey, MaxHeldFraction: 1, MaxRemembered: 1, Stores: StoreLimits{MaxRemembered: 3}})
	h.Join(storeEngine("store", memberP))
	h.Join(oneRank("engine", 1, memberP))
	spend := func(now Instant, n byte) ([]byte, error) {
		ticket, _, err := h.Offer(now, storeOffer(n, 5))
		if err == nil {
			h.Receive(now, memberD, kv.ID{n, 1}, &End{Session: uint64(n), Ticket: ticket, Final: true})
		}
		return ticket, err
	}
	ask := func(now Instant, ticket []byte) error {
		return refusalOf(h.Receive(now, memberD, kv.ID{1, 1}, &Ask{Session: 9, Low: LowVersion, High: HighVersion, Ticket: ticket, RemainingMs: 1000}))
	}
	first, err := spend(Second, 1)
	if err != nil || len(h.spent) != 1 {
		t.Fatalf("%v, %v", err, h.spent)
	}
	if err := ask(2*Second, first); !errors.Is(err, ErrUsed) {
		t.Errorf("again: %v", err)
	}
	for n := range byte(2) {
		if _, err := spend(2*Second, n+2); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := spend(2*Second, 4); !errors.Is(err, ErrDeclined) {
		t.Errorf("a fourth: %v", err)
	}
	engine := storeOffer(9, 1, 2)
	engine.Engine = "engine"
	if _, _, err := h.Offer(2*Second, engine); err != nil {
		t.Errorf("an engine's: %v", err)
	}
	if _, err := spend(6*Second, 5); err != nil || !slices.Equal(h.spent, []kv.ID{{2, 1}, {3, 1}, {5, 1}}) {
		t.Errorf("the first has expired: %v, %v", err, h.spent)
	}
	if err := ask(6*Second, first); !errors.Is(err, ErrExpired) {
		t.Errorf("long after: %v", err)
	}
	h.forgetSpent(Minute)
	if len(h.spent) != 0 || len(h.endings) != 0 {
		t.Errorf("%v and %v are remembered", h.spent, h.endings)
	}
}

// What a cache takes and what engines take is bounded and remembered apart.
func TestAcceptsOfStores(t *testing.T) {
	destination := NewDestinationHome(DestinationOptions{Self: memberD, Key: testKey, MaxAccepts: 1, Stores: StoreLimits{MaxAccepts: 2}})
	destination.Join(storeEngine("store", memberD))
	destination.Join(oneRank("engine", 1, memberD))
	accept := func(n byte, engine string) error {
		ticket := Ticket{Transfer: kv.ID{n}, Home: memberP, Tokens: 6, Fingerprint: testContent.Fingerprint(testKey), Expires: Never}
		_, err := destination.Accept(Second, Accept{
			Ticket: ticket, Engine: engine, Tokens: kv.TokenRange{End: 6},
			Holding: reshard.Holding{Tables: [][]uint32{{1, 2, 3}}}, Deadline: Minute,
		})
		return err
	}
	if err := errors.Join(accept(1, "store"), accept(2, "store"), accept(3, "engine")); err != nil {
		t.Fatal(err)
	}
	if store, engine := accept(4, "store"), accept(5, "engine"); !errors.Is(store, ErrDeclined) || !errors.Is(engine, ErrDeclined) {
		t.Errorf("a third of the cache: %v, a second of the engine: %v", store, engine)
	}
	destination.Cancel(Second, kv.ID{3})
	for range rememberedEndings + 1 {
		destination.stored.add(kv.ID{9, byte(len(destination.stored.order)), byte(len(destination.stored.order) >> 8)}, Problem{})
	}
	if _, over := destination.ended(kv.ID{3}); !over {
		t.Error("what the cache took made the engine's be forgotten")
	}
	if err := accept(3, "engine"); !errors.Is(err, ErrCancelled) {
		t.Error(err)
	}
}

// A source that must have the cache, and does not answer, is not waited for; one
// that has answered is.
func TestNoAnswerInTime(t *testing.T) {
	for _, answers := range []bool{false, true} {
		s := newStage(t)
		s.join(storeEngine("prefill", memberP), oneRank("decode", 1, memberD))
		s.offer(1) // more layers would come
		effects, err := s.destination.Accept(s.now, Accept{
			Ticket: s.opened(), Engine: "decode", Holding: reshard.Holding{Tables: [][]uint32{{5, 3, 1}}},
			Tokens: kv.TokenRange{End: 6}, Deadline: s.now + 20*Second, AnswerBy: s.now + 2*Second,
		})
		if err != nil {
			t.Fatal(err)
		}
		s.do(memberD, effects)
		if !answers {
			s.post = nil
			s.now += 2 * Second
			s.do(memberD, s.destination.Tick(s.now))
			s.ended("destination failed", "destination freed")
			if !errors.Is(s.events[0].Problem.Err(), ErrLapsed) {
				t.Error(s.story())
			}
			continue
		}
		s.pass(10 * Second)
		s.do(memberP, s.source.Progress(s.now, s.transfer, 2, 0))
		s.play()
		s.ended("source freed", "destination ready")
	}
}

// What is given back before it is taken is told apart from what went wrong: of an object
// cache, and of what is to be kept, alone.
func TestGivenBackUnused(t *testing.T) {
	recordOf := func(effects []Effect) *Record {
		for _, e := range effects {
			if kept, is := e.(KeepRecord); is {
				return kept.Record
			}
		}
		t.Fatal("nothing is recorded")
		return nil
	}
	decline := func(h *SourceHome, id kv.ID, ticket []byte) []Effect {
		return h.Receive(2*Second, memberD, id, &End{Session: 1, Ticket: ticket, Problem: ProblemOf(ErrCancelled), Final: true})
	}
	withdraw := func(h *SourceHome, id kv.ID, _ []byte) []Effect { return h.Withdraw(2*Second, id) }
	for _, c := range []struct {
		name   string
		engine string
		toKeep bool
		end    func(*SourceHome, kv.ID, []byte) []Effect
		unused bool
	}{
		{"what was found is declined", "store", false, decline, true},
		{"no owner keeps it", "engine", true, withdraw, true},
		{"an engine's own is withdrawn", "engine", false, withdraw, false},
		{"an engine's own is declined", "engine", false, decline, false},
		{"it expires", "store", false, func(h *SourceHome, _ kv.ID, _ []byte) []Effect { return h.Tick(Minute) }, false},
		{"it was asked for", "store", false, func(h *SourceHome, id kv.ID, ticket []byte) []Effect {
			h.Receive(Second, memberD, id, &Ask{
				Session: 1, Low: LowVersion, High: HighVersion, Capabilities: CanLayers | CanPlaces, Ticket: ticket, RemainingMs: 1000,
				Dst: Party{Engine: *oneRank("decode", 1, memberD), Holding: reshard.Holding{Tables: [][]uint32{{0, 1, 2}}}}, Tokens: kv.TokenRange{End: 6},
			})
			return withdraw(h, id, ticket)
		}, false},
	} {
		h := NewSourceHome(SourceOptions{Self: memberP, Key: testKey, MaxHeldFraction: 1})
		h.Join(storeEngine("store", memberP))
		h.Join(oneRank("engine", 1, memberP))
		o := storeOffer(1, 3, 4, 5)
		o.Engine, o.ToKeep = c.engine, c.toKeep
		ticket, _, err := h.Offer(Second, o)
		if err != nil {
			t.Fatal(c.name, err)
		}
		if r := recordOf(c.end(h, o.Transfer, ticket)); r.Unused != c.unused || r.Problem == "" {
			t.Errorf("%s: %+v", c.name, r)
		}
	}
}
