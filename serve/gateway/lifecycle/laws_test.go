package lifecycle

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"meridian/decide/placement"
	"meridian/kv"
	"meridian/see/ledger"
	"meridian/serve/gateway/request"
	"meridian/serve/openai"
)

// world is a gateway, its engines and a client around one life. It does what the life says, has
// anything happen, and holds the life to its laws.
type world struct {
	*rapid.T
	l    *Life
	kind openai.EngineKind
	now  kv.Instant

	ids     int
	offered map[kv.ID]bool // ids of hand-offs
	open    map[kv.ID]bool // tickets that no engine has used, and that were not given back
	spent   map[kv.ID]bool // those that one may have used, or that were given back
	void    map[kv.ID]bool // those that need not be given back, as what was to offer them has failed
	failed  map[string]bool
	full    map[string]bool
	beside  *PrefillEnd // the promised prefill leg, nil for none
	over    bool        // which has ended
	lost    bool        // the decode leg is to end, as that has failed

	begun map[string]int // legs by kind
	did   map[string]int // effects
	sent  []uint32       // what the client has
}

func (w *world) fresh() kv.ID {
	w.ids++
	return kv.ID{0xff, byte(w.ids >> 8), byte(w.ids)}
}

func (w *world) may(what string) bool { return rapid.Bool().Draw(w.T, what) }

func (w *world) rarely(what string) bool { return rapid.IntRange(0, 9).Draw(w.T, what) == 0 }

// offer takes in the id of a hand-off.
func (w *world) offer(id kv.ID) {
	if w.offered[id] {
		w.Fatalf("%v is offered twice", id)
	}
	w.offered[id] = true
}

func (w *world) tell() {
	for _, e := range w.l.Effects() {
		w.did[fmt.Sprintf("%T", e)]++
		switch e := e.(type) {
		case Count:
			w.did[fmt.Sprint("count ", uint8(e))]++
		case LegEnded:
			w.did["ended "+e.Kind]++
			w.did[fmt.Sprint("end ", uint8(e.End))]++
		case MoveEnded:
			w.did[fmt.Sprint("move ", uint8(e.End))]++
		case DropPrefill:
			w.drop()
		case GiveBack:
			if !w.open[e.Transfer] || w.spent[e.Transfer] {
				w.Fatalf("the ticket of %v is given back, open %v, spent %v", e.Transfer, w.open[e.Transfer], w.spent[e.Transfer])
			}
			w.spend(e.Transfer)
		}
	}
}

func (w *world) spend(id kv.ID) {
	w.spent[id] = true
	delete(w.open, id)
}

// held takes in what came of a hand-off.
func (w *world) held(id kv.ID, params []byte) {
	if delete(w.open, id); len(params) > 0 && !w.spent[id] {
		w.open[id] = true
	}
}

func (w *world) drop() {
	if w.beside != nil {
		end := *w.beside
		if w.beside = nil; !w.over {
			end.Params, end.Trouble = nil, &Trouble{Kind: Lost, Withdrawn: true, Engine: end.Engine.Key, Fault: openai.Unavailable("given up")}
		}
		w.void[end.Transfer] = end.Trouble != nil
		w.l.PrefillDropped(end)
		w.tell()
	}
}

func (w *world) engine(key string) Engine {
	return Engine{Key: key, Name: key, Kind: w.kind, MaxContext: 1 << 20, Shares: true, Home: key != "d1"}
}

func (w *world) trouble(engine string) *Trouble {
	kind := rapid.SampledFrom([]TroubleKind{Lost, Lost, Lost, Busy, Refused}).Draw(w.T, "kind")
	reached := kind == Lost && w.may("reached")
	return &Trouble{Kind: kind, Reached: reached, Answered: reached && w.may("answered"), Engine: engine, Fault: openai.Unavailable("x")}
}

// breaksOff is what goes wrong with an answer that has begun.
func (w *world) breaksOff(engine string) *Trouble {
	t := lostAt(engine)
	if t.Answered = w.may("answered"); t.Answered && w.may("refused") {
		t.Kind = Refused
	}
	return &t
}

// prefillEnds draws the end of a prefill leg.
func (w *world) prefillEnds(p *PrefillEnd) {
	switch {
	case w.may("prefill fails"):
		p.Trouble = w.trouble(p.Engine.Key)
	case w.may("offers"):
		p.Params = []byte(`{"meridian_ticket":"x"}`)
	}
	if w.may("tells") {
		p.Report = &openai.Report{KV: rapid.SampledFrom(KVSources).Draw(w.T, "kv"), PromptTokens: 40, CachedTokens: 8, KVTokens: 8}
	}
}

// meanwhile the promised prefill leg may end.
func (w *world) meanwhile() {
	if w.beside == nil || w.over || !w.may("meanwhile") {
		return
	}
	w.over = true
	if w.prefillEnds(w.beside); w.beside.Trouble != nil || w.beside.Params == nil {
		w.lost = w.l.PromiseLost()
	}
}

func (w *world) place(s Step) Step {
	for range 10_000 {
		wants, engines := w.l.Wants(), []placement.Engine(nil)
		for _, key := range []string{"d0", "d1", "d2", "p0", "p1"} {
			e := placement.Engine{ID: key, Name: key, Role: placement.Decode}
			if key[0] == 'p' {
				e.Role, e.Spare = placement.Prefill, wants.Spare
			}
			e.Full = w.rarely("full")
			if !slices.Contains(wants.Avoid, key) && !w.rarely("away") {
				engines = append(engines, e)
			}
		}
		next, wait := w.l.Place(s, Scene{Now: w.now, Engines: engines})
		if w.tell(); wait == nil {
			return next
		}
		w.now = w.now + wait.Most
	}
	w.Fatal("it waits without end")
	return s
}

func (w *world) prefill(s Step) Step {
	id := w.l.NextTransfer(w.fresh)
	w.offer(id)
	w.begun[ledger.PrefillLeg]++
	p := PrefillEnd{Engine: w.engine(s.Engine), Transfer: id, Began: w.now}
	if w.beside != nil {
		w.Fatal("a prefill leg is sent beside a prefill leg")
	}
	if w.may("promise") && w.l.MayPromise(p.Engine, w.engine(w.l.Decode()), 0) {
		params := []byte(`{"meridian_ticket":"a promise"}`)
		next := w.l.Promise(id, params)
		w.held(id, params)
		w.beside, w.over, w.lost = &p, false, false
		w.meanwhile()
		return next
	}
	w.prefillEnds(&p)
	return w.endPrefill(p)
}

func (w *world) endPrefill(p PrefillEnd) Step {
	next := w.l.PrefillEnded(p)
	w.failed[p.Engine.Key] = p.Trouble != nil && p.Trouble.Kind != Refused
	if w.void[p.Transfer] = p.Trouble != nil; p.Trouble == nil {
		w.held(p.Transfer, p.Params)
	}
	return next
}

func (w *world) offerElsewhere(s Step) Step {
	if w.may("cannot be asked") {
		return w.l.NoOffer()
	}
	p := PrefillEnd{Engine: w.engine(s.Engine), Transfer: w.fresh(), Began: w.now, Late: w.may("late")}
	w.offer(p.Transfer)
	w.begun[ledger.PrefillLeg]++
	w.prefillEnds(&p)
	w.failed[s.Engine] = p.Trouble != nil && p.Trouble.Kind == Lost // one that is full may go on itself
	w.held(p.Transfer, p.Params)
	return w.l.OfferEnded(p)
}

func (w *world) decode(s Step) Step {
	l := w.l
	asked, before := l.AskDecode(s, w.engine(s.Engine))
	if before != nil {
		return *before
	}
	w.tell()
	if kind := l.leg.record.Kind; s.Moved != (kind == ledger.MoveLeg) || (s.Resume != ResumeNever) != l.Begun() {
		w.Fatalf("begun %v, and the step is %+v", l.Begun(), s)
	}
	w.begun[l.leg.record.Kind]++
	if asked.Params != nil && w.spent[asked.Transfer] {
		w.Fatal("a ticket is used twice")
	}
	if asked.Params == nil && w.beside != nil {
		w.Fatal("a prefill leg runs that no decode leg waits for")
	}
	if said := slices.Concat(asked.SoFar, l.leg.again.Tokens); l.Begun() && l.route.Resume != ResumeNever && !slices.Equal(said, w.sent) {
		w.Fatalf("the client has %v, and another goes on after %v", w.sent, said)
	}
	w.now = w.now + kv.Millisecond
	l.Asked(w.now)
	end := DecodeEnd{Engine: w.engine(s.Engine), Took: kv.Millisecond}
	if asked.MayLeave {
		end.Order = Order{Given: w.may("ordered"), Why: MoveReason(rapid.IntRange(0, 4).Draw(w.T, "why")), To: "d2"}
		end.Move = w.fresh()
		w.offer(end.Move)
	}
	w.meanwhile()
	end.Trouble = w.answer(s, asked, end.Order.Given)
	if w.tell(); end.Trouble == nil {
		w.drop() // or it has ended
	}
	w.judge(asked, end)
	next := l.DecodeEnded(end)
	if l.HasLeft() && end.Trouble == nil {
		w.held(end.Move, l.leg.left.params)
	}
	return next
}

// judge notes what is known of an engine whose leg has ended.
func (w *world) judge(asked Asked, end DecodeEnd) {
	t := end.Trouble
	if asked.Params != nil && (w.l.leg.arrived || t == nil || t.Reached && t.Kind != Refused) {
		w.spend(asked.Transfer)
	}
	if t == nil || w.lost && asked.Promised && !w.l.Begun() {
		return
	}
	if t.Kind == Busy {
		w.full[t.Engine] = true
	} else {
		w.failed[t.Engine] = asked.Params == nil || !t.Answered || w.l.Begun()
	}
}

// answer is what a decode leg brings until its end.
func (w *world) answer(s Step, asked Asked, ordered bool) *Trouble {
	l := w.l
	if w.rarely("no answer") || asked.Promised && w.lost && w.may("is ended") {
		return w.trouble(s.Engine)
	}
	usable := !asked.Promised || !w.lost
	if ok := l.Arrived(w.now, Beside{Runs: w.beside != nil, Over: w.beside != nil && w.over, Ended: w.now}); ok != usable {
		w.Fatalf("arrived %v, with a cache that can be used %v", ok, usable)
	} else if !ok {
		return &Trouble{Kind: Lost, Reached: true, Withdrawn: true, Engine: s.Engine, Fault: openai.Unavailable("given up")}
	}
	if w.may("reports") {
		l.Reported(&openai.Report{KV: rapid.SampledFrom(KVSources).Draw(w.T, "kv"), HandoffMs: 1}, Beside{Runs: w.beside != nil})
	}
	if !l.Request.Stream {
		l.HearWhole(&openai.Chunk{Answered: true, Ends: 1, PromptTokens: []uint32{1}}, w.now)
		return nil
	}
	if again := l.leg.again.Clone(); !again.IsEmpty() {
		text, _ := json.Marshal(string(again.Text))
		c := &openai.Chunk{Answered: true, HasTokens: true, Tokens: again.Tokens, Text: text}
		if rest, ok := l.Repeated(c); !ok || rest != "" || len(c.Tokens) > 0 {
			w.Fatalf("of what the client has %q and %v are said again", rest, c.Tokens)
		}
	}
	for w.rarely("goes on") == false {
		w.chunk(s.Resume == ResumeGreedy)
		w.meanwhile()
		if ordered && w.kind == openai.KindVLLM && l.HangUp() {
			return nil
		}
		if !w.rarely("leaves") {
			continue
		}
		var c openai.Chunk
		ticket := ""
		if w.kind == openai.KindMeridian { // others offer nothing by themselves
			ticket = fmt.Sprintf(`,"kv_transfer_params":{"meridian_tokens":%d}`, len(w.sent))
		}
		c.Parse([]byte(`{"choices":[{"index":0,"text":"","finish_reason":"moved"}]` + ticket + `}`))
		if left := l.Leaves(&c); left != asked.MayLeave {
			w.Fatalf("it left %v, and may %v", left, asked.MayLeave)
		} else if left {
			return nil
		}
		return w.breaksOff(s.Engine)
	}
	if w.may("breaks off") {
		return w.breaksOff(s.Engine)
	}
	return nil
}

// chunk brings the client one more token or two.
func (w *world) chunk(greedy bool) {
	w.ids++
	text := fmt.Sprintf("%q", fmt.Sprint(w.ids, " "))
	c := &openai.Chunk{Answered: true, HasTokens: true, Tokens: []uint32{uint32(w.ids)}, Text: []byte(text)}
	if !w.l.Begun() {
		c.PromptTokens = []uint32{7}
	}
	if c.Thought = w.rarely("a thought"); c.Thought {
		c.Answered = w.may("which ends")
	}
	if w.rarely("two tokens") {
		c.Tokens = append(c.Tokens, c.Tokens[0]+1<<16)
	}
	if w.rarely("untold") {
		c.HasTokens, c.Tokens = false, nil
	}
	p := Piece{Chunk: c, Whole: c.Answered && len(c.Tokens) == 1}
	w.l.Hear(c)
	if greedy {
		said, ok := w.l.Repeated(c)
		if p.Text = &said; !ok {
			w.Fatal("what is new was said before")
		}
	}
	w.now = w.now + kv.Millisecond
	w.l.Took(w.now, Sample{Thought: c.Thought, Answered: c.Answered, Tokens: len(c.Tokens)})
	w.l.Begin(w.engine("d0"), c)
	w.sent = append(w.sent, c.Tokens...)
	w.l.Settle(p, w.now)
	w.tell()
}

// Whatever happens, a request ends soon, and never begins twice what a client has seen. It never
// asks an engine again that failed it, but for one whose hand-off failed, without it and once,
// and for those that were full when the answer has begun. No id is offered twice, a ticket is
// used or given back, and that once; each prefill leg is waited for or dropped; and what is
// counted is what the record says.
func TestFlowLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := 1 << 16
		w := &world{
			T: t, kind: rapid.SampledFrom([]openai.EngineKind{openai.KindMeridian, openai.KindVLLM}).Draw(t, "kind"), now: placedAt,
			offered: make(map[kv.ID]bool), open: make(map[kv.ID]bool), spent: make(map[kv.ID]bool), void: make(map[kv.ID]bool),
			failed: make(map[string]bool), full: make(map[string]bool), begun: make(map[string]int), did: make(map[string]int),
		}
		w.l = New(Options{ID: kv.ID{1}, Record: &ledger.Record{}, Began: placedAt, Rules: Rules{
			EngineWait: kv.Second, RoomWait: kv.Second, PromiseTokens: 1 << 20, MoveAtThinkEnd: w.may("moves at the end of thoughts"), NoResume: w.rarely("no resume"),
		}})
		w.l.Request = &request.Request{Endpoint: openai.PathCompletions, Stream: !w.rarely("whole"), Greedy: true, Plain: true, Answers: 1, Each: 1, Tokens: 40, MaxTokens: &limit}
		w.l.Admitted(w.now)
		w.live()
		w.drop()
		w.l.Over()
		w.tell()
		w.agrees()
	})
}

// live does what the life says until it is over.
func (w *world) live() {
	next := w.l.Start()
	for steps := 0; ; steps++ {
		if steps > 40+2*maxWaits {
			w.Fatal("it does not end")
		}
		w.tell()
		if w.rarely("abandoned") && next.Do != DoEnd {
			w.l.Cancel("the client went away", w.now)
			return
		}
		if e := next.Engine; (w.failed[e] || w.full[e] && !w.l.Begun()) && (next.Do == DoPrefill || next.Do == DoDecode) {
			w.Fatalf("%s failed and is asked again: %+v", e, next)
		}
		switch next.Do {
		case DoPlace, DoPlaceDecode, DoPlacePrefix, DoMove:
			if w.l.Begun() && (next.Do == DoPlace || next.Do == DoPlacePrefix) {
				w.Fatal("a stream that has begun starts anew")
			}
			next = w.place(next)
		case DoOffer:
			next = w.offerElsewhere(next)
		case DoPrefill:
			next = w.prefill(next)
		case DoEndPrefill:
			p := *w.beside
			if w.beside = nil; !w.over {
				w.prefillEnds(&p)
			}
			next = w.endPrefill(p)
		case DoDecode:
			next = w.decode(next)
		case DoFail:
			if next.Fault == nil {
				w.Fatal("it fails without saying why")
			}
			w.l.Fail(next.Fault, Client{}, w.now)
			return
		case DoEnd:
			if w.beside != nil {
				w.Fatal("it has ended before a prefill leg")
			}
			w.l.Finish("", w.now)
			return
		}
	}
}

// agrees holds what was counted against the record, when the life is over.
func (w *world) agrees() {
	r := w.l.Record
	kinds := make(map[string]int)
	done := 0
	for _, leg := range r.Legs {
		kinds[leg.Kind]++
		if leg.Problem == "" {
			done++
		}
	}
	for _, kind := range []string{ledger.PrefillLeg, ledger.DecodeLeg, ledger.ResumeLeg, ledger.MoveLeg} {
		if kinds[kind] != w.begun[kind] || w.did["ended "+kind] != w.begun[kind] {
			w.Fatalf("%s: %d began, %d are in the record, %d counted", kind, w.begun[kind], kinds[kind], w.did["ended "+kind])
		}
	}
	for id := range w.open {
		if !w.void[id] {
			w.Fatalf("the ticket of %v is neither used nor given back", id)
		}
	}
	resumed := w.did[fmt.Sprint("count ", uint8(CountResumed))]
	moved := w.did["lifecycle.MoveEnded"] - w.did[fmt.Sprint("move ", uint8(MoveStayed))]
	switch {
	case done != w.did["lifecycle.Served"] || done != w.did[fmt.Sprint("end ", uint8(LegDone))]:
		w.Fatalf("%d legs were done, %d counted, %d told", done, w.did["end 0"], w.did["lifecycle.Served"])
	case moved != len(r.Moves) || moved > 2*MaxMoves:
		w.Fatalf("%d moves are in the record, %d counted", len(r.Moves), moved)
	case resumed > r.Resumed || r.Resumed > kinds[ledger.ResumeLeg]:
		w.Fatalf("%d streams went on, %d were to, in %d legs", resumed, r.Resumed, kinds[ledger.ResumeLeg])
	case r.Outcome == "" || r.OutputTokens < len(w.sent):
		w.Fatalf("it has ended as %q after %d tokens, and the client has %d", r.Outcome, r.OutputTokens, len(w.sent))
	case w.l.leg.waits:
		w.Fatal("a leg is not in the record")
	}
	if w.l.Over(); len(w.l.Effects()) > 0 {
		w.Fatal("something follows after the end")
	}
}
